// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ashlar-go/ashlar/reconciletest"
	"github.com/ashlar-go/ashlar/test/integration/lab"
)

// TestExampleObeysTheLaws runs the database operator behind a proxy that holds every request against the laws of
// writing, through the whole life of three Databases: one that is scaled, one that is orphaned, one that is deleted in
// the foreground.
func TestExampleObeysTheLaws(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	laws := reconciletest.NewLawTransport(t, nil)
	config := cluster.OperatorConfig()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return laws.Wrap(next) })
	proxy, err := lab.NewProxy(config)
	s.must(err)
	t.Cleanup(func() { _ = proxy.Close() })
	proxy.Arm(nil)
	s.operate(lab.Operator{Server: proxy.URL})

	for name, policy := range map[string]metav1.DeletionPropagation{
		"scaled": metav1.DeletePropagationBackground, "orphaned": metav1.DeletePropagationOrphan, "foreground": metav1.DeletePropagationForeground,
	} {
		db := s.named(name, 1)
		s.create(db)
		s.ready(db)
		if name == "scaled" {
			s.patch(db, `{"spec":{"scalePolicy":{"replicas":2}}}`)
			s.ready(db)
		}
		s.must(client.IgnoreNotFound(cluster.Client.Delete(s.ctx, db, client.PropagationPolicy(policy))))
	}
	s.until("no Database is left", func(ctx context.Context) error {
		p, err := count(ctx, s.ns)
		if err == nil && p.Databases > 0 {
			err = fmt.Errorf("%d Databases are left", p.Databases)
		}
		return err
	})
	if n := len(proxy.Writes()); n < 20 {
		t.Errorf("only %d writes were judged", n)
	}
	if broken := laws.Violations(); len(broken) > 0 {
		t.Errorf("%d violations", len(broken))
	}
}
