// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package finalizers

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Annotation is where the progress of cleanups is stored: on the terminating object itself, so that another process
// resumes where this one stopped.
//
// The value is JSON: the uid of the object and, by name of the finalizer, the deletion policy that was seen and the
// steps that were called so far. The uid keeps a restored or copied manifest from bringing along the progress of
// another object's cleanup. Controllers share the annotation; each writes its own entry, and every write tests the
// value it was decided on.
const Annotation = "ashlar-go.github.io/cleanup"

type document struct {
	UID types.UID                  `json:"uid"`
	By  map[string]json.RawMessage `json:"by"`
}

// entry is what one finalizer has stored. The zero entry is what a cleanup begins with.
type entry struct {
	Policy metav1.DeletionPropagation `json:"policy,omitempty"`
	Steps  []record                   `json:"steps"`
}

// record is one step as it is stored.
type record struct {
	Step    string `json:"step"`
	State   State  `json:"state"`
	Since   string `json:"since,omitempty"`
	Blocker *Ref   `json:"blocker,omitempty"`
}

// readDocument decodes the annotation of obj. A missing annotation is an empty document.
func readDocument(obj client.Object) (document, error) {
	empty := document{UID: obj.GetUID()}
	raw, ok := obj.GetAnnotations()[Annotation]
	if !ok {
		return empty, nil
	}
	var read document
	if err := json.Unmarshal([]byte(raw), &read); err != nil {
		return empty, fmt.Errorf("read annotation %s: %w", Annotation, err)
	}
	if read.UID != empty.UID {
		return empty, fmt.Errorf("read annotation %s: it belongs to uid %q, the object is %q", Annotation, read.UID, empty.UID)
	}
	return read, nil
}

func (d document) names() []string { return slices.Sorted(maps.Keys(d.By)) }

// entry decodes what one finalizer has stored; nothing stored is the zero entry.
func (d document) entry(finalizer string) (entry, error) {
	raw, ok := d.By[finalizer]
	if !ok {
		return entry{}, nil
	}
	var e entry
	if err := json.Unmarshal(raw, &e); err != nil {
		return entry{}, fmt.Errorf("read annotation %s of finalizer %s: %w", Annotation, finalizer, err)
	}
	return e, nil
}

// with returns the document with what one finalizer has stored replaced, or removed when that is nothing. What others
// have stored is kept, whatever its form.
func (d document) with(finalizer string, e entry) document {
	by := maps.Clone(d.By)
	if by == nil {
		by = map[string]json.RawMessage{}
	}
	delete(by, finalizer)
	if !e.equal(entry{}) {
		by[finalizer] = encode(e)
	}
	d.By = by
	return d
}

// String is the value of the annotation, "" for a document without entries.
func (d document) String() string {
	if len(d.By) == 0 {
		return ""
	}
	return string(encode(d))
}

func (e entry) equal(o entry) bool {
	return e.Policy == o.Policy && slices.EqualFunc(e.Steps, o.Steps, record.equal)
}

func (r record) equal(o record) bool {
	if (r.Blocker == nil) != (o.Blocker == nil) || r.Blocker != nil && *r.Blocker != *o.Blocker {
		return false
	}
	return r.Step == o.Step && r.State == o.State && r.Since == o.Since
}

// since reads the stored time. Something unreadable counts as never: the deadline starts again, which errs on the side
// of keeping the finalizer.
func (r record) since() time.Time {
	t, err := time.Parse(time.RFC3339, r.Since)
	if err != nil {
		return time.Time{}
	}
	return t.UTC()
}

func (r record) progress() StepProgress {
	p := StepProgress{Step: r.Step, State: r.State, Since: r.since()}
	if r.Blocker != nil {
		p.Blocker = *r.Blocker
	}
	return p
}

// encode cannot fail: it is given strings, types of this package, and raw JSON that was decoded before.
func encode(v any) []byte {
	b, _ := json.Marshal(v) //nolint:errchkjson // see above
	return b
}
