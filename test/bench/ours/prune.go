// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ashlar-go/ashlar/ownership"
	"github.com/ashlar-go/ashlar/ownership/apply"
	"github.com/ashlar-go/ashlar/test/bench/load"
	"github.com/ashlar-go/ashlar/test/bench/side"
)

const pruneFinalizer = "example.com/database"

var pruneBenches = []side.Bench{
	{Name: "ownership.prune_native", Prepare: func() (side.Work, error) { return ownershipPrune(ownership.Native) }},
	{Name: "ownership.prune_label", Prepare: func() (side.Work, error) { return ownershipPrune(ownership.Label) }},
	{Name: "ownership.prune_applyset", Prepare: func() (side.Work, error) { return ownershipPrune(ownership.ApplySet) }},
}

// ownershipPrune drops all members but one, each time in a process that remembers nothing. Writes of the owner are
// counted apart.
func ownershipPrune(carrier ownership.Carrier) (side.Work, error) {
	set, err := ownership.New("children", groupVersion().WithKind("Database"), []ownership.Kind{
		{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("ConfigMap"), Carrier: carrier},
	}, ownership.WithFinalizer(pruneFinalizer))
	if err != nil {
		return side.Work{}, err
	}
	parent := owner()
	parent.Finalizers = []string{pruneFinalizer}
	want := declared(load.Children + 1)
	k, err := kindOf()
	if err != nil {
		return side.Work{}, err
	}
	plan, err := set.Plan(parent, objects(want), nil, ownership.Policy{}, k)
	if err != nil {
		return side.Work{}, err
	}
	children, err := storedOf(plan)
	if err != nil {
		return side.Work{}, err
	}
	ctx := context.Background()
	s := serve(children)
	var ownerWrites atomic.Int64
	answer := s.Answer
	s.Answer = func(r *http.Request, body []byte) (int, []byte) {
		switch {
		case r.Method == http.MethodDelete:
			return http.StatusOK, []byte(`{"kind":"Status","apiVersion":"v1","status":"Success"}`)
		case r.Method == http.MethodPatch && strings.Contains(r.URL.Path, "/databases/"):
			ownerWrites.Add(1)
			u := &unstructured.Unstructured{}
			if err := json.Unmarshal(body, &u.Object); err != nil {
				return http.StatusBadRequest, []byte(err.Error())
			}
			u.SetResourceVersion("8")
			u.SetFinalizers(parent.Finalizers)
			reply, err := json.Marshal(u)
			if err != nil {
				return http.StatusInternalServerError, []byte(err.Error())
			}
			return http.StatusOK, reply
		}
		return answer(r, body)
	}
	live, err := clientOf(s)
	if err != nil {
		return side.Work{}, err
	}
	var c client.Client
	if err := cached(ctx, s, func(cl client.Client, _ client.FieldIndexer) error { c = cl; return nil }); err != nil {
		return side.Work{}, err
	}
	counts := func() map[string]int64 {
		m := s.Counts()
		m["owner_writes"] = ownerWrites.Load()
		m["member_requests"] = m["requests"] - m["owner_writes"]
		return m
	}
	return side.Work{Counts: counts, Do: func() error {
		a, err := apply.New(c, live, set)
		if err != nil {
			return err
		}
		res, err := a.Sync(ctx, parent, want[:1], ownership.Policy{})
		return errors.Join(err, pruned(res))
	}}, nil
}

// storedOf is what the server holds once a plan of creations was carried out.
func storedOf(plan ownership.Plan) (map[string]*corev1.ConfigMap, error) {
	out := make(map[string]*corev1.ConfigMap, len(plan.Decisions))
	for _, d := range plan.Decisions {
		cm, err := storedChild(d)
		if err != nil {
			return nil, err
		}
		out[cm.Name] = cm
	}
	return out, nil
}

// pruned guards the benchmark: one member is kept, all others are deleted.
func pruned(res apply.Result) error {
	n := 0
	for _, d := range res.Decisions {
		if d.Err != nil {
			return d.Err
		}
		if d.Verb == ownership.Prune {
			n++
		}
	}
	if n != load.Children || len(res.Decisions) != load.Children+1 {
		return fmt.Errorf("%d of %d decisions delete, want %d", n, len(res.Decisions), load.Children)
	}
	return nil
}
