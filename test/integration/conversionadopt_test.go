// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	ctrlconversion "sigs.k8s.io/controller-runtime/pkg/conversion"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	webhookconversion "sigs.k8s.io/controller-runtime/pkg/webhook/conversion"

	"github.com/ashlar-go/ashlar/conversion"
	"github.com/ashlar-go/ashlar/conversion/conversiontest"
)

// What a kind needs for controller-runtime's own conversion: copies, a hub, and methods.

func copied[T any](in *T) *T {
	raw, err := json.Marshal(in)
	out := new(T)
	if err == nil {
		err = json.Unmarshal(raw, out)
	}
	if err != nil {
		panic(err)
	}
	return out
}

func (g *GadgetA) DeepCopyObject() runtime.Object { return copied(g) }
func (g *GadgetB) DeepCopyObject() runtime.Object { return copied(g) }
func (g *GadgetB) Hub()                           {}

func (g *GadgetA) ConvertTo(hub ctrlconversion.Hub) error {
	return aToB(context.Background(), g, hub.(*GadgetB))
}

func (g *GadgetA) ConvertFrom(hub ctrlconversion.Hub) error {
	return bToA(context.Background(), hub.(*GadgetB), g)
}

// TestConversionAdopted takes what controller-runtime's users have, methods or spoke converters, and serves it where they
// do, on its webhook server or on net/http. The real API server converts by it, walk by walk.
func TestConversionAdopted(t *testing.T) {
	t.Parallel()
	adopt := map[string]func(*conversion.Builder){
		"methods": func(b *conversion.Builder) {
			conversion.FromConvertible[ctrlconversion.Hub, ctrlconversion.Convertible](b, &GadgetB{}, &GadgetA{})
		},
		"spokes": func(b *conversion.Builder) {
			conversion.FromSpokes(b, &GadgetB{}, webhookconversion.NewSpokeConverter(&GadgetA{},
				func(ctx context.Context, hub *GadgetB, spoke *GadgetA) error { return bToA(ctx, hub, spoke) },
				func(ctx context.Context, spoke *GadgetA, hub *GadgetB) error { return aToB(ctx, spoke, hub) }))
		},
	}
	serve := map[string]func(context.Context, net.Listener, http.Handler, tls.Certificate) error{
		"manager": func(ctx context.Context, l net.Listener, h http.Handler, cert tls.Certificate) error {
			host, port, err := net.SplitHostPort(l.Addr().String())
			if err != nil {
				return err
			}
			n, err := strconv.Atoi(port)
			if err != nil {
				return err
			}
			l.Close() // the server makes its own
			s := webhook.NewServer(webhook.Options{Host: host, Port: n, TLSOpts: []func(*tls.Config){func(c *tls.Config) {
				c.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &cert, nil }
			}}})
			s.Register("/convert", h)
			return s.Start(ctx)
		},
		"net-http": func(ctx context.Context, l net.Listener, h http.Handler, cert tls.Certificate) error {
			mux := http.NewServeMux()
			mux.Handle("/convert", h)
			return conversion.Serve(ctx, l, mux, &tls.Config{Certificates: []tls.Certificate{cert}})
		},
	}
	for from, adopt := range adopt {
		for on, serve := range serve {
			t.Run(from+" on "+on, func(t *testing.T) {
				t.Parallel()
				group := from + "." + on + ".example.com"
				scheme := runtime.NewScheme()
				scheme.AddKnownTypeWithName(gadgetKind(group).WithVersion("v1alpha1"), &GadgetA{})
				scheme.AddKnownTypeWithName(gadgetKind(group).WithVersion("v1beta1"), &GadgetB{})
				b := conversion.New(gadgetKind(group), conversion.WithScheme(scheme),
					conversion.WithListKeys("v1alpha1", "spec.rules", "name"), conversion.WithListKeys("v1beta1", "spec.rules", "name"))
				adopt(b)
				c, err := b.Build()
				if err != nil {
					t.Fatal(err)
				}
				h, err := conversion.Handler([]*conversion.Converter{c})
				if err != nil {
					t.Fatal(err)
				}
				cert, raw := certificate(t)
				l, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				served := make(chan error, 1)
				go func() { served <- serve(ctx, l, h, cert) }()
				g := &gadgetServer{group: group, namespace: namespace(t.Context(), t), converter: c}
				g.install(t, 2, "v1alpha1", "https://"+l.Addr().String()+"/convert", raw)
				crd := gadgetCRD(group, 2, "v1alpha1", nil)
				all := conversiontest.Steps{}
				for i := range 5 {
					steps, err := conversiontest.Walk(t.Context(), g, c, crd, "v1alpha1", fmt.Sprintf("w%d", i), uint64(i))
					if err != nil {
						t.Fatal(err)
					}
					all.Add(steps)
				}
				cancel()
				if err := <-served; err != nil {
					t.Errorf("the server ends with %v", err)
				}
				roots := x509.NewCertPool()
				roots.AddCert(cert.Leaf)
				after := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
				if answer, err := after.Post("https://"+l.Addr().String()+"/convert", "application/json", nil); err == nil {
					answer.Body.Close()
					t.Error("somebody answers after the end")
				}
				t.Logf("%v", all)
			})
		}
	}
}

// certificate is one for 127.0.0.1.
func certificate(t *testing.T) (tls.Certificate, []byte) {
	t.Helper()
	s := httptest.NewTLSServer(nil)
	defer s.Close()
	cert := s.TLS.Certificates[0]
	cert.Leaf = s.Certificate()
	return cert, s.Certificate().Raw
}
