// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/ashlar-go/ashlar/examples/database/internal/convert"
)

// conversions is the webhook of this process; nil when it serves none.
type conversions struct{ *convert.Webhook }

func conversionWebhook(cfg *rest.Config, scheme *runtime.Scheme, f flags, log logr.Logger) (conversions, webhook.Server, error) {
	if f.webhook == "0" || f.plan {
		return conversions{}, nil, nil
	}
	host, text, err := net.SplitHostPort(f.webhook)
	if err != nil {
		return conversions{}, nil, fmt.Errorf("--webhook-bind-address: %w", err)
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return conversions{}, nil, fmt.Errorf("--webhook-bind-address: the port %q is no number", text)
	}
	c, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		return conversions{}, nil, err
	}
	w, err := convert.NewWebhook(c, f.webhookNamespace, f.webhookURL, log)
	if err != nil {
		return conversions{}, nil, err
	}
	server := webhook.NewServer(webhook.Options{Host: host, Port: port, TLSOpts: []func(*tls.Config){w.TLS}})
	return conversions{w}, server, nil
}

// ready adds what has to be true before the process counts as ready. With a
// webhook that is the webhook alone: a cache that waits for conversions would
// never fill if conversions waited for the cache.
func (c conversions) ready(ctx context.Context, mgr manager.Manager) error {
	if c.Webhook != nil {
		return errors.Join(c.Publish(ctx), c.Register(mgr))
	}
	return mgr.AddReadyzCheck("cache", func(req *http.Request) error {
		if !mgr.GetCache().WaitForCacheSync(req.Context()) {
			return errors.New("the cache has not synced")
		}
		return nil
	})
}

// podNamespace is where this pod runs; empty outside of one.
func podNamespace() string {
	raw, err := os.ReadFile("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(raw))
}
