// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package statussync

import (
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Owns declares what one writer owns of a kind's status, next to the fields of its payload. What is not declared is
// foreign for ever: it is neither read for a decision nor removed.
type Owns struct {
	// Conditions are the condition types, in the order in which they are written. One that is live but not desired is
	// removed.
	Conditions []string

	// Retired are condition types an earlier release wrote. They are removed, whoever wrote them.
	Retired []string

	// Path of the condition list, by JSON name; nil means status, conditions. It starts with "status". A list inside the
	// items of another one, such as those of a Gateway route's parents, has no fixed path and cannot be owned.
	Path []string

	// Primary is set on exactly one writer of a kind: it owns status.observedGeneration and the root condition. The
	// others carry the generation on their conditions only.
	Primary bool
}

// maxConditions and maxFields let the planner use fixed-size bit sets, so that a no-op allocates nothing for them.
const (
	maxConditions = 256
	maxFields     = 64
)

// owned is a validated Owns with the payload's field names.
type owned struct {
	types   []string
	retired []string
	index   map[string]int // position in types, or in retired as ^position
	path    []string
	primary bool
	fields  []string // names of payload
	payload []field
	seed    maphash.Seed
}

var defaultPath = []string{"status", "conditions"}

func newOwned(o Owns, payload []field) (owned, error) {
	fields := make([]string, len(payload))
	for i, f := range payload {
		fields[i] = f.name
	}
	w := owned{
		seed:    maphash.MakeSeed(),
		payload: payload,
		types:   slices.Clone(o.Conditions),
		retired: slices.Clone(o.Retired),
		index:   make(map[string]int, len(o.Conditions)+len(o.Retired)),
		path:    slices.Clone(o.Path),
		primary: o.Primary,
		fields:  fields,
	}
	if w.path == nil {
		w.path = defaultPath
	}
	var errs []error
	if len(w.path) < 2 || w.path[0] != "status" || slices.Contains(w.path, "") {
		errs = append(errs, fmt.Errorf("path %q is not a list below status", strings.Join(w.path, ".")))
	} else if slices.Contains(fields, w.path[1]) {
		errs = append(errs, fmt.Errorf("payload field %q holds the condition list %s", w.path[1], strings.Join(w.path, ".")))
	} else if o.Primary && w.path[1] == observedGeneration {
		errs = append(errs, errors.New("path of the condition list is status.observedGeneration"))
	}
	if n := len(w.types) + len(w.retired); n > maxConditions {
		errs = append(errs, fmt.Errorf("%d condition types are more than %d", n, maxConditions))
	}
	if len(fields) > maxFields {
		errs = append(errs, fmt.Errorf("%d payload fields are more than %d", len(fields), maxFields))
	}
	add := func(t string, at int) {
		if bad := validation.IsQualifiedName(t); len(bad) > 0 {
			errs = append(errs, fmt.Errorf("condition type %q: %s", t, strings.Join(bad, "; ")))
		}
		if _, ok := w.index[t]; ok {
			errs = append(errs, fmt.Errorf("condition type %q is declared twice", t))
		}
		w.index[t] = at
	}
	for i, t := range w.types {
		add(t, i)
	}
	for i, t := range w.retired {
		add(t, ^i)
	}
	if len(w.types)+len(w.retired)+len(fields) == 0 && !o.Primary {
		errs = append(errs, errors.New("nothing is owned"))
	}
	return w, errors.Join(errs...)
}

// overlap names what two writers of a kind both own; empty when nothing.
func (w *owned) overlap(other *owned) []string {
	var both []string
	if slices.Equal(w.path, other.path) {
		for t := range w.index {
			if _, ok := other.index[t]; ok {
				both = append(both, "condition "+t)
			}
		}
		slices.Sort(both)
	}
	for _, f := range w.fields {
		if slices.Contains(other.fields, f) {
			both = append(both, "payload field "+f)
		}
		if f == other.path[1] {
			both = append(both, "payload field "+f+" (it holds the other's condition list)")
		}
	}
	for _, f := range other.fields {
		if f == w.path[1] {
			both = append(both, "payload field "+f+" (it holds this writer's condition list)")
		}
	}
	if w.primary && other.primary {
		both = append(both, "status.observedGeneration (both are Primary)")
	}
	return both
}
