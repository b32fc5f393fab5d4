// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conversion

import (
	"fmt"
	"slices"
)

// lastApplied is where kubectl apply keeps the manifest it has applied.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// Owner is a field manager that owns [Annotation], because what it applies contains it: a manifest that was exported at
// an old version. It puts back what was kept at the time of the export wherever the fields still look as they did then,
// and its unforced apply conflicts with conversions. [Export] makes manifests without it.
type Owner struct {
	Manager, Operation, APIVersion string // as in managedFields
}

// Owners names the managers of an object that own the annotation, from its managedFields, and "kubectl" with the operation
// "last-applied-configuration" if it is in there.
func Owners(raw []byte) ([]Owner, error) {
	d := &doc{}
	if err := d.parse(raw); err != nil {
		return nil, fmt.Errorf("read the owners of %s: %w", Annotation, err)
	}
	o := object{body: ref{d, 0}, meta: ref{d, 0}.get("metadata")}
	o.readMeta()
	return owners(&o), nil
}

func owners(o *object) []Owner {
	var out []Owner
	if o.managed.ok() && o.managed.kind() == '[' {
		for m := range o.managed.children() {
			if m.get("fieldsV1").get("f:metadata").get("f:annotations").get("f:" + Annotation).ok() {
				out = append(out, Owner{string(m.get("manager").str()), string(m.get("operation").str()), string(m.get("apiVersion").str())})
			}
		}
	}
	if applied := o.meta.get("annotations").get(lastApplied); applied.ok() {
		d := &doc{}
		if d.parse(applied.str()) == nil && (ref{d, 0}).get("metadata").get("annotations").get(Annotation).ok() {
			out = append(out, Owner{Manager: "kubectl", Operation: "last-applied-configuration", APIVersion: string(ref{d, 0}.get("apiVersion").str())})
		}
	}
	return out
}

// Export makes a manifest of an object that was read: without the annotation, managedFields, status, and what else only
// the server sets. It also returns what the annotation kept, by version, that is not in the manifest: export at the newest
// version and there is nothing. A copy in quarantine is an error: see [WithQuarantine].
func Export(raw []byte) (manifest []byte, left map[string][]Change, err error) {
	d := &doc{}
	if err := d.parse(raw); err != nil {
		return nil, nil, fmt.Errorf("export: %w", err)
	}
	root := ref{d, 0}
	if root.kind() != '{' {
		return nil, nil, fmt.Errorf("export: found %s, not an object", shapeOf(root))
	}
	o := object{body: root, meta: root.get("metadata")}
	o.readMeta()
	if o.stash.ok() {
		aside := &doc{}
		if aside.parse(o.stash.str()) == nil && (ref{aside, 0}).get(bodyName).ok() {
			return nil, nil, fmt.Errorf("export: the object is in quarantine and holds a part of itself; read it at version %s", ref{aside, 0}.get(fromName).str())
		}
		if left, err = (&Converter{}).readStash(&o); err != nil {
			return nil, nil, fmt.Errorf("export: %w", err)
		}
	}
	drop := []string{"managedFields", "resourceVersion", "uid", "generation", "creationTimestamp", "selfLink", "deletionTimestamp", "deletionGracePeriodSeconds"}
	b := []byte{'{'}
	for m := range root.children() {
		name := string(m.name())
		if name == "status" {
			continue
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(appendString(b, name), ':')
		if name != "metadata" || m.kind() != '{' {
			b = append(b, m.bytes()...)
			continue
		}
		b = append(b, '{')
		first := len(b)
		for f := range m.children() {
			if slices.Contains(drop, string(f.name())) {
				continue
			}
			value := f.bytes()
			if string(f.name()) == "annotations" && f.kind() == '{' {
				if value = exported(f); len(value) == len("{}") {
					continue
				}
			}
			if len(b) > first {
				b = append(b, ',')
			}
			b = append(appendString(b, f.name()), ':')
			b = append(b, value...)
		}
		b = append(b, '}')
	}
	return append(b, '}'), left, nil
}

// exported is annotations without those that only make sense on a server.
func exported(annotations ref) []byte {
	b := []byte{'{'}
	for m := range annotations.children() {
		if name := string(m.name()); name == Annotation || name == lastApplied {
			continue
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(appendString(b, m.name()), ':')
		b = append(b, m.bytes()...)
	}
	return append(b, '}')
}
