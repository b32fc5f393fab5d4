// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/ashlar-go/ashlar/ownership"
	"github.com/ashlar-go/ashlar/ownership/apply"
	"github.com/ashlar-go/ashlar/test/bench/canned"
	"github.com/ashlar-go/ashlar/test/bench/load"
	"github.com/ashlar-go/ashlar/test/bench/side"
)

var ownershipBenches = []side.Bench{
	{Name: "ownership.noop", Prepare: ownershipNoOp},
	{Name: "ownership.adopt", Prepare: ownershipAdopt},
	{Name: "ownership.plan_few", Prepare: func() (side.Work, error) { return ownershipPlan(load.Few) }},
	{Name: "ownership.plan_many", Prepare: func() (side.Work, error) { return ownershipPlan(load.Many) }},
	{Name: "controllerutil.createorupdate", Prepare: createOrUpdate},
}

func childSet() (*ownership.Set, error) {
	return ownership.New("children", groupVersion().WithKind("Database"), []ownership.Kind{
		{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("ConfigMap")},
	})
}

func owner() *Database {
	return &Database{
		TypeMeta: metav1.TypeMeta{APIVersion: groupVersion().String(), Kind: "Database"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: load.OwnerNamespace, Name: load.OwnerName, UID: load.OwnerUID, ResourceVersion: "7", Generation: load.Generation,
		},
	}
}

func pairs(list [][2]string) map[string]string {
	m := make(map[string]string, len(list))
	for _, p := range list {
		m[p[0]] = p[1]
	}
	return m
}

func declared(n int) []client.Object {
	var out []client.Object
	for _, c := range load.ChildrenOf(n) {
		out = append(out, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: load.OwnerNamespace, Name: c.Name, Labels: pairs(c.Labels)},
			Data:       pairs(c.Data),
		})
	}
	return out
}

func objects(list []client.Object) []ownership.Object {
	out := make([]ownership.Object, len(list))
	for i := range list {
		out[i] = list[i]
	}
	return out
}

func kindOf() (ownership.PlanOption, error) {
	s, err := newScheme()
	if err != nil {
		return nil, err
	}
	return ownership.KindOf(func(o ownership.Object) (schema.GroupVersionKind, error) {
		kinds, _, err := s.ObjectKinds(o)
		if err != nil {
			return schema.GroupVersionKind{}, err
		}
		return kinds[0], nil
	}), nil
}

// stored are the children as a server returns them after they were created, by name: a ConfigMap has no defaults, so
// the server keeps what is sent.
func stored(s *ownership.Set, n int) (map[string]*corev1.ConfigMap, error) {
	k, err := kindOf()
	if err != nil {
		return nil, err
	}
	plan, err := s.Plan(owner(), objects(declared(n)), nil, ownership.Policy{}, k)
	if err != nil {
		return nil, err
	}
	return storedOf(plan)
}

// storedChild is the object that a creation leaves on the server.
func storedChild(d ownership.Decision) (*corev1.ConfigMap, error) {
	u, ok := d.Object.(*unstructured.Unstructured)
	if !ok || d.Verb != ownership.Create {
		return nil, fmt.Errorf("%v: want the creation of a document", d)
	}
	cm := &corev1.ConfigMap{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, cm); err != nil {
		return nil, err
	}
	cm.UID, cm.ResourceVersion = types.UID("uid-of-"+cm.Name), "7"
	return cm, nil
}

// orphans are the children as somebody else has created them.
func orphans(n int) map[string]*corev1.ConfigMap {
	out := make(map[string]*corev1.ConfigMap, n)
	for _, o := range declared(n) {
		cm := o.(*corev1.ConfigMap)
		cm.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}
		cm.UID, cm.ResourceVersion = types.UID("uid-of-"+cm.Name), "7"
		out[cm.Name] = cm
	}
	return out
}

const mapsPath = "/api/v1/namespaces/" + load.OwnerNamespace + "/configmaps/"

