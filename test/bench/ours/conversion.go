// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime/pkg/webhook/conversion"

	"github.com/ashlar-go/ashlar/conversion"
	"github.com/ashlar-go/ashlar/test/bench/load"
	"github.com/ashlar-go/ashlar/test/bench/side"
)

var conversionBenches = func() []side.Bench {
	one := load.Gadget(load.NewGadget, "orders", false, 0)
	rich := load.Gadget(load.NewGadget, "orders", true, 0)
	old := load.Gadget(load.OldGadget, "orders", false, 0)
	many := make([]string, load.Bulk)
	for i := range many {
		many[i] = load.Gadget(load.NewGadget, "orders-"+strconv.Itoa(i), false, load.BulkPad)
	}
	down, downStash, up := load.Review(load.OldGadget, one), load.Review(load.OldGadget, rich), load.Review(load.NewGadget, old)
	identity, bulk := load.Review("v1beta1", one), load.Review(load.OldGadget, many...)
	var out []side.Bench
	for name, make := range map[string]func() (http.Handler, error){"conversion": gadgetHandler, "ctrlconv": ctrlHandler, "echo": echoHandler} {
		out = append(out,
			side.Bench{Name: name + ".one_up", Prepare: reviewing(make, up, 1)},
			side.Bench{Name: name + ".one_down", Prepare: reviewing(make, down, 1)},
			side.Bench{Name: name + ".one_down_stash", Prepare: reviewing(make, downStash, 1)},
			side.Bench{Name: name + ".bulk", Prepare: reviewing(make, bulk, load.Bulk)},
			side.Bench{Name: name + ".peak", Prepare: peak(reviewing(make, bulk, load.Bulk))},
			side.Bench{Name: name + ".e2e", Prepare: endToEnd(make, down)},
		)
	}
	return append(out,
		side.Bench{Name: "conversion.repeat", Prepare: reviewing(cachedHandler, down, 1)},
		side.Bench{Name: "conversion.identity", Prepare: reviewing(gadgetHandler, identity, 1)},
		side.Bench{Name: "conversion.stash", Prepare: stashBytes(rich)},
	)
}()

func gadgets(opts ...conversion.HandlerOption) (http.Handler, error) {
	b := conversion.New(schema.GroupKind{Group: "example.com", Kind: "Gadget"})
	conversion.Pair(b, load.OldGadget, load.NewGadget, gadgetUp, gadgetDown)
	b.Same(load.NewGadget, "v1beta1")
	c, err := b.Build()
	if err != nil {
		return nil, err
	}
	return conversion.Handler([]*conversion.Converter{c}, append(opts, conversion.WithMaxBytes(128<<20))...)
}

func gadgetHandler() (http.Handler, error) { return gadgets() }
func cachedHandler() (http.Handler, error) { return gadgets(conversion.WithCache(1 << 20)) }

func ctrlHandler() (http.Handler, error) {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypeWithName(schema.GroupVersionKind{Group: "example.com", Version: load.OldGadget, Kind: "Gadget"}, &oldGadget{})
	scheme.AddKnownTypeWithName(schema.GroupVersionKind{Group: "example.com", Version: load.NewGadget, Kind: "Gadget"}, &newGadget{})
	converter, err := ctrl.NewHubSpokeConverter(&newGadget{}, ctrl.NewSpokeConverter(&oldGadget{}, gadgetDown, gadgetUp))(scheme)
	if err != nil {
		return nil, err
	}
	registry := ctrl.NewRegistry()
	if err := registry.RegisterConverter(schema.GroupKind{Group: "example.com", Kind: "Gadget"}, converter); err != nil {
		return nil, err
	}
	return ctrl.NewWebhookHandler(scheme, registry), nil
}

// echoHandler reads the review as cheaply as encoding/json can, and swaps apiVersion: what any handler pays.
func echoHandler() (http.Handler, error) {
	type review struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Request    *struct {
			UID     string            `json:"uid"`
			Desired string            `json:"desiredAPIVersion"`
			Objects []json.RawMessage `json:"objects"`
		} `json:"request,omitempty"`
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		var v review
		if err := json.Unmarshal(body, &v); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		out := make([]byte, 0, len(body)+128)
		out = fmt.Appendf(out, `{"apiVersion":%q,"kind":%q,"response":{"uid":%q,"result":{"status":"Success"},"convertedObjects":[`, v.APIVersion, v.Kind, v.Request.UID)
		for i, o := range v.Request.Objects {
			if i > 0 {
				out = append(out, ',')
			}
			end := bytes.IndexByte(o, ',')
			out = fmt.Appendf(out, `{"apiVersion":%q`, v.Request.Desired)
			out = append(out, o[end:]...)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(append(out, "]}}"...)) // the client notices
	}), nil
}

// recorder keeps the answer in memory that is used again: a handler is measured, not a recorder.
type recorder struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

