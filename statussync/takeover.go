// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package statussync

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/csaupgrade"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TakeOver moves what this writer owns of obj's status from managers that wrote it with Update or a merge patch (the
// writer before Ashlar, mostly named after the binary) to this writer, in managedFields only: no value changes. Without
// it the first Sync takes the values by force, and the old manager keeps the keys, so that dropping a condition costs
// one more request. Fields the writer does not own stay with the managers named, unlike in a plain migration, which
// would make the next apply remove them.
//
// It reads obj live and patches it: 2 requests, 1 when there is nothing to move, at most 6 under contention. The outcome
// is Written, NoOp, Gone or Deferred. RBAC: get and patch on the kind itself; the server ignores managedFields sent to a
// subresource.
func (w *Writer[P]) TakeOver(ctx context.Context, obj client.Object, from ...string) (Result, error) {
	c := w.core
	r, n, err := c.takeOver(ctx, obj, from)
	if err != nil {
		err = fmt.Errorf("take over status of %s: %w", c.describe(obj), err)
	}
	c.observe(obj, &want{}, r, n, err)
	return r, err
}

func (c *core) takeOver(ctx context.Context, obj client.Object, from []string) (Result, int, error) {
	first, err := c.view(obj, reflect.Value{})
	if err != nil {
		return Result{}, 0, err
	}
	if len(from) == 0 || slices.Contains(from, "") {
		return Result{}, 0, errors.New("no manager to take over from, or an empty one")
	}
	key, requests := client.ObjectKeyFromObject(obj), 0
	var last client.Object
	for try := 1; try <= tries; try++ {
		live := c.source.empty()
		requests++
		err := c.group.live.Get(ctx, key, live)
		switch {
		case apierrors.IsNotFound(err):
			return Result{Outcome: Gone, Why: whyMissing}, requests, nil
		case err != nil:
			return Result{}, requests, fmt.Errorf("read it live: %w", err)
		case live.GetUID() != first.uid:
			return Result{Outcome: Gone, Why: whyOther}, requests, nil
		}
		entries, moved, err := c.owned.moveFields(live, from, c.manager)
		if err != nil {
			return Result{}, requests, err
		}
		if !moved {
			return Result{Why: "none of these managers holds what this writer owns"}, requests, nil
		}
		body, err := json.Marshal([]map[string]any{
			{"op": "test", "path": "/metadata/uid", "value": first.uid},
			{"op": "replace", "path": "/metadata/managedFields", "value": entries},
			// replace, not test: another version is then a conflict and not a bare 422.
			{"op": "replace", "path": "/metadata/resourceVersion", "value": live.GetResourceVersion()},
		})
		if err != nil {
			return Result{}, requests, err
		}
		fresh := c.source.empty()
		fresh.SetNamespace(key.Namespace)
		fresh.SetName(key.Name)
		requests++
		err = c.group.client.Patch(ctx, fresh, client.RawPatch(types.JSONPatchType, body), client.FieldOwner(c.manager))
		switch {
		case err == nil:
			return Result{Outcome: Written, Object: fresh, Why: "moved in managedFields"}, requests, nil
		case apierrors.IsNotFound(err):
			return Result{Outcome: Gone, Why: whyMissing}, requests, nil
		case !apierrors.IsConflict(err) && !testFailed(err):
			return Result{}, requests, err
		}
		last = live
		if try < tries && !pause(ctx, try) {
			if err := ctx.Err(); err != nil {
				return Result{}, requests, err
			}
			break
		}
	}
	p := &pass{core: c, obj: last}
	return p.deferred(), requests, nil
}