// serve answers for the owner, the children and the applies of children, which it stores nowhere.
func serve(children map[string]*corev1.ConfigMap) *canned.Server {
	return &canned.Server{Answer: func(r *http.Request, body []byte) (int, []byte) {
		var reply any
		switch name, isMap := strings.CutPrefix(r.URL.Path, mapsPath); {
		case r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/configmaps"):
			return http.StatusOK, listOrWatch(r, children)
		case r.Method == http.MethodGet && isMap && children[name] != nil:
			reply = children[name]
		case r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/databases/"+load.OwnerName):
			reply = owner()
		case r.Method == http.MethodPatch && isMap:
			u := &unstructured.Unstructured{}
			if err := json.Unmarshal(body, &u.Object); err != nil {
				return http.StatusBadRequest, []byte(err.Error())
			}
			u.SetUID(types.UID("uid-of-" + name))
			u.SetResourceVersion("8")
			reply = u
		default:
			return 0, nil
		}
		data, err := json.Marshal(reply)
		if err != nil {
			return http.StatusInternalServerError, []byte(err.Error())
		}
		return http.StatusOK, data
	}}
}

// listOrWatch is the list, or the same as the start of a watch, up to the bookmark that ends it.
func listOrWatch(r *http.Request, children map[string]*corev1.ConfigMap) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	if !canned.IsWatch(r) {
		list := &corev1.ConfigMapList{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMapList"}, ListMeta: metav1.ListMeta{ResourceVersion: "7"},
		}
		for _, c := range children {
			list.Items = append(list.Items, *c)
		}
		_ = e.Encode(list) // into memory, of a type that marshals
		return b.Bytes()
	}
	if r.URL.Query().Get("sendInitialEvents") != "true" {
		return nil
	}
	for _, c := range children {
		_ = e.Encode(map[string]any{"type": "ADDED", "object": c})
	}
	_ = e.Encode(map[string]any{"type": "BOOKMARK", "object": &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{ResourceVersion: "7", Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}},
	}})
	return b.Bytes()
}

// cached is a client that reads from a real informer cache, which strips managedFields, and writes to the server. Index
// is called before the cache starts.
func cached(ctx context.Context, s *canned.Server, index func(client.Client, client.FieldIndexer) error) error {
	scheme, err := newScheme()
	if err != nil {
		return err
	}
	config, h := &rest.Config{Host: "https://server", QPS: -1}, &http.Client{Transport: s}
	informers, err := cache.New(config, cache.Options{
		HTTPClient: h, Scheme: scheme, Mapper: newMapper(), DefaultTransform: cache.TransformStripManagedFields(),
	})
	if err != nil {
		return err
	}
	c, err := client.New(config, client.Options{
		HTTPClient: h, Scheme: scheme, Mapper: newMapper(), Cache: &client.CacheOptions{Reader: informers},
	})
	if err != nil {
		return err
	}
	if err := index(c, informers); err != nil {
		return err
	}
	go func() { _ = informers.Start(ctx) }() // for as long as the process lives
	if _, err := informers.GetInformer(ctx, &corev1.ConfigMap{}); err != nil {
		return err
	}
	if !informers.WaitForCacheSync(ctx) {
		return errors.New("cache did not fill")
	}
	return nil
}

func applierOver(ctx context.Context, s *canned.Server, set *ownership.Set) (*apply.Applier, error) {
	live, err := clientOf(s)
	if err != nil {
		return nil, err
	}
	var a *apply.Applier
	return a, cached(ctx, s, func(c client.Client, i client.FieldIndexer) error {
		if a, err = apply.New(c, live, set); err != nil {
			return err
		}
		return a.Index(ctx, i)
	})
}

func ownershipNoOp() (side.Work, error) {
	set, err := childSet()
	if err != nil {
		return side.Work{}, err
	}
	children, err := stored(set, load.Children)
	if err != nil {
		return side.Work{}, err
	}
	ctx := context.Background()
	s := serve(children)
	a, err := applierOver(ctx, s, set)
	if err != nil {
		return side.Work{}, err
	}
	o, want := owner(), declared(load.Children)
	return side.Work{Counts: s.Counts, Do: func() error {
		res, err := a.Sync(ctx, o, want, ownership.Policy{})
		return errors.Join(err, all(res, ownership.Keep, load.Children))
	}}, nil
}

