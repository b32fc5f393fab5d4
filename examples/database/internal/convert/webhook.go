// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/ashlar-go/ashlar/conversion"
)

// Path is where the webhook is served.
const Path = "/convert"

// CRD is the name of the CustomResourceDefinition.
const CRD = "databases.db.example.com"

const (
	serviceName = "database-operator-webhook"
	lookAgain   = 10 * time.Minute
)

// Webhook tells the API server how to reach it and shows a certificate that the
// API server trusts. It works on every replica, whoever leads.
type Webhook struct {
	client    client.Client // uncached: caches may need the webhook before they fill
	namespace string
	url       string // empty: the Service
	log       logr.Logger
	now       func() time.Time

	mu        sync.Mutex
	authority *authority
	leaf      *tls.Certificate
}

// NewWebhook makes a webhook that is reached at url, or by the Service in
// namespace when url is empty. Give TLS to the options of the webhook server and
// Register it on the manager.
func NewWebhook(c client.Client, namespace, url string, log logr.Logger) (*Webhook, error) {
	if namespace == "" {
		return nil, errors.New("the namespace of the webhook is unknown: set --webhook-namespace")
	}
	return &Webhook{client: c, namespace: namespace, url: url, log: log.WithValues("controller", "conversion"), now: time.Now}, nil
}

// Register mounts the handler. A failure is logged once for each object.
func (w *Webhook) Register(mgr manager.Manager) error {
	databases, err := Databases()
	if err != nil {
		return err
	}
	handler, err := conversion.Handler([]*conversion.Converter{databases}, conversion.WithObserver(func(e conversion.Event) {
		if e.Kind != conversion.Reviewed && !e.Repeated {
			w.log.Info("conversion", "event", e)
		}
	}))
	if err != nil {
		return err
	}
	mgr.GetWebhookServer().Register(Path, handler)
	return errors.Join(mgr.Add(w), mgr.AddReadyzCheck("webhook", mgr.GetWebhookServer().StartedChecker()))
}

// NeedLeaderElection says that every replica takes part.
func (w *Webhook) NeedLeaderElection() bool { return false }

// Start keeps the CRD pointing here until ctx ends, and sees a new authority that another replica has made.
func (w *Webhook) Start(ctx context.Context) error {
	for {
		if err := w.Publish(ctx); err != nil && ctx.Err() == nil {
			w.log.Error(err, "the API server may not find the conversion webhook")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(lookAgain):
		}
	}
}

// Publish writes conversion into the CRD when it says something else.
func (w *Webhook) Publish(ctx context.Context) error {
	a, err := readAuthority(ctx, w.client, w.namespace, w.now())
	if err != nil {
		return fmt.Errorf("prepare the certificate of the conversion webhook: %w", err)
	}
	w.mu.Lock()
	if !a.equal(w.authority) {
		w.authority, w.leaf = a, nil
	}
	w.mu.Unlock()

	crd := &unstructured.Unstructured{}
	crd.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	if err := w.client.Get(ctx, client.ObjectKey{Name: CRD}, crd); err != nil {
		return err
	}
	before := crd.DeepCopy()
	if err := unstructured.SetNestedMap(crd.Object, w.conversion(a.bundle), "spec", "conversion"); err != nil {
		return err
	}
	if equality.Semantic.DeepEqual(before.Object, crd.Object) {
		return nil
	}
	return w.client.Patch(ctx, crd, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

func (w *Webhook) conversion(bundle []byte) map[string]any {
	config := map[string]any{"caBundle": base64.StdEncoding.EncodeToString(bundle)}
	if w.url != "" {
		config["url"] = w.url
	} else {
		config["service"] = map[string]any{"namespace": w.namespace, "name": serviceName, "path": Path, "port": int64(443)}
	}
	return map[string]any{
		"strategy": "Webhook",
		"webhook":  map[string]any{"conversionReviewVersions": []any{"v1"}, "clientConfig": config},
	}
}

// TLS configures the webhook server: a certificate signed in this process, renewed in time.
func (w *Webhook) TLS(config *tls.Config) {
	config.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.authority == nil {
			return nil, errors.New("the webhook has no certificate yet")
		}
		if w.leaf == nil || w.now().After(w.leaf.Leaf.NotAfter.Add(-leafLife/3)) {
			leaf, err := w.authority.leaf(w.hosts(), w.now())
			if err != nil {
				return nil, err
			}
			w.leaf = leaf
		}
		return w.leaf, nil
	}
}

// hosts are the names that the API server calls the webhook by.
func (w *Webhook) hosts() []string {
	if u, err := url.Parse(w.url); err == nil && u.Hostname() != "" {
		return []string{u.Hostname()}
	}
	return []string{serviceName + "." + w.namespace + ".svc"}
}
