// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// serverFields are metadata that only the server writes; in a declaration they are left-overs of a read.
var serverFields = [...]string{"creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation",
	"managedFields", "resourceVersion", "selfLink", "uid"}

// document turns a declared object into what an apply may send: exactly what was declared, without server fields,
// without an empty status, and, for Go types, without the nulls and zero structs their encoding adds. The input stays
// as it is; sub-trees of an unstructured input are shared and never written to.
func document(o Object, gvk schema.GroupVersionKind) (map[string]any, error) {
	var doc map[string]any
	if u, ok := o.(runtime.Unstructured); ok {
		doc = maps.Clone(u.UnstructuredContent())
		doc["metadata"] = cloneMap(doc["metadata"])
	} else {
		m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
		if err != nil {
			return nil, fmt.Errorf("encode %s %s/%s: %w", gvk.Kind, o.GetNamespace(), o.GetName(), err)
		}
		doc = m
		dropUndeclared(doc)
		if ref, ok := doc["roleRef"].(map[string]any); ok && ref["apiGroup"] == "" {
			delete(ref, "apiGroup") // not omitempty in the Go type, defaulted by the server
		}
		if _, ok := doc["metadata"].(map[string]any); !ok {
			doc["metadata"] = map[string]any{}
		}
	}
	doc["apiVersion"], doc["kind"] = gvk.GroupVersion().String(), gvk.Kind
	md := doc["metadata"].(map[string]any)
	for _, f := range serverFields {
		delete(md, f)
	}
	if notes, ok := md["annotations"].(map[string]any); ok {
		if _, stale := notes[AppliedAnnotation]; stale {
			notes = maps.Clone(notes)
			delete(notes, AppliedAnnotation)
			md["annotations"] = notes
		}
	}
	if st, ok := doc["status"]; ok && isZero(st) {
		delete(doc, "status")
	}
	if gvk.Group == "" && gvk.Kind == "Secret" {
		foldStringData(doc)
	}
	return doc, nil
}

// foldStringData does what the server does on write, because the write-only field can never be read back and would
// look like drift for ever.
func foldStringData(doc map[string]any) {
	text, ok := doc["stringData"].(map[string]any)
	if !ok {
		return
	}
	data := cloneMap(doc["data"])
	for k, v := range text {
		s, _ := v.(string)
		data[k] = base64.StdEncoding.EncodeToString([]byte(s))
	}
	doc["data"] = data
	delete(doc, "stringData")
}

// dropUndeclared removes what the encoding of Go types adds and nobody declared: nulls of nil slices, maps and times
// without omitempty, and the zero targetPort of a ServicePort, which the server replaces with the port.
func dropUndeclared(v any) {
	switch t := v.(type) {
	case map[string]any:
		for k, e := range t {
			if e == nil || (k == "targetPort" && (e == int64(0) || e == "")) {
				delete(t, k)
				continue
			}
			dropUndeclared(e)
		}
	case []any:
		for _, e := range t {
			dropUndeclared(e)
		}
	}
}

func isZero(v any) bool {
	switch t := v.(type) {
	case nil:
		return true
	case map[string]any:
		for _, e := range t {
			if !isZero(e) {
				return false
			}
		}
		return true
	case []any:
		return len(t) == 0
	case string:
		return t == ""
	case bool:
		return !t
	case int64:
		return t == 0
	case float64:
		return t == 0
	}
	return false
}

// digest hashes a JSON tree independently of map order. 128 bits of sha256 in hex: the value is compared with what
// an earlier process stored, so it must not depend on the process.
func digest(v any) string {
	sum := sha256.Sum256(canonical(make([]byte, 0, 1024), v))
	return hex.EncodeToString(sum[:16])
}

// canonical appends a form of a JSON tree that differs whenever the tree does: every text and every collection starts
// with its length, map keys are sorted.
func canonical(b []byte, v any) []byte {
	switch t := v.(type) {
	case nil:
		return append(b, 'n')
	case bool:
		return strconv.AppendBool(b, t)
	case string:
		b = append(strconv.AppendInt(append(b, 's'), int64(len(t)), 10), ':')
		return append(b, t...)
	case int64:
		return append(strconv.AppendInt(append(b, 'i'), t, 10), ';')
	case float64:
		return append(strconv.AppendFloat(append(b, 'f'), t, 'g', -1, 64), ';')
	case map[string]any:
		b = append(strconv.AppendInt(append(b, '{'), int64(len(t)), 10), ':')
		for _, k := range sortedKeys(t) {
			b = canonical(canonical(b, k), t[k])
		}
		return b
	case []any:
		b = append(strconv.AppendInt(append(b, '['), int64(len(t)), 10), ':')
		for _, e := range t {
			b = canonical(b, e)
		}
		return b
	}
	raw, err := json.Marshal(v) // hand-built unstructured content with other number or map types
	if err != nil {
		raw = fmt.Appendf(nil, "%#v", v)
	}
	return append(append(b, raw...), 'j')
}

// printOf digests what a live object holds where doc declares something: equal prints mean that nothing declared has
// changed since, whatever happened to status or to other people's labels.
func printOf(doc, live map[string]any) string {
	part := make(map[string]any, len(doc))
	for k, want := range doc {
		switch k {
		case "apiVersion", "kind", "status":
		case "metadata":
			md := map[string]any{}
			have, _ := live[k].(map[string]any)
			for f, w := range want.(map[string]any) {
				switch f {
				case "uid", "resourceVersion", "managedFields":
				case "labels", "annotations":
					sub := map[string]any{}
					hv, _ := have[f].(map[string]any)
					wv, _ := w.(map[string]any)
					for key := range wv {
						sub[key] = hv[key]
					}
					md[f] = sub
				default:
					md[f] = have[f]
				}
			}
			part[k] = md
		default:
			part[k] = live[k]
		}
	}
	return digest(part)
}

// content views an object as a JSON tree, read-only.
func content(o Object) (map[string]any, error) {
	if u, ok := o.(runtime.Unstructured); ok {
		return u.UnstructuredContent(), nil
	}
	return runtime.DefaultUnstructuredConverter.ToUnstructured(o)
}