func (r *recorder) Header() http.Header         { return r.header }
func (r *recorder) WriteHeader(code int)        { r.code = code }
func (r *recorder) Write(b []byte) (int, error) { return r.body.Write(b) }

// success holds an answer against what it must be.
func success(code int, body []byte, objects int) error {
	var v struct {
		Response struct {
			Result struct{ Status, Message string }
			Got    []json.RawMessage `json:"convertedObjects"`
		}
	}
	if err := json.Unmarshal(body, &v); err != nil || code != http.StatusOK {
		return fmt.Errorf("answer %d: %w", code, err)
	}
	if v.Response.Result.Status != "Success" || len(v.Response.Got) != objects {
		return fmt.Errorf("answer %s %s with %d objects", v.Response.Result.Status, v.Response.Result.Message, len(v.Response.Got))
	}
	return nil
}

// reviewing is a review in process.
func reviewing(make func() (http.Handler, error), body []byte, objects int) func() (side.Work, error) {
	return func() (side.Work, error) {
		h, err := make()
		if err != nil {
			return side.Work{}, err
		}
		w := &recorder{header: http.Header{}}
		reader := bytes.NewReader(body)
		do := func() error {
			reader.Reset(body)
			r, err := http.NewRequest(http.MethodPost, "/convert?timeout=30s", io.NopCloser(reader))
			if err != nil {
				return err
			}
			r.ContentLength = int64(len(body))
			r.Header.Set("Content-Type", "application/json")
			w.body.Reset()
			w.code = http.StatusOK
			h.ServeHTTP(w, r)
			if w.code != http.StatusOK || bytes.Contains(w.body.Bytes()[:min(w.body.Len(), 300)], []byte("Failure")) {
				return errors.New(w.body.String())
			}
			return nil
		}
		if err := do(); err != nil {
			return side.Work{}, err
		}
		return side.Work{Do: do}, success(w.code, w.body.Bytes(), objects)
	}
}

// peak counts the bytes of the heap beyond what was there before, at their most during an operation.
func peak(prepare func() (side.Work, error)) func() (side.Work, error) {
	return func() (side.Work, error) {
		w, err := prepare()
		if err != nil {
			return w, err
		}
		heap := func() int64 {
			s := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
			metrics.Read(s)
			return int64(s[0].Value.Uint64())
		}
		var total int64
		return side.Work{Counts: func() map[string]int64 { return map[string]int64{"peak": total} }, Do: func() error {
			debug.FreeOSMemory()
			before := heap()
			done, most := make(chan struct{}), make(chan int64)
			go func() {
				top := before
				for tick := time.NewTicker(time.Millisecond); ; {
					select {
					case <-tick.C:
						top = max(top, heap())
					case <-done:
						tick.Stop()
						most <- top
						return
					}
				}
			}()
			err := w.Do()
			close(done)
			total += <-most - before
			return err
		}}, nil
	}
}

// endToEnd is a review over loopback TLS and HTTP/1.1, on one connection that is kept.
func endToEnd(make func() (http.Handler, error), body []byte) func() (side.Work, error) {
	return func() (side.Work, error) {
		h, err := make()
		if err != nil {
			return side.Work{}, err
		}
		s := httptest.NewTLSServer(h)
		c := s.Client()
		do := func() error {
			r, err := c.Post(s.URL+"/convert?timeout=30s", "application/json", bytes.NewReader(body))
			if err != nil {
				return err
			}
			defer r.Body.Close()
			out, err := io.ReadAll(r.Body)
			if err == nil && (r.StatusCode != http.StatusOK || !bytes.Contains(out, []byte("Success"))) {
				err = errors.New(string(out))
			}
			return err
		}
		return side.Median(side.Work{Do: do}), do()
	}
}

// stashBytes counts the bytes of the annotation.
func stashBytes(obj string) func() (side.Work, error) {
	return func() (side.Work, error) {
		h, err := gadgetHandler()
		if err != nil {
			return side.Work{}, err
		}
		var total int64
		do := func() error {
			w := httptest.NewRecorder()
			r := httptest.NewRequest(http.MethodPost, "/convert", bytes.NewReader(load.Review(load.OldGadget, obj)))
			r.Header.Set("Content-Type", "application/json")
			h.ServeHTTP(w, r)
			var v struct {
				Response struct {
					Got []struct {
						Metadata struct{ Annotations map[string]string }
					} `json:"convertedObjects"`
				}
			}
			if err := json.Unmarshal(w.Body.Bytes(), &v); err != nil {
				return err
			}
			kept := v.Response.Got[0].Metadata.Annotations[conversion.Annotation]
			if !strings.Contains(kept, "sunday") {
				return fmt.Errorf("nothing was kept: %s", w.Body)
			}
			total += int64(len(kept))
			return nil
		}
		return side.Work{Do: do, Counts: func() map[string]int64 { return map[string]int64{"stash": total} }}, nil
	}
}
