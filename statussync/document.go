// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package statussync

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// document is the body of one status apply. It is a typed apply configuration to controller-runtime: it avoids
// unstructured conversions and counts as typed for read-your-writes consistency, which finds the field ResourceVersion
// by reflection and records it after the write.
//
// It marshals itself and decodes the server's reply into the kind's own type, in one pass. A fake client zeroes it before
// it fills in the reply; then all it can do is keep the reply as it came.
type document struct {
	ResourceVersion *string // sent: the precondition; received: the version the write was given

	apiVersion, kind, namespace, name string

	status []byte // JSON of the status object

	source source
	stored client.Object // the reply; nil when a fake took the source away
	reply  []byte        // the reply then
}

func (d *document) IsApplyConfiguration()  {}
func (d *document) GetName() *string       { return &d.name }
func (d *document) GetNamespace() *string  { return &d.namespace }
func (d *document) GetKind() *string       { return &d.kind }
func (d *document) GetAPIVersion() *string { return &d.apiVersion }

// WithNamespace is what client.NewNamespacedClient calls.
func (d *document) WithNamespace(namespace string) *document {
	d.namespace = namespace
	return d
}

// MarshalJSON implements json.Marshaler.
func (d *document) MarshalJSON() ([]byte, error) {
	b := make([]byte, 0, len(d.status)+len(d.apiVersion)+len(d.kind)+len(d.namespace)+len(d.name)+128)
	b = append(b, `{"apiVersion":`...)
	b = appendString(b, d.apiVersion)
	b = append(b, `,"kind":`...)
	b = appendString(b, d.kind)
	b = append(b, `,"metadata":{"name":`...)
	b = appendString(b, d.name)
	if d.namespace != "" {
		b = append(b, `,"namespace":`...)
		b = appendString(b, d.namespace)
	}
	if d.ResourceVersion != nil {
		b = append(b, `,"resourceVersion":`...)
		b = appendString(b, *d.ResourceVersion)
	}
	b = append(b, `},"status":`...)
	b = append(b, d.status...)
	return append(b, '}'), nil
}

// UnmarshalJSON implements json.Unmarshaler: it takes the server's reply.
func (d *document) UnmarshalJSON(raw []byte) error {
	if d.source != nil {
		stored, err := d.source.decode(raw)
		if err != nil {
			return fmt.Errorf("decode the server's reply: %w", err)
		}
		version := stored.GetResourceVersion()
		d.stored, d.ResourceVersion = stored, &version
		return nil
	}
	var head struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(raw, &head); err != nil {
		return err
	}
	d.reply = append([]byte(nil), raw...)
	d.ResourceVersion = &head.Metadata.ResourceVersion
	return nil
}

// status builds the status object: conditions, observedGeneration, payload, always in this order, since a list in
// another order is a change to the server.
func (o *owned) status(conditions []metav1.Condition, w *want) ([]byte, error) {
	w.sum(o)
	if w.err != nil {
		return nil, w.err
	}
	n := len(w.fields) + 64
	for i := range conditions {
		n += len(conditions[i].Type) + len(conditions[i].Reason) + len(conditions[i].Message) + 160
	}
	b := append(make([]byte, 0, n), '{')
	if len(conditions) > 0 {
		inner := o.path[1:]
		for _, name := range inner[:len(inner)-1] {
			b = appendString(b, name)
			b = append(b, ':', '{')
		}
		b = appendString(b, inner[len(inner)-1])
		b = append(b, ':')
		b = appendConditions(b, conditions)
		for range len(inner) - 1 {
			b = append(b, '}')
		}
	}
	if o.primary {
		b = appendComma(b)
		b = append(b, `"observedGeneration":`...)
		b = strconv.AppendInt(b, w.generation, 10)
	}
	if len(w.fields) > 0 {
		b = appendComma(b)
		b = append(b, w.fields...)
	}
	return escapeForYAML(append(b, '}')), nil
}

// escapeForYAML escapes, in JSON, the characters that JSON strings may hold as they are and YAML may not: the server
// reads an apply as YAML, refuses control characters, and folds U+0085 into a space, so that what is stored would never
// equal what is wanted. Outside of strings none of them occurs.
func escapeForYAML(b []byte) []byte {
	odd := func(b []byte) (r rune, n int) {
		switch {
		case b[0] < 0x7f:
			return 0, 0
		case b[0] == 0x7f:
			return 0x7f, 1
		case b[0] == 0xc2 || b[0] == 0xef: // U+0080 to U+00BF, U+F000 to U+FFFF
			r, n = utf8.DecodeRune(b)
			if r <= 0x9f || r == 0xfeff || r >= 0xfffe {
				return r, n
			}
		}
		return 0, 0
	}
	for i := 0; i < len(b); i++ {
		if _, n := odd(b[i:]); n == 0 {
			continue
		}
		out := append(make([]byte, 0, len(b)+64), b[:i]...)
		for i < len(b) {
			if r, n := odd(b[i:]); n > 0 {
				out = fmt.Appendf(out, `\u%04x`, r)
				i += n
			} else {
				out = append(out, b[i])
				i++
			}
		}
		return out
	}
	return b
}

func appendComma(b []byte) []byte {
	if b[len(b)-1] != '{' {
		b = append(b, ',')
	}
	return b
}

func appendConditions(b []byte, list []metav1.Condition) []byte {
	b = append(b, '[')
	for i := range list {
		c := &list[i]
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"type":`...)
		b = appendString(b, c.Type)
		b = append(b, `,"status":`...)
		b = appendString(b, string(c.Status))
		if c.ObservedGeneration != 0 {
			b = append(b, `,"observedGeneration":`...)
			b = strconv.AppendInt(b, c.ObservedGeneration, 10)
		}
		b = append(b, `,"lastTransitionTime":"`...)
		b = c.LastTransitionTime.UTC().AppendFormat(b, "2006-01-02T15:04:05Z07:00")
		b = append(b, `","reason":`...)
		b = appendString(b, c.Reason)
		b = append(b, `,"message":`...)
		b = appendString(b, c.Message)
		b = append(b, '}')
	}
	return append(b, ']')
}

// appendFields marshals the payload field by field, so that what is absent is decided here and not by a tag.
func appendFields(b []byte, fields []field, payload reflect.Value) ([]byte, error) {
	for i := range fields {
		f := &fields[i]
		v := f.in(payload)
		if f.absent(v) {
			continue
		}
		raw, err := marshal(v)
		if err != nil {
			return nil, fmt.Errorf("payload field %q: %w", f.name, err)
		}
		if f.quoted {
			raw = appendString(nil, string(raw))
		}
		if len(b) > 0 {
			b = append(b, ',')
		}
		b = appendString(b, f.name)
		b = append(b, ':')
		b = append(b, raw...)
	}
	return b, nil
}

// appendString appends s as a JSON string.
func appendString(b []byte, s string) []byte {
	plain := true
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			plain = false
			break
		}
	}
	if plain {
		b = append(b, '"')
		b = append(b, s...)
		return append(b, '"')
	}
	raw, _ := json.Marshal(s) // a string always marshals
	return append(b, raw...)
}
