// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package statussync

import (
	"errors"
	"fmt"
	"hash/maphash"
	"reflect"
	"strings"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Desired is a verdict: what the status should say about one generation of the object.
//
// P is a struct of payload fields with JSON tags and without conditions and observedGeneration; struct{} is fine. Each
// of its JSON fields is owned by the writer. A nil pointer, slice or map removes the field.
type Desired[P any] struct {
	// Generation is metadata.generation of the object the verdict was computed from, not the newest one known.
	Generation int64

	// Conditions are those owned by the writer, in any order. observedGeneration 0 means Generation. An owned type that
	// is missing is removed. lastTransitionTime follows the live object: it moves only when the status moves, and never
	// back.
	Conditions []metav1.Condition

	// Status is the payload.
	Status P
}

// want is a Desired without its type parameter.
type want struct {
	uid        types.UID
	generation int64
	conditions []metav1.Condition
	payload    reflect.Value // addressable

	fields []byte // JSON of the payload's fields, without braces; built with the digest
	digest digest
	summed bool
	err    error // of building fields
}

// digest identifies what is desired within one process. lastTransitionTime is left out: a stale cache makes the caller
// see the same transition twice.
type digest struct{ all, payload uint64 }

// Bounds of apimachinery's condition validation, in bytes.
const (
	maxMessage = 32768
	maxReason  = 1024
)

// cut marks a message that was too long. Its length is inside the bound.
const cut = "… (cut)"

// cleanMessage returns what the server would store: valid UTF-8 within the bound. Anything else differs from the live
// text for ever. A good message is returned as it is.
func cleanMessage(s string) string {
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "\uFFFD")
	}
	if len(s) <= maxMessage {
		return s
	}
	n := maxMessage - len(cut)
	for !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + cut
}

// observedBy is the generation a desired condition was computed for.
func (w *want) observedBy(c *metav1.Condition) int64 {
	if c.ObservedGeneration == 0 {
		return w.generation
	}
	return c.ObservedGeneration
}

// check refuses a verdict that no version of the object could accept. Foreign conditions that are live as handed in
// are let through; they are never sent.
func (o *owned) check(w *want, v *view) error {
	switch {
	case w.generation < 0:
		return fmt.Errorf("generation %d is negative", w.generation)
	case w.generation == 0 && v.generation > 0:
		return errors.New("generation is 0: it must be that of the object the verdict was computed from")
	case w.generation > v.generation:
		return fmt.Errorf("generation %d is above the object's %d: the object passed in is older than the verdict", w.generation, v.generation)
	}
	var seen [maxConditions / 64]uint64
	var errs []error
	given := false
	hint := 0
	for i := range w.conditions {
		c := &w.conditions[i]
		at, ok := o.index[c.Type]
		if ok && at >= 0 {
			if seen[at/64]&(1<<(at%64)) != 0 {
				errs = append(errs, fmt.Errorf("condition %q is given twice", c.Type))
			}
			seen[at/64] |= 1 << (at % 64)
			given = true
			if c.ObservedGeneration > w.generation {
				errs = append(errs, fmt.Errorf("condition %q: observedGeneration %d is above the verdict's generation %d", c.Type, c.ObservedGeneration, w.generation))
			}
			continue
		}
		l := find(v.conditions, c.Type, hint)
		switch {
		case l >= 0 && sameCondition(c, &v.conditions[l]):
			hint = l + 1
		case ok:
			errs = append(errs, fmt.Errorf("condition %q is retired: it can only be removed", c.Type))
		case l < 0:
			errs = append(errs, fmt.Errorf("condition %q is not owned by this writer and not live", c.Type))
		default:
			errs = append(errs, fmt.Errorf("condition %q is not owned by this writer and differs from the live one", c.Type))
		}
	}
	if !given && o.primary && len(o.types) > 0 {
		// kstatus takes an object whose generation is observed and that has no condition for Current.
		errs = append(errs, fmt.Errorf("no condition is given: an observed generation without one reads as if %s were reached", o.types[0]))
	}
	return errors.Join(errs...)
}

func sameCondition(a, b *metav1.Condition) bool {
	return a.Status == b.Status && a.Reason == b.Reason && a.Message == b.Message &&
		a.ObservedGeneration == b.ObservedGeneration && sameSecond(&a.LastTransitionTime, &b.LastTransitionTime)
}

