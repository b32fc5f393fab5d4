// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"net/http"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ashlar-go/ashlar/ownership/ownershiptest"
	"github.com/ashlar-go/ashlar/reconciletest"
)

// TestOwnershipWalk is the beginning of the walk that ownership/apply takes on an in-memory server: same generator, same
// seed, but a real garbage collector.
func TestOwnershipWalk(t *testing.T) {
	t.Parallel()
	laws := reconciletest.NewLawTransport(t, nil)
	config := cluster.Config()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return laws.Wrap(next) })
	c, err := client.New(config, client.Options{Scheme: cluster.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	ownershiptest.Walk{
		Client: c, Namespace: namespace(t.Context(), t), Seed: 4, Steps: 500,
		Collect: func(context.Context) { time.Sleep(20 * time.Millisecond) },
	}.Run(t)
}
