// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Report is what a rehearsal found.
type Report struct {
	CRD     string // its name
	Storage string // the version objects were read at
	Objects int
	Trips   []Trip // one for each other version of the CRD
}

// Trip is what became of all objects on the way from the storage version to another one and back.
type Trip struct {
	To string // the other version

	Failed int     // objects that cannot be converted
	Lossy  int     // objects that came back as something else
	Kept   int     // objects of which the version cannot hold all: safe with clients that keep annotations
	Faults []Fault // the first 20 that failed or came back as something else

	Largest Extreme // bytes of the annotation
	Slowest Extreme // nanoseconds, there and back
}

// Fault is an object that a migration would not bring through.
type Fault struct {
	Namespace, Name string // of the object
	Path            string // what came back as something else; "" when the conversion failed
	Err             error  // why it failed
}

// Extreme is the object that is the most of something.
type Extreme struct {
	Namespace, Name string // of the object
	Value           int64  // in the unit of the field
}

// Empty reports whether every object came back as it was.
func (r Report) Empty() bool {
	for _, t := range r.Trips {
		if t.Failed > 0 || t.Lossy > 0 {
			return false
		}
	}
	return true
}

// String prints the report, some lines for each version.
func (r Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d objects at %s", r.CRD, r.Objects, r.Storage)
	for _, t := range r.Trips {
		fmt.Fprintf(&b, "\n  %s and back: %d failed, %d lossy, %d need the annotation", t.To, t.Failed, t.Lossy, t.Kept)
		if t.Largest.Value > 0 {
			fmt.Fprintf(&b, " (largest %d bytes, %s)", t.Largest.Value, key(t.Largest.Namespace, t.Largest.Name))
		}
		for _, f := range t.Faults {
			b.WriteString("\n    ")
			b.WriteString(f.String())
		}
	}
	return b.String()
}

// String is one sentence.
func (f Fault) String() string {
	if f.Err != nil {
		return fmt.Sprintf("%s: %v", key(f.Namespace, f.Name), f.Err)
	}
	return fmt.Sprintf("%s: %s comes back as something else", key(f.Namespace, f.Name), f.Path)
}

const maxFaults = 20

// Rehearse converts every live object to every other version of the CRD and back, compares what comes back in raw JSON,
// and writes nothing. It finds what a migration, or an old client, would lose before that happens.
//
// It returns ErrNoConverter without WithConverter. Requests: one for the CRD and one for each page of objects.
func (m *Migrator) Rehearse(ctx context.Context) (Report, error) {
	if m.converter == nil {
		return Report{}, fmt.Errorf("rehearse %s: %w", m.crd, ErrNoConverter)
	}
	d, err := m.read(ctx)
	if err != nil {
		return Report{}, err
	}
	r := Report{CRD: d.name, Storage: d.storage}
	for _, v := range d.versions {
		if v != d.storage {
			r.Trips = append(r.Trips, Trip{To: v})
		}
	}
	whole := func() *unstructured.UnstructuredList {
		list := &unstructured.UnstructuredList{}
		gvk := d.gvk()
		gvk.Kind += "List"
		list.SetGroupVersionKind(gvk)
		return list
	}
	progress, seen := Progress{CRD: d.name}, ""
	for list, err := range pages(ctx, m, whole, &progress) {
		if err != nil {
			return r, err
		}
		for i := range list.Items {
			o := &list.Items[i]
			if !after(o, seen) {
				continue
			}
			raw, err := json.Marshal(o.Object)
			if err != nil {
				return r, fmt.Errorf("rehearse %s of %s: %w", key(o.GetNamespace(), o.GetName()), d.name, err)
			}
			for t := range r.Trips {
				r.Trips[t].add(ctx, m.converter, o, raw, d.storage)
			}
			if ctx.Err() != nil {
				return r, ctx.Err()
			}
			r.Objects++
		}
		if n := len(list.Items); n > 0 {
			seen = max(seen, mark(&list.Items[n-1]))
		}
		progress.Done = r.Objects
		m.observe(progress)
	}
	return r, nil
}

// add takes one object to the version and back.
func (t *Trip) add(ctx context.Context, c Converter, o *unstructured.Unstructured, raw []byte, storage string) {
	start := time.Now()
	there, err := c.Trial(ctx, raw, t.To)
	if err != nil {
		t.fail(o, "", err)
		return
	}
	back, err := c.Trial(ctx, there.Object, storage)
	if err != nil {
		t.fail(o, "", fmt.Errorf("back again: %w", err))
		return
	}
	t.Slowest.raise(o, time.Since(start).Nanoseconds())
	t.Largest.raise(o, int64(there.Bytes))
	if len(there.Kept) > 0 {
		t.Kept++
	}
	path, err := differs(raw, back.Object)
	if path != "" || err != nil {
		t.fail(o, path, err)
	}
}

func (t *Trip) fail(o *unstructured.Unstructured, path string, err error) {
	if err != nil {
		t.Failed++
	} else {
		t.Lossy++
	}
	if len(t.Faults) < maxFaults {
		t.Faults = append(t.Faults, Fault{o.GetNamespace(), o.GetName(), path, err})
	}
}

func (e *Extreme) raise(o *unstructured.Unstructured, value int64) {
	if value > e.Value {
		*e = Extreme{o.GetNamespace(), o.GetName(), value}
	}
}