// checkConditions says early and by name what the server would refuse. It is run before a write only: what equals the
// live list was accepted once.
func (o *owned) checkConditions(w *want) error {
	var errs []error
	for i := range w.conditions {
		c := &w.conditions[i]
		if at, ok := o.index[c.Type]; !ok || at < 0 {
			continue
		}
		switch c.Status {
		case metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown:
		default:
			errs = append(errs, fmt.Errorf("condition %q: status %q is not True, False or Unknown", c.Type, c.Status))
		}
		if !validReason(c.Reason) {
			errs = append(errs, fmt.Errorf("condition %q: reason %q is not 1 to %d bytes of letters, digits, _ , : that start with a letter and end in neither",
				c.Type, c.Reason, maxReason))
		}
		if c.ObservedGeneration < 0 {
			errs = append(errs, fmt.Errorf("condition %q: observedGeneration %d is negative", c.Type, c.ObservedGeneration))
		}
	}
	return errors.Join(errs...)
}

// validReason is ^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$ of metav1.Condition.
func validReason(s string) bool {
	if s == "" || len(s) > maxReason {
		return false
	}
	for i := range len(s) {
		c := s[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z':
		case i > 0 && ('0' <= c && c <= '9' || c == '_'):
		case i > 0 && i < len(s)-1 && (c == ',' || c == ':'):
		default:
			return false
		}
	}
	return true
}

// outgoing returns the owned conditions as they are sent: in declared order, with the live object's transition times
// where the status is the same or the time would go back.
func (o *owned) outgoing(w *want, v *view, now time.Time) []metav1.Condition {
	out := make([]metav1.Condition, 0, len(w.conditions))
	dh, lh := 0, 0
	for _, t := range o.types {
		d := find(w.conditions, t, dh)
		if d < 0 {
			continue
		}
		dh = d + 1
		c := w.conditions[d]
		c.ObservedGeneration = w.observedBy(&c)
		c.Message = cleanMessage(c.Message)
		if c.LastTransitionTime.IsZero() {
			c.LastTransitionTime = metav1.NewTime(now)
		}
		if l := find(v.conditions, t, lh); l >= 0 {
			lh = l + 1
			live := &v.conditions[l]
			if !live.LastTransitionTime.IsZero() && (live.Status == c.Status || c.LastTransitionTime.Before(&live.LastTransitionTime)) {
				c.LastTransitionTime = live.LastTransitionTime
			}
		}
		out = append(out, c)
	}
	return out
}

// sum builds the payload's JSON and the digest when they are first needed.
func (w *want) sum(o *owned) digest {
	if w.summed {
		return w.digest
	}
	w.summed = true
	w.fields, w.err = appendFields(nil, o.payload, w.payload)
	w.digest.payload = maphash.Bytes(o.seed, w.fields)
	var h maphash.Hash
	h.SetSeed(o.seed)
	hashNumber(&h, w.digest.payload)
	hashNumber(&h, uint64(w.generation))
	hint := 0
	for _, t := range o.types {
		d := find(w.conditions, t, hint)
		if d < 0 {
			h.WriteByte(0)
			continue
		}
		hint = d + 1
		c := &w.conditions[d]
		hashCondition(&h, c, cleanMessage(c.Message), w.observedBy(c))
	}
	w.digest.all = h.Sum64()
	return w.digest
}

// stored hashes the owned and retired conditions of a live list, lastTransitionTime left out.
func (o *owned) stored(list []metav1.Condition) uint64 {
	var h maphash.Hash
	h.SetSeed(o.seed)
	hint := 0
	for _, types := range [...][]string{o.types, o.retired} {
		for _, t := range types {
			l := find(list, t, hint)
			if l < 0 {
				h.WriteByte(0)
				continue
			}
			hint = l + 1
			hashCondition(&h, &list[l], list[l].Message, list[l].ObservedGeneration)
		}
	}
	return h.Sum64()
}

func hashCondition(h *maphash.Hash, c *metav1.Condition, message string, observed int64) {
	h.WriteByte(1)
	for _, s := range [...]string{string(c.Status), c.Reason, message} {
		hashNumber(h, uint64(len(s)))
		h.WriteString(s)
	}
	hashNumber(h, uint64(observed))
}

func hashNumber(h *maphash.Hash, n uint64) {
	for range 8 {
		h.WriteByte(byte(n))
		n >>= 8
	}
}
