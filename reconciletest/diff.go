// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package reconciletest

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// change is one field that differs.
type change struct{ path, was, is string }

// mostChanges bounds the report of one object: the first few fields name the culprit.
const mostChanges = 10

// diff lists the fields that differ between two objects of one type, in the order of the struct and of sorted keys.
func diff(was, is any) []change {
	var d differ
	d.walk("", reflect.ValueOf(was), reflect.ValueOf(is))
	return d.changes
}

type differ struct{ changes []change }

func (d *differ) add(path string, was, is reflect.Value) {
	if len(d.changes) < mostChanges {
		d.changes = append(d.changes, change{strings.TrimPrefix(path, "."), show(was), show(is)})
	}
}

func (d *differ) walk(path string, was, is reflect.Value) {
	if !was.IsValid() || !is.IsValid() {
		if was.IsValid() != is.IsValid() {
			d.add(path, was, is)
		}
		return
	}
	if was.Type() != is.Type() {
		d.add(path, was, is)
		return
	}
	switch was.Kind() {
	case reflect.Pointer, reflect.Interface:
		if was.IsNil() || is.IsNil() {
			if was.IsNil() != is.IsNil() {
				d.add(path, was, is)
			}
			return
		}
		d.walk(path, was.Elem(), is.Elem())
	case reflect.Struct:
		d.walkStruct(path, was, is)
	case reflect.Map:
		d.walkMap(path, was, is)
	case reflect.Slice, reflect.Array:
		d.walkList(path, was, is)
	default:
		if !was.Equal(is) {
			d.add(path, was, is)
		}
	}
}

func (d *differ) walkStruct(path string, was, is reflect.Value) {
	t := was.Type()
	// Times and quantities keep their value, and sometimes a memory of having been printed, in private fields: their
	// wire form is what counts.
	if !slices.ContainsFunc(reflect.VisibleFields(t), func(f reflect.StructField) bool { return f.IsExported() && !f.Anonymous }) {
		if wire(was) != wire(is) {
			d.add(path, was, is)
		}
		return
	}
	for i := range t.NumField() {
		f := t.Field(i)
		if !f.IsExported() {
			continue
		}
		name, opts, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "", strings.Contains(opts, "inline"):
			d.walk(path, was.Field(i), is.Field(i))
		case path == "" && isUnstructured(t):
			d.walk("", was.Field(i), is.Field(i))
		case name == "" || name == "-":
			d.walk(path+"."+f.Name, was.Field(i), is.Field(i))
		default:
			d.walk(path+"."+name, was.Field(i), is.Field(i))
		}
	}
}

// isUnstructured recognises the one struct whose only field is the object itself.
func isUnstructured(t reflect.Type) bool {
	return t.Name() == "Unstructured" && t.NumField() == 1 && t.Field(0).Name == "Object"
}

func (d *differ) walkMap(path string, was, is reflect.Value) {
	if was.IsNil() != is.IsNil() {
		d.add(path, was, is)
		return
	}
	keys := map[string]reflect.Value{}
	for _, m := range []reflect.Value{was, is} {
		for _, k := range m.MapKeys() {
			keys[fmt.Sprint(k.Interface())] = k
		}
	}
	names := make([]string, 0, len(keys))
	for n := range keys {
		names = append(names, n)
	}
	slices.Sort(names)
	for _, n := range names {
		// Fields of an unstructured object read like fields; keys of a typed map are data.
		at := path + "[" + n + "]"
		if was.Type().Elem().Kind() == reflect.Interface {
			at = path + "." + n
		}
		d.walk(at, was.MapIndex(keys[n]), is.MapIndex(keys[n]))
	}
}

func (d *differ) walkList(path string, was, is reflect.Value) {
	if was.Kind() == reflect.Slice && was.IsNil() != is.IsNil() || was.Len() != is.Len() {
		d.add(path, was, is)
		return
	}
	if was.Type().Elem().Kind() == reflect.Uint8 {
		if wire(was) != wire(is) {
			d.add(path, was, is)
		}
		return
	}
	for i := range was.Len() {
		d.walk(path+"["+strconv.Itoa(i)+"]", was.Index(i), is.Index(i))
	}
}

// wire is a value as the API would send it. The value is copied first: printing a quantity writes into it.
func wire(v reflect.Value) string {
	c := reflect.New(v.Type())
	c.Elem().Set(v)
	data, err := json.Marshal(c.Interface())
	if err != nil {
		return fmt.Sprintf("%v (%v)", v.Interface(), err)
	}
	return string(data)
}

// show prints a value, shortened.
func show(v reflect.Value) string {
	const longest = 80
	if !v.IsValid() {
		return "nothing"
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface, reflect.Map, reflect.Slice:
		if v.IsNil() {
			return "nothing"
		}
	}
	text := wire(v)
	if len(text) > longest {
		text = strings.ToValidUTF8(text[:longest], "") + "…"
	}
	return text
}
