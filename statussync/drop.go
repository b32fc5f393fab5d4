// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package statussync

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// dropSet is what is live and must go.
type dropSet struct {
	at     []int // positions of conditions in the live list, ascending
	types  []string
	fields []string // payload fields
}

func (d *dropSet) empty() bool { return len(d.at)+len(d.fields) == 0 }

func (o *owned) drops(v *view, w *want) dropSet {
	var d dropSet
	for _, t := range o.types {
		if find(w.conditions, t, 0) < 0 {
			d.add(v.conditions, t)
		}
	}
	for _, t := range o.retired {
		d.add(v.conditions, t)
	}
	slices.Sort(d.at)
	for i, at := range d.at {
		if i == 0 {
			d.types = make([]string, 0, len(d.at))
		}
		d.types = append(d.types, v.conditions[at].Type)
	}
	for i, name := range o.fields {
		if v.extra&(1<<i) != 0 {
			d.fields = append(d.fields, name)
		}
	}
	return d
}

func (d *dropSet) add(list []metav1.Condition, t string) {
	for i := range list { // all of them: a list without a key can hold a type twice
		if list[i].Type == t {
			d.at = append(d.at, i)
		}
	}
}

// remove takes conditions and fields out by position, whoever owns them. A server-side apply cannot: it leaves the key
// of a condition that another manager holds too, and the whole of one that no apply ever owned. The patch tests the
// version and each type first, so a position never means another condition.
func (p *pass) remove(ctx context.Context, v *view, d dropSet) error {
	c := p.core
	type op struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value,omitempty"`
	}
	ops := []op{{"test", "/metadata/resourceVersion", v.resourceVersion}}
	list := pointer(c.owned.path...)
	for i := len(d.at) - 1; i >= 0; i-- { // highest first, so that the others keep their positions
		at := list + "/" + strconv.Itoa(d.at[i])
		ops = append(ops, op{"test", at + "/type", d.types[i]}, op{Op: "remove", Path: at})
	}
	for _, f := range d.fields {
		ops = append(ops, op{Op: "remove", Path: pointer("status", f)})
	}
	body, err := json.Marshal(ops)
	if err != nil {
		return err
	}
	obj := c.source.empty()
	obj.SetNamespace(p.key.Namespace)
	obj.SetName(p.key.Name)
	p.requests++
	err = c.group.client.Status().Patch(ctx, obj, client.RawPatch(types.JSONPatchType, body), client.FieldOwner(c.manager))
	if apierrors.IsConflict(err) || testFailed(err) {
		return errContended
	}
	if err != nil {
		return fmt.Errorf("remove %s: %w", strings.Join(append(slices.Clone(d.types), d.fields...), ", "), p.explain(err))
	}
	p.patched = true
	return p.adopt(obj, v)
}

// stubRefused says whether the server refused an apply for what it left of a condition.
func (o *owned) stubRefused(err error) bool {
	var s apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &s) || s.Status().Details == nil {
		return false
	}
	list := strings.Join(o.path, ".") + "["
	return slices.ContainsFunc(s.Status().Details.Causes, func(c metav1.StatusCause) bool { return strings.HasPrefix(c.Field, list) })
}

// testFailed tells a JSON Patch whose test failed from one whose result is invalid: the former has no causes.
func testFailed(err error) bool {
	var s apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &s) {
		return false
	}
	d := s.Status().Details
	return d == nil || len(d.Causes) == 0
}

// pointer builds an RFC 6901 JSON pointer.
func pointer(path ...string) string {
	var b strings.Builder
	for _, p := range path {
		b.WriteByte('/')
		b.WriteString(strings.NewReplacer("~", "~0", "/", "~1").Replace(p))
	}
	return b.String()
}
