// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"fmt"
	"slices"

	"github.com/ashlar-go/ashlar/ownership"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// read collects what a plan has to know: related objects of every declared kind, and whatever has a declared name.
// Nothing read here is ever changed, so the cache need not copy it.
func (a *Applier) read(ctx context.Context, owner client.Object, desired []client.Object) ([]ownership.Object, error) {
	var out []ownership.Object
	related := a.set.RelatedTo(owner)
	seen := make(map[place]bool, len(desired))
	for i, k := range a.kinds {
		add := func(o client.Object) {
			if !related(o) {
				return
			}
			if at := (place{i, o.GetNamespace(), o.GetName()}); !seen[at] {
				seen[at] = true
				out = append(out, o)
			}
		}
		for _, opts := range a.lists(owner, k) {
			if err := a.list(ctx, k.GroupVersionKind, add, opts...); err != nil {
				if meta.IsNoMatchError(err) {
					break // not served (any more): no object of the kind exists
				}
				return nil, fmt.Errorf("list %s of %s %s/%s: %w",
					k.GroupVersionKind.Kind, a.set.Owner().Kind, owner.GetNamespace(), owner.GetName(), err)
			}
		}
	}
	for _, d := range desired {
		gvk, err := a.kindOf(d)
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(a.kinds, func(k ownership.Kind) bool { return k.GroupVersionKind == gvk })
		at := place{i, d.GetNamespace(), d.GetName()}
		if i < 0 || seen[at] || at.name == "" {
			continue // not declared: the plan says so
		}
		ref := ownership.Ref{GroupVersionKind: gvk, Namespace: at.ns, Name: at.name}
		o, err := a.get(ctx, a.c, ref, client.UnsafeDisableDeepCopy)
		if err != nil {
			return nil, err
		}
		if o != nil {
			seen[at] = true
			out = append(out, o)
		}
	}
	return out, nil
}

// place is where an object is, cheaper to hash than a Ref.
type place struct {
	kind     int
	ns, name string
}

// lists are the cached lists that together show every related child of a kind.
func (a *Applier) lists(owner client.Object, k ownership.Kind) [][]client.ListOption {
	native, label := a.set.Carriers(k)
	ns := owner.GetNamespace()
	if a.indexed.Load() {
		uid := client.MatchingFields{IndexField(a.set): string(owner.GetUID())}
		lost := client.MatchingFields{IndexField(a.set): lostKey(ns, owner.GetName())}
		opts := [][]client.ListOption{{uid}}
		if native && owner.GetDeletionTimestamp() != nil {
			opts = append(opts, []client.ListOption{lost})
		}
		return opts
	}
	var opts [][]client.ListOption
	if native {
		if k.Cluster || ns == "" {
			opts = append(opts, nil)
			return opts // everything of the kind: the label list is a part of it
		}
		opts = append(opts, []client.ListOption{client.InNamespace(ns)})
	}
	if label {
		opts = append(opts, []client.ListOption{client.MatchingLabels{a.set.LabelKey(): string(owner.GetUID())}})
	}
	return opts
}

func (a *Applier) list(ctx context.Context, gvk schema.GroupVersionKind, each func(client.Object), opts ...client.ListOption) error {
	list, err := a.newList(gvk)
	if err != nil {
		return err
	}
	if err := a.c.List(ctx, list, append(opts[:len(opts):len(opts)], client.UnsafeDisableDeepCopy)...); err != nil {
		return err
	}
	return meta.EachListItem(list, func(o runtime.Object) error {
		if co, ok := o.(client.Object); ok {
			each(co)
		}
		return nil
	})
}

// get returns nil without an error for an object that does not exist.
func (a *Applier) get(ctx context.Context, r client.Reader, ref ownership.Ref, opts ...client.GetOption) (client.Object, error) {
	o, err := a.newObject(ref.GroupVersionKind)
	if err != nil {
		return nil, err
	}
	err = r.Get(ctx, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, o, opts...)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("get %s: %w", ref, err)
	}
	return o, nil
}

// newObject is typed where the scheme knows the kind, so that reads share the informers of typed watches.
func (a *Applier) newObject(gvk schema.GroupVersionKind) (client.Object, error) {
	if a.c.Scheme().Recognizes(gvk) {
		o, err := a.c.Scheme().New(gvk)
		if err != nil {
			return nil, fmt.Errorf("make a %s: %w", gvk.Kind, err)
		}
		if co, ok := o.(client.Object); ok {
			if u, ok := o.(*unstructured.Unstructured); ok {
				u.SetGroupVersionKind(gvk) // a scheme may register a kind without a Go type
			}
			return co, nil
		}
	}
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(gvk)
	return u, nil
}

func (a *Applier) newList(gvk schema.GroupVersionKind) (client.ObjectList, error) {
	lk := gvk.GroupVersion().WithKind(gvk.Kind + "List")
	if a.c.Scheme().Recognizes(gvk) && a.c.Scheme().Recognizes(lk) {
		o, err := a.c.Scheme().New(lk)
		if err != nil {
			return nil, fmt.Errorf("make a %s: %w", lk.Kind, err)
		}
		if ol, ok := o.(client.ObjectList); ok {
			if u, ok := o.(*unstructured.UnstructuredList); ok {
				u.SetGroupVersionKind(lk)
			}
			return ol, nil
		}
	}
	u := &unstructured.UnstructuredList{}
	u.SetGroupVersionKind(lk)
	return u, nil
}

// unseen asks the server for label-carried members, of which only names matter.
func (a *Applier) unseen(ctx context.Context, owner client.Object, kinds []schema.GroupKind) ([]ownership.Decision, error) {
	var out []ownership.Decision
	for _, k := range a.kinds {
		if _, label := a.set.Carriers(k); !label || !named(kinds, k) {
			continue
		}
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(k.GroupVersion().WithKind(k.GroupVersionKind.Kind + "List"))
		err := a.live.List(ctx, list, client.MatchingLabels{a.set.LabelKey(): string(owner.GetUID())}, client.Limit(20))
		if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("confirm that no %s of %s %s/%s is left: %w",
				k.GroupVersionKind.Kind, a.set.Owner().Kind, owner.GetNamespace(), owner.GetName(), err)
		}
		for i := range list.Items {
			o := &list.Items[i]
			out = append(out, ownership.Decision{Verb: ownership.Wait, UID: o.UID, ResourceVersion: o.ResourceVersion,
				Ref: ownership.Ref{GroupVersionKind: k.GroupVersionKind, Namespace: o.Namespace, Name: o.Name},
				Why: "exists on the server, the cache has not seen it yet"})
		}
	}
	return out, nil
}

func named(kinds []schema.GroupKind, k ownership.Kind) bool {
	if len(kinds) == 0 {
		return true
	}
	for _, gk := range kinds {
		if gk == k.GroupKind() {
			return true
		}
	}
	return false
}