// moveFields returns the managedFields of live with what this writer owns moved to it from Update entries of the
// managers named. csaupgrade moves whole entries, so what is not ours is set aside before and put back after.
func (o *owned) moveFields(live client.Object, from []string, manager string) ([]metav1.ManagedFieldsEntry, bool, error) {
	var part, aside []metav1.ManagedFieldsEntry
	moved := false
	for _, e := range live.GetManagedFields() {
		// An entry without subresource can hold status fields from before the kind had one.
		if e.Operation != metav1.ManagedFieldsOperationUpdate || (e.Subresource != "status" && e.Subresource != "") || !slices.Contains(from, e.Manager) {
			part = append(part, *e.DeepCopy())
			continue
		}
		mine, rest := o.split(parseFields(e.FieldsV1))
		if len(mine) > 0 {
			m := *e.DeepCopy()
			m.Subresource = "status"
			// csaupgrade takes one entry per manager and version and forgets others.
			twin := slices.IndexFunc(part, func(p metav1.ManagedFieldsEntry) bool {
				return p.Manager == m.Manager && p.Operation == m.Operation && p.Subresource == m.Subresource && p.APIVersion == m.APIVersion
			})
			if twin >= 0 {
				mine = union(parseFields(part[twin].FieldsV1), mine)
			}
			m, err := withFields(m, mine)
			if err != nil {
				return nil, false, err
			}
			if twin >= 0 {
				part[twin] = m
			} else {
				part = append(part, m)
			}
			moved = true
		}
		if len(rest) > 0 {
			r, err := withFields(e, rest)
			if err != nil {
				return nil, false, err
			}
			aside = append(aside, r)
		}
	}
	if !moved {
		return nil, false, nil
	}
	carrier := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{ManagedFields: part}}
	if err := csaupgrade.UpgradeManagedFields(carrier, sets.New(from...), manager, csaupgrade.Subresource("status")); err != nil {
		return nil, false, err
	}
	return append(carrier.ManagedFields, aside...), true, nil
}

func withFields(e metav1.ManagedFieldsEntry, s fieldSet) (metav1.ManagedFieldsEntry, error) {
	raw, err := json.Marshal(s)
	if err != nil {
		return e, err
	}
	n := *e.DeepCopy()
	n.FieldsV1 = &metav1.FieldsV1{}
	n.FieldsV1.SetRawBytes(raw)
	return n, nil
}

// union returns the fields of both sets.
func union(a, b fieldSet) fieldSet {
	out := fieldSet{}
	for k, v := range a {
		out[k] = v
	}
	for k, v := range b {
		x, _ := out[k].(map[string]any)
		y, _ := v.(map[string]any)
		out[k] = map[string]any(union(x, y))
	}
	return out
}

// split divides a set into what this writer owns and the rest. The "." of a list or map (that it exists at all) stays
// with the rest unless nothing else does.
func (o *owned) split(s fieldSet) (mine, rest fieldSet) {
	mine, rest = fieldSet{}, fieldSet{}
	for k, v := range s {
		sub, ok := v.(map[string]any)
		if k != "f:status" || !ok {
			rest[k] = v
			continue
		}
		m, r := o.splitBelow(sub, 1)
		if len(m) > 0 {
			mine[k] = map[string]any(m)
		}
		if meaningful(r) {
			rest[k] = map[string]any(r)
		}
	}
	return mine, rest
}

func (o *owned) splitBelow(s fieldSet, depth int) (mine, rest fieldSet) {
	mine, rest = fieldSet{}, fieldSet{}
	for k, v := range s {
		sub, _ := v.(map[string]any)
		switch {
		case depth == 1 && (slices.ContainsFunc(o.fields, func(f string) bool { return k == "f:"+f }) ||
			(o.primary && k == "f:"+observedGeneration)):
			mine[k] = v
		case depth < len(o.path) && k == "f:"+o.path[depth]:
			m, r := o.splitBelow(sub, depth+1)
			if len(m) > 0 {
				mine[k] = map[string]any(m)
			}
			if meaningful(r) {
				rest[k] = map[string]any(r)
			}
		case depth == len(o.path):
			if t, ok := conditionKey(k); ok {
				if _, ok := o.index[t]; ok {
					mine[k] = v
					continue
				}
			}
			rest[k] = v
		default:
			rest[k] = v
		}
	}
	return mine, rest
}

// meaningful says whether a set holds more than the existence of its parent.
func meaningful(s fieldSet) bool {
	if _, ok := s["."]; ok {
		return len(s) > 1
	}
	return len(s) > 0
}
