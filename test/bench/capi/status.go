// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/patch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ashlar-go/ashlar/test/bench/canned"
	"github.com/ashlar-go/ashlar/test/bench/load"
	"github.com/ashlar-go/ashlar/test/bench/side"
)

var statusBenches = []side.Bench{
	{Name: "patch.noop", Prepare: patchNoOp},
	{Name: "patch.change", Prepare: patchChange},
	{Name: "patch.conditions", Prepare: patchConditions},
}

// cachedClient reads from memory, as a manager's client does, and writes to the canned server.
type cachedClient struct {
	client.Client
	cached *Database
}

// Get hands out a deep copy, as a cache does.
func (c *cachedClient) Get(_ context.Context, _ client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	d, ok := obj.(*Database)
	if !ok {
		return fmt.Errorf("get %T: not a Database", obj)
	}
	*d = *c.cached.DeepCopyObject().(*Database)
	return nil
}

func clientOf(s *canned.Server) (*cachedClient, error) {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(groupVersion(), &Database{})
	metav1.AddToGroupVersion(scheme, groupVersion())
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(groupVersion().WithKind("Database"), meta.RESTScopeNamespace)
	c, err := client.New(&rest.Config{Host: "https://server", QPS: -1}, client.Options{
		HTTPClient: &http.Client{Transport: s}, Scheme: scheme, Mapper: mapper,
	})
	return &cachedClient{Client: c}, err
}

// databaseAt is the object as a cache that strips managedFields holds it.
func databaseAt(s load.State, version, generation int64) (*Database, error) {
	d := &Database{}
	if err := json.Unmarshal(s.Reply(version, generation), d); err != nil {
		return nil, fmt.Errorf("read reply: %w", err)
	}
	d.ManagedFields = nil
	return d, nil
}

// move lets a cached object look as after the write of its state, followed by a change of its spec.
func move(d *Database, version, generation, observed int64) {
	d.ResourceVersion = strconv.FormatInt(version, 10)
	d.Generation = generation
	d.Status.ObservedGeneration = observed
	for i := range d.Status.Conditions {
		d.Status.Conditions[i].ObservedGeneration = observed
	}
}

func owned() patch.WithOwnedConditions {
	var o patch.WithOwnedConditions
	for _, c := range load.State(0).Conditions() {
		o.Conditions = append(o.Conditions, c.Type)
	}
	return o
}

// patchNoOp is a reconcile that changes nothing between making the helper and calling it.
func patchNoOp() (side.Work, error) {
	s := &canned.Server{Answer: func(*http.Request, []byte) (int, []byte) { return 0, nil }}
	c, err := clientOf(s)
	if err != nil {
		return side.Work{}, err
	}
	live, err := databaseAt(0, 1, load.Generation)
	if err != nil {
		return side.Work{}, err
	}
	o := owned()
	ctx := context.Background()
	return side.Work{Counts: s.Counts, Do: func() error {
		h, err := patch.NewHelper(live, c)
		if err != nil {
			return err
		}
		return h.Patch(ctx, live, o)
	}}, nil
}

// patchChange writes one condition, one payload field and the generation. It begins with the one deep copy a cached read
// costs.
func patchChange() (side.Work, error) {
	var to load.State
	version, generation := int64(10), int64(load.Generation)
	writes := 0
	s := &canned.Server{Answer: func(*http.Request, []byte) (int, []byte) {
		writes++
		return http.StatusOK, to.Reply(version+1, generation)
	}}
	c, err := clientOf(s)
	if err != nil {
		return side.Work{}, err
	}
	var cached [2]*Database
	want := [2][]metav1.Condition{conditionsOf(load.State(0).Conditions()), conditionsOf(load.State(1).Conditions())}
	for i := range cached {
		if cached[i], err = databaseAt(load.State(i), 1, 1); err != nil {
			return side.Work{}, err
		}
	}
	o := owned()
	ctx := context.Background()
	return side.Work{Counts: s.Counts, Do: func() error {
		from := to
		to, version, generation = 1-to, version+2, generation+1
		move(cached[from], version, generation, generation-1)
		c.cached = cached[from]
		live := cached[from].DeepCopyObject().(*Database)
		before := writes

		h, err := patch.NewHelper(live, c)
		if err != nil {
			return err
		}
		for _, cond := range want[to] {
			conditions.Set(live, cond)
		}
		ready := to.Ready()
		live.Status.ReadyReplicas = &ready
		if err := h.Patch(ctx, live, o, patch.WithStatusObservedGeneration{}); err != nil {
			return err
		}
		if writes == before {
			return errors.New("nothing was written")
		}
		return nil
	}}, nil
}

// patchConditions writes one condition and nothing else.
func patchConditions() (side.Work, error) {
	var to load.State
	version := int64(10)
	writes := 0
	s := &canned.Server{Answer: func(*http.Request, []byte) (int, []byte) {
		writes++
		return http.StatusOK, to.Reply(version+1, load.Generation)
	}}
	c, err := clientOf(s)
	if err != nil {
		return side.Work{}, err
	}
	o := owned()
	ctx := context.Background()
	return side.Work{Counts: s.Counts, Do: func() error {
		from, before := to, writes
		to, version = 2-to, version+2
		live, err := databaseAt(from, version, load.Generation)
		if err != nil {
			return err
		}
		c.cached = live.DeepCopyObject().(*Database)

		h, err := patch.NewHelper(live, c)
		if err != nil {
			return err
		}
		for _, cond := range conditionsOf(to.Conditions()) {
			conditions.Set(live, cond)
		}
		if err := h.Patch(ctx, live, o, patch.WithStatusObservedGeneration{}); err != nil {
			return err
		}
		if writes != before+1 {
			return fmt.Errorf("%d writes for one condition", writes-before)
		}
		return nil
	}}, nil
}
