// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conversion

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
)

// Annotation is where values are kept that a version cannot hold. A client that keeps annotations it does not know loses
// nothing.
const Annotation = "ashlar-go.github.io/conversion"

// object is an API object, apart: what a conversion is about, and the metadata that passes through.
type object struct {
	kind, version        string
	namespace, name, uid string

	body ref // the object with its top-level members; apiVersion, kind and metadata are passed over
	meta ref // none: a partial object
	// Both are members within meta and no business of a pair: they are not shown to one.
	managed, stash ref

	mem *arena
}

// outside reports what is not part of the body.
func outside(name string) bool {
	switch name {
	case "apiVersion", "kind", "metadata":
		return true
	}
	return false
}

// readObject takes a document apart.
func readObject(d *doc, group string) (object, error) {
	root := ref{d, 0}
	o := object{body: root, meta: none, managed: none, stash: none}
	if root.kind() != '{' {
		return o, fmt.Errorf("found %s, not an object", shapeOf(root))
	}
	var apiVersion ref = none
	for m := range root.children() {
		switch string(m.name()) {
		case "apiVersion":
			apiVersion = m
		case "kind":
			o.kind = string(m.str())
		case "metadata":
			switch m.kind() {
			case '{':
				o.meta = m
			case 'n':
			default:
				return o, fmt.Errorf("at metadata: found %s, not an object", shapeOf(m))
			}
		}
	}
	if o.kind == "" || len(apiVersion.str()) == 0 {
		return o, errors.New("apiVersion or kind is missing")
	}
	o.readMeta()
	version, ok := bytes.CutPrefix(apiVersion.str(), []byte(group+"/"))
	if group == "" {
		version, ok = apiVersion.str(), true
	}
	if o.version = string(version); !ok || strings.Contains(o.version, "/") {
		return o, fmt.Errorf("apiVersion %q is not of group %q", apiVersion.str(), group)
	}
	return o, nil
}

// readMeta finds the members of the metadata that matter.
func (o *object) readMeta() {
	o.managed, o.stash = none, none
	for m := range o.meta.children() {
		switch string(m.name()) {
		case "name":
			o.name = string(m.str())
		case "namespace":
			o.namespace = string(m.str())
		case "uid":
			o.uid = string(m.str())
		case "managedFields":
			o.managed = m
		case "annotations":
			o.stash = m.get(Annotation)
		}
	}
}

// ref names the object for people.
func (o *object) ref() string {
	switch {
	case o.name == "" && o.kind == "":
		return "object"
	case o.name == "":
		return o.kind + " without a name"
	case o.namespace == "":
		return o.kind + " " + o.name
	}
	return o.kind + " " + o.namespace + "/" + o.name
}

// partial objects are what server-side apply asks about: some fields of an object. They are never defaulted.
func (o *object) partial() bool { return o.uid == "" || !o.body.get("spec").ok() }

// sameStrings reports whether labels or annotations are those of a value, but for the one passed over.
func sameStrings(have ref, want map[string]string, pass ref) bool {
	n := 0
	for m := range have.children() {
		if m.i == pass.i {
			continue
		}
		n++
		if s, ok := want[string(m.name())]; !ok || m.kind() != '"' || s != string(m.str()) {
			return false
		}
	}
	return n == len(want)
}

// withStrings replaces labels and annotations, each where changed.
func (o *object) withStrings(labels, annotations map[string]string) error {
	newLabels := !sameStrings(o.meta.get("labels"), labels, none)
	newAnnotations := !sameStrings(o.meta.get("annotations"), annotations, o.stash)
	if !newLabels && !newAnnotations {
		return nil
	}
	b := []byte{'{'}
	sep := func() {
		if len(b) > 1 {
			b = append(b, ',')
		}
	}
	for m := range o.meta.children() {
		name := string(m.name())
		if name == "labels" && newLabels || name == "annotations" && newAnnotations {
			continue
		}
		sep()
		b = append(append(appendString(b, name), ':'), m.bytes()...)
	}
	if newLabels && len(labels) > 0 {
		sep()
		b = appendStrings(append(b, `"labels":`...), labels)
	}
	if newAnnotations && len(annotations) > 0 {
		sep()
		b = appendStrings(append(b, `"annotations":`...), annotations)
	}
	return o.setMeta(append(b, '}'))
}

func (o *object) setMeta(raw []byte) error {
	d := o.mem.doc()
	if err := d.parse(raw); err != nil {
		return err
	}
	o.meta = ref{d, 0}
	o.readMeta()
	return nil
}

func (o *object) setBody(raw []byte) error {
	d := o.mem.doc()
	if err := d.parse(raw); err != nil {
		return err
	}
	o.body = ref{d, 0}
	return nil
}

// slim reports what an API server takes from the metadata of an answer; all the rest it puts back by itself.
func slim(name string) bool {
	switch name {
	case "name", "namespace", "uid", "labels", "annotations":
		return true
	}
	return false
}

// write is append in memory of the object's own.
func (o *object) write(room int, apiVersion, stash string, brief bool) []byte {
	d := o.mem.doc()
	d.own = o.append(d.room(room), apiVersion, stash, brief)
	return d.own
}

// append writes the object down, in a version and with a stash. Metadata is always there, because an answer to an API
// server must have it; brief leaves out what the server does not take.
func (o *object) append(b []byte, apiVersion, stash string, brief bool) []byte {
	b = appendString(append(b, `{"apiVersion":`...), apiVersion)
	b = appendString(append(b, `,"kind":`...), o.kind)
	b = append(b, `,"metadata":{`...)
	first := len(b)
	put := stash == ""
	for m := range o.meta.children() {
		name := string(m.name())
		if brief && !slim(name) {
			continue
		}
		mark := len(b)
		if len(b) > first {
			b = append(b, ',')
		}
		b = append(appendString(b, name), ':')
		if name != "annotations" || !o.stash.ok() && put || m.kind() != '{' && m.kind() != 'n' {
			b = append(b, m.bytes()...)
			continue
		}
		b = append(b, '{')
		inner := len(b)
		for a := range m.children() {
			if a.i == o.stash.i && a.doc == o.stash.doc {
				continue
			}
			if len(b) > inner {
				b = append(b, ',')
			}
			b = append(appendString(b, a.name()), ':')
			b = append(b, a.bytes()...)
		}
		if !put {
			put = true
			b = appendStash(b, inner, stash)
		}
		if len(b) == inner { // the stash was all there was
			b = b[:mark]
			continue
		}
		b = append(b, '}')
	}
	if !put {
		if len(b) > first {
			b = append(b, ',')
		}
		b = append(b, `"annotations":{`...)
		b = append(appendStash(b, len(b), stash), '}')
	}
	b = append(b, '}')
	for m := range o.body.children() {
		if outside(string(m.name())) {
			continue
		}
		n := m.n()
		b = append(append(append(b, ',', '"'), m.raw[n.key:n.keyEnd]...), '"', ':')
		b = append(b, m.bytes()...)
	}
	return append(b, '}')
}

func appendStash(b []byte, inner int, stash string) []byte {
	if len(b) > inner {
		b = append(b, ',')
	}
	return appendString(append(appendString(b, Annotation), ':'), stash)
}
