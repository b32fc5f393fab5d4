// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ashlar-go/ashlar/conversion"
	"github.com/ashlar-go/ashlar/conversion/conversiontest"
)

var (
	conversionWalks = flag.Int("conversion.walks", 0, "random walks on every of six definitions; 0: 20, or 334 with SOAK=1")
	conversionSeed  = flag.Uint64("conversion.seed", 1, "where their randomness begins")
)

// gadgetServer is a conversiontest.Applier.
var _ conversiontest.Applier = (*gadgetServer)(nil)

func (g *gadgetServer) Create(ctx context.Context, version string, obj []byte) error {
	_, err := g.do(ctx, http.MethodPost, version, "", "", g.mine(obj))
	return err
}

func (g *gadgetServer) Get(ctx context.Context, version, name string) ([]byte, error) {
	return g.do(ctx, http.MethodGet, version, name, "", nil)
}

func (g *gadgetServer) Update(ctx context.Context, version string, obj []byte) error {
	_, err := g.do(ctx, http.MethodPut, version, nameOf(obj), "", g.mine(obj))
	return err
}

func (g *gadgetServer) Patch(ctx context.Context, version, name string, patch []byte) error {
	_, err := g.do(ctx, http.MethodPatch, version, name, "application/merge-patch+json", patch)
	return err
}

func (g *gadgetServer) Apply(ctx context.Context, version, manager string, obj []byte) error {
	_, err := g.do(ctx, http.MethodPatch, version, nameOf(obj)+"?force=true&fieldManager="+manager, "application/apply-patch+yaml", g.mine(obj))
	if err != nil && strings.Contains(err.Error(), ": 422 ") && strings.Contains(err.Error(), `: \"null\"`) {
		err = fmt.Errorf("%w: %w", conversiontest.ErrInvalid, err)
	}
	return err
}

func (g *gadgetServer) Delete(ctx context.Context, version, name string) error {
	_, err := g.do(ctx, http.MethodDelete, version, name, "", nil)
	return err
}

// Watch begins behind the object as it is.
func (g *gadgetServer) Watch(ctx context.Context, version, name string) (func() (conversiontest.Event, error), error) {
	raw, err := g.Get(ctx, version, name)
	if err != nil {
		return nil, err
	}
	url := fmt.Sprintf("%s?watch=true&fieldSelector=metadata.name%%3D%s&resourceVersion=%s", g.url(version), name, versionOf(string(raw)))
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	answer, err := g.http.Do(r)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		answer.Body.Close()
		return nil, fmt.Errorf("watch at %s: %s", version, answer.Status)
	}
	context.AfterFunc(ctx, func() { answer.Body.Close() })
	lines := json.NewDecoder(bufio.NewReader(answer.Body))
	return func() (conversiontest.Event, error) {
		var e struct {
			Type   string
			Object json.RawMessage
		}
		err := lines.Decode(&e)
		if err == nil && e.Type == "ERROR" {
			err = errors.New(string(e.Object))
		}
		return conversiontest.Event{Type: e.Type, Object: e.Object}, err
	}, nil
}

func (g *gadgetServer) url(version string) string {
	return cluster.Config().Host + "/apis/" + g.group + "/" + version + "/namespaces/" + g.namespace + "/gadgets"
}

func (g *gadgetServer) mine(obj []byte) []byte {
	var m metav1.PartialObjectMetadata
	if json.Unmarshal(obj, &m) != nil || m.Namespace == "" {
		return obj
	}
	return []byte(strings.Replace(string(obj), `"namespace":"`+m.Namespace+`"`, `"namespace":"`+g.namespace+`"`, 1))
}

func nameOf(obj []byte) string {
	var m metav1.PartialObjectMetadata
	_ = json.Unmarshal(obj, &m)
	return m.Name
}

// TestConversionWalks sends the walks of conversiontest through the real API server and through the emulator: the same
// generator, the same seed, and step by step the same objects at every version.
func TestConversionWalks(t *testing.T) {
	t.Parallel()
	count := *conversionWalks
	switch {
	case count == 0 && os.Getenv("SOAK") != "":
		count = 334
	case count == 0:
		count = 20
	}
	for n := 2; n <= 4; n++ {
		for _, storage := range []string{gadgetVersions[0], gadgetVersions[n-1]} {
			t.Run(fmt.Sprintf("%d versions, stored as %s", n, storage), func(t *testing.T) {
				t.Parallel()
				g := serveGadgets(t, fmt.Sprintf("walk%d%s.example.com", n, storage), n, storage)
				crd := gadgetCRD(g.group, n, storage, nil)
				h, err := conversion.Handler([]*conversion.Converter{g.converter})
				if err != nil {
					t.Fatal(err)
				}
				m, err := newManagers(h, crd)
				if err != nil {
					t.Fatal(err)
				}
				all, start := conversiontest.Steps{}, time.Now()
				walk := func(i int, api conversiontest.API) []string {
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					defer cancel()
					var trace []string
					steps, err := conversiontest.Walk(ctx, api, g.converter, crd, storage, fmt.Sprintf("w%d", i), uint64(i),
						conversiontest.WithSeed(*conversionSeed), conversiontest.WithTrace(func(line string) { trace = append(trace, line) }))
					if err != nil {
						t.Fatalf("%T: %v", api, err)
					}
					if api == conversiontest.API(g) {
						all.Add(steps)
					}
					return trace
				}
				again := 0
				for i := range count {
					real := walk(i, g)
					for k := range real {
						real[k] = strings.ReplaceAll(real[k], g.namespace, "default")
					}
					// Merging visits the versions of managers in the order of a Go map. Where that matters, one of the orders
					// must be the one the real server took.
					const orders = 50
					for try := 0; ; try++ {
						emulated := walk(i, applying{conversiontest.NewServer(h, g.group, storage), m})
						if slices.Equal(real, emulated) {
							break
						}
						if try == orders {
							k := 0
							for k < min(len(real), len(emulated)) && real[k] == emulated[k] {
								k++
							}
							t.Fatalf("walk %d differs from its emulation in line %d, %d times:\nreal     %q\nemulated %q", i, k, orders, real[k:], emulated[k:])
						}
						again++
					}
				}
				if count >= 300 {
					for _, v := range gadgetVersions[:n] {
						for _, kind := range []string{"create", "update", "patch", "apply", "watch", "delete"} {
							if all[kind+" at "+v] == 0 {
								t.Errorf("nobody did a %s at %s", kind, v)
							}
						}
					}
				}
				t.Logf("%d walks of seed %d, the same in the emulator (%d tries more), %d reviews, %.0f s: %v", count, *conversionSeed, again, g.reviews.Load(), time.Since(start).Seconds(), all)
			})
		}
	}
}

// What manages fields here is what does in the tests of conversiontest: a test cannot be imported, so there are two.
func TestConversionFieldsAreTheSame(t *testing.T) {
	t.Parallel()
	here, err := os.ReadFile("conversionfields_test.go")
	if err != nil {
		t.Fatal(err)
	}
	there, err := os.ReadFile("../../conversion/conversiontest/fields_test.go")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Replace(string(there), "package conversiontest_test", "package integration", 1) != string(here) {
		t.Error("conversionfields_test.go and conversiontest/fields_test.go differ")
	}
}
