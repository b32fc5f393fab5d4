// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"

	"github.com/ashlar-go/ashlar/conversion"
	"github.com/ashlar-go/ashlar/test/bench/side"
	"github.com/ashlar-go/ashlar/test/controlplane"
)

var conversionBenches = []side.Bench{
	{Name: "conversion.fill2000", Prepare: func() (side.Work, error) { return fill(ours) }},
	{Name: "echo.fill2000", Prepare: func() (side.Work, error) { return fill(echo) }},
}

const (
	filled = 2000 // objects of a kind
	// Every operation fills the cache of a kind nobody has read yet: the first warms up, the second is measured. A fill
	// lasts longer than a sample does, so that nobody asks for a third.
	filledKinds = 2
)

// filler is an API server with kinds whose objects are stored at one version and whose caches are empty.
type filler struct {
	plane   *controlplane.ControlPlane
	http    *http.Client
	webhook *httptest.Server
	reviews atomic.Int64
	next    int
}

// fill prepares everything but the caches. The operation is the first read of a kind at the version it is not stored in:
// the server converts all objects, up to ten at a time, before it answers.
func fill(handler func() (http.Handler, error)) (_ side.Work, err error) {
	ctx, cancel := context.WithCancel(context.Background())
	f := &filler{}
	done := func() error {
		cancel()
		if f.webhook != nil {
			f.webhook.Close()
		}
		if f.plane == nil {
			return nil
		}
		return f.plane.Stop()
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, done())
		}
	}()
	h, err := handler()
	if err != nil {
		return side.Work{}, err
	}
	f.webhook = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.reviews.Add(1)
		h.ServeHTTP(w, r)
	}))
	f.plane, err = controlplane.Start(ctx, controlplane.WithoutAudit(),
		controlplane.Without(controlplane.ControllerManager, controlplane.Scheduler, controlplane.Kwok))
	if err != nil {
		return side.Work{}, err
	}
	config := f.plane.Config()
	config.QPS = -1
	if f.http, err = rest.HTTPClientFor(config); err != nil {
		return side.Work{}, err
	}
	for i := range filledKinds {
		if err := f.populate(ctx, i); err != nil {
			return side.Work{}, err
		}
	}
	for i := range filledKinds {
		// A changed definition empties the caches, and the next request makes new ones.
		if err := f.define(ctx, i, "changed"); err != nil {
			return side.Work{}, err
		}
	}
	time.Sleep(5 * time.Second) // until the server has seen it
	return side.Work{Close: done, Do: func() error { return f.read(ctx) }}, nil
}

func (f *filler) do(ctx context.Context, method, path, contentType string, body []byte) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, f.plane.Config().Host+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", contentType)
	answer, err := f.http.Do(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	out, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode > 299 {
		err = fmt.Errorf("%s %s: %d %.300s", method, path, answer.StatusCode, out)
	}
	return out, err
}

// until tries again for a while.
func until(ctx context.Context, try func() error) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// define applies the definition of a kind.
func (f *filler) define(ctx context.Context, i int, description string) error {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: f.webhook.Certificate().Raw})
	raw, err := json.Marshal(crateCRD(i, f.webhook.URL+"/convert", ca, description))
	if err != nil {
		return err
	}
	_, err = f.do(ctx, http.MethodPatch, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/"+cratePlural(i)+"."+crateGroup+"?fieldManager=bench&force=true", "application/apply-patch+yaml", raw)
	return err
}

// populate makes a kind and its objects.
func (f *filler) populate(ctx context.Context, i int) error {
	if err := f.define(ctx, i, "first"); err != nil {
		return err
	}
	path := cratePath(i, "v1alpha1")
	if err := until(ctx, func() error { _, err := f.do(ctx, http.MethodGet, path, "", nil); return err }); err != nil {
		return err
	}
	const workers = 8
	errs := make(chan error, workers)
	for worker := range workers {
		go func() {
			var err error
			for k := worker; k < filled && err == nil; k += workers {
				_, err = f.do(ctx, http.MethodPost, path, "application/json", crate(i, k))
			}
			errs <- err
		}()
	}
	var err error
	for range workers {
		err = errors.Join(err, <-errs)
	}
	return err
}

// read fills the cache of the next kind.
func (f *filler) read(ctx context.Context) error {
	if f.next == filledKinds {
		return errors.New("every cache is filled: this benchmark has no more operations")
	}
	path := cratePath(f.next, "v1") + "?resourceVersion=0"
	f.next++
	before := f.reviews.Load()
	var list struct{ Items []json.RawMessage }
	err := until(ctx, func() error {
		raw, err := f.do(ctx, http.MethodGet, path, "", nil)
		if err != nil {
			return err
		}
		return json.Unmarshal(raw, &list)
	})
	switch n := f.reviews.Load() - before; {
	case err != nil:
		return err
	case len(list.Items) != filled:
		return fmt.Errorf("%d objects of %d", len(list.Items), filled)
	case n < filled:
		return fmt.Errorf("%d reviews for %d objects: the cache was not cold", n, filled)
	}
	return nil
}

func ours() (http.Handler, error) {
	var cs []*conversion.Converter
	for i := range filledKinds {
		c, err := crateConverter(i)
		if err != nil {
			return nil, err
		}
		cs = append(cs, c)
	}
	return conversion.Handler(cs)
}

// echo is the least a webhook can do: it changes apiVersion.
func echo() (http.Handler, error) {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var v struct {
			Request struct {
				UID     string            `json:"uid"`
				Desired string            `json:"desiredAPIVersion"`
				Objects []json.RawMessage `json:"objects"`
			} `json:"request"`
		}
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = json.Unmarshal(body, &v)
		}
		if err != nil || len(v.Request.Objects) != 1 {
			http.Error(w, "not one object", http.StatusBadRequest)
			return
		}
		// The API server writes members in order, and apiVersion comes first.
		_, rest, _ := strings.Cut(string(v.Request.Objects[0]), ",")
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","response":{"uid":%q,"result":{"status":"Success"},"convertedObjects":[{"apiVersion":%q,%s]}}`,
			v.Request.UID, v.Request.Desired, rest)
	}), nil
}