// all guards the benchmarks: every child was decided on, and alike.
func all(res apply.Result, verb ownership.Verb, n int) error {
	if len(res.Decisions) != n {
		return fmt.Errorf("%d decisions, want %d", len(res.Decisions), n)
	}
	for _, d := range res.Decisions {
		if d.Verb != verb || d.Err != nil {
			return fmt.Errorf("%v, %w, want %v", d, d.Err, verb)
		}
	}
	return nil
}

// ownershipAdopt makes a new applier for every operation: the one before remembers what it has adopted.
func ownershipAdopt() (side.Work, error) {
	set, err := childSet()
	if err != nil {
		return side.Work{}, err
	}
	ctx := context.Background()
	s := serve(orphans(load.Children))
	live, err := clientOf(s)
	if err != nil {
		return side.Work{}, err
	}
	var c client.Client
	if err := cached(ctx, s, func(cl client.Client, _ client.FieldIndexer) error { c = cl; return nil }); err != nil {
		return side.Work{}, err
	}
	o, want := owner(), declared(load.Children)
	return side.Work{Counts: s.Counts, Do: func() error {
		a, err := apply.New(c, live, set)
		if err != nil {
			return err
		}
		res, err := a.Sync(ctx, o, want, ownership.Policy{Adopt: true})
		return errors.Join(err, all(res, ownership.Adopt, load.Children))
	}}, nil
}

// ownershipPlan plans over n children that are as declared, in a process that remembers nothing.
func ownershipPlan(n int) (side.Work, error) {
	set, err := childSet()
	if err != nil {
		return side.Work{}, err
	}
	children, err := stored(set, n)
	if err != nil {
		return side.Work{}, err
	}
	k, err := kindOf()
	if err != nil {
		return side.Work{}, err
	}
	o, want := owner(), objects(declared(n))
	live := make([]ownership.Object, 0, n)
	for _, w := range want {
		live = append(live, children[w.GetName()])
	}
	return side.Work{Do: func() error {
		plan, err := set.Plan(o, want, live, ownership.Policy{}, k)
		if err == nil && (!plan.Empty() || len(plan.Decisions) != n) {
			err = fmt.Errorf("plan of %d decisions is not empty", len(plan.Decisions))
		}
		return err
	}}, nil
}

// createOrUpdate is the usual loop over children, with mutate functions that leave defaults of the server alone.
func createOrUpdate() (side.Work, error) {
	set, err := childSet()
	if err != nil {
		return side.Work{}, err
	}
	children, err := stored(set, load.Children)
	if err != nil {
		return side.Work{}, err
	}
	ctx := context.Background()
	s := serve(children)
	var c client.Client
	if err := cached(ctx, s, func(cl client.Client, _ client.FieldIndexer) error { c = cl; return nil }); err != nil {
		return side.Work{}, err
	}
	o, want := owner(), declared(load.Children)
	return side.Work{Counts: s.Counts, Do: func() error {
		for _, w := range want {
			w := w.(*corev1.ConfigMap)
			cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: w.Name}}
			did, err := controllerutil.CreateOrUpdate(ctx, c, cm, func() error {
				for k, v := range w.Labels {
					metav1.SetMetaDataLabel(&cm.ObjectMeta, k, v)
				}
				for k, v := range w.Data {
					if cm.Data == nil {
						cm.Data = map[string]string{}
					}
					cm.Data[k] = v
				}
				return controllerutil.SetControllerReference(o, cm, c.Scheme())
			})
			if err != nil {
				return err
			}
			if did != controllerutil.OperationResultNone {
				return fmt.Errorf("%s of %s, want nothing", did, cm.Name)
			}
		}
		return nil
	}}, nil
}
