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

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// source knows how one Go representation of a kind holds its status.
type source interface {
	// read returns v with the parts that come from the status. payload is an addressable value of the payload type; the
	// invalid Value asks for no comparison.
	read(obj client.Object, payload reflect.Value, v view) view
	empty() client.Object // a new object to decode into
	holds(obj client.Object) bool
	decode(raw []byte) (client.Object, error)
}

// newSource looks the kind's Go type over, once.
func newSource(kind client.Object, o *owned, payload []field, gvk schema.GroupVersionKind) (source, error) {
	switch kind.(type) {
	case *metav1.PartialObjectMetadata:
		return nil, errors.New("metadata alone has no status")
	case *unstructured.Unstructured:
		c := dataCompiler{done: map[reflect.Type]*sameData{}}
		s := &loose{path: o.path, primary: o.primary, gvk: gvk, seed: o.seed}
		for _, f := range payload {
			s.payload = append(s.payload, loosePair{f, c.field(f)})
		}
		return s, nil
	}
	return newTyped(reflect.TypeOf(kind), o, payload)
}

// typed reads Go structs by field position.
type typed struct {
	typ        reflect.Type // the struct
	conditions []int        // position of the list; nil when the type has none
	named      reflect.Type // pointer to the list's type when that is a named one
	observed   []int
	status     []int
	payload    []livePair
	seed       maphash.Seed
}

type livePair struct {
	want, live field
	same       same
}

var conditionList = reflect.TypeFor[[]metav1.Condition]()

func newTyped(t reflect.Type, o *owned, payload []field) (*typed, error) {
	if t.Kind() != reflect.Pointer || t.Elem().Kind() != reflect.Struct {
		return nil, fmt.Errorf("%s is no pointer to a struct", t)
	}
	s := &typed{typ: t.Elem(), seed: o.seed}
	status, ok := fieldAt(s.typ, []string{"status"})
	if !ok || structOf(status.typ) == nil {
		return nil, fmt.Errorf("%s has no status struct", t)
	}
	s.status = status.index
	var errs []error
	list, ok := fieldAt(s.typ, o.path)
	switch {
	case !ok && len(o.index) > 0:
		errs = append(errs, fmt.Errorf("%s has no field %s", t, strings.Join(o.path, ".")))
	case ok && list.typ == conditionList:
		s.conditions = list.index
	case ok && list.typ.Kind() == reflect.Slice && list.typ.Elem() == conditionList.Elem():
		s.conditions, s.named = list.index, reflect.PointerTo(conditionList)
	case ok && len(o.index) > 0:
		errs = append(errs, fmt.Errorf("%s of %s is %s, not a list of metav1.Condition", strings.Join(o.path, "."), t, list.typ))
	}
	if o.primary {
		og, ok := fieldAt(s.typ, []string{"status", observedGeneration})
		if !ok || (og.typ.Kind() != reflect.Int64 && og.typ != reflect.TypeFor[*int64]()) {
			errs = append(errs, fmt.Errorf("%s has no status.observedGeneration int64, which a Primary writer owns", t))
		}
		s.observed = og.index
	}
	c := compiler{done: map[typePair]*same{}}
	live := jsonFields(structOf(status.typ))
	for _, f := range payload {
		at := -1
		for i := range live {
			if live[i].name == f.name {
				at = i
			}
		}
		if at < 0 {
			errs = append(errs, fmt.Errorf("payload field %q is no field of %s's status: the server would drop it", f.name, t))
			continue
		}
		s.payload = append(s.payload, livePair{f, live[at], c.compile(f.typ, live[at].typ)})
	}
	return s, errors.Join(errs...)
}

func structOf(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	return t
}

// fieldAt finds a field by its path of JSON names; its index starts at t.
func fieldAt(t reflect.Type, path []string) (field, bool) {
	var at field
	for i, name := range path {
		s := t
		if i > 0 {
			s = structOf(at.typ)
		}
		if s == nil {
			return field{}, false
		}
		ok := false
		for _, f := range jsonFields(s) {
			if f.name == name {
				f.index = append(append([]int(nil), at.index...), f.index...)
				at, ok = f, true
				break
			}
		}
		if !ok {
			return field{}, false
		}
	}
	return at, len(path) > 0
}

func (s *typed) empty() client.Object { return reflect.New(s.typ).Interface().(client.Object) }

func (s *typed) holds(obj client.Object) bool {
	t := reflect.TypeOf(obj)
	return t.Kind() == reflect.Pointer && t.Elem() == s.typ && !reflect.ValueOf(obj).IsNil()
}

func (s *typed) decode(raw []byte) (client.Object, error) {
	obj := s.empty()
	return obj, json.Unmarshal(raw, obj)
}

func (s *typed) read(obj client.Object, payload reflect.Value, v view) view {
	v.named = len(obj.GetManagedFields()) > 0
	root := reflect.ValueOf(obj).Elem()
	if s.conditions != nil {
		if list := follow(root, s.conditions); list.IsValid() {
			p := list.Addr()
			if s.named != nil {
				p = p.Convert(s.named)
			}
			v.conditions = *p.Interface().(*[]metav1.Condition)
		}
	}
	if s.observed != nil {
		if og := follow(root, s.observed); og.IsValid() {
			if og.Kind() == reflect.Pointer {
				og = og.Elem()
			}
			if og.IsValid() {
				v.observed = og.Int()
			}
		}
	}
	if !payload.IsValid() {
		return v
	}
	status := follow(root, s.status)
	if status.Kind() == reflect.Pointer {
		status = status.Elem()
	}
	for i := range s.payload {
		p := &s.payload[i]
		want := p.want.in(payload)
		var live reflect.Value
		if status.IsValid() {
			live = p.live.in(status)
		}
		nothing := !live.IsValid() || says0(live)
		if p.want.absent(want) {
			if !nothing {
				v.extra |= 1 << i
				v.addOdd(s.seed, i, live.Addr().Interface())
			}
			continue
		}
		if !live.IsValid() {
			v.differs |= 1 << i
			v.addOdd(s.seed, i, nil)
		} else if !p.same(want, live) {
			v.differs |= 1 << i
			v.addOdd(s.seed, i, live.Addr().Interface())
		}
	}
	return v
}

// loose reads unstructured objects. What is not of the expected form counts as absent and never panics.
type loose struct {
	path    []string
	primary bool
	payload []loosePair
	seed    maphash.Seed
	gvk     schema.GroupVersionKind
}

type loosePair struct {
	want field
	same sameData
}

func (s *loose) empty() client.Object {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(s.gvk)
	return u
}

func (s *loose) holds(obj client.Object) bool {
	u, ok := obj.(*unstructured.Unstructured)
	return ok && u != nil && u.Object != nil
}

func (s *loose) decode(raw []byte) (client.Object, error) {
	u := &unstructured.Unstructured{}
	return u, u.UnmarshalJSON(raw)
}

func (s *loose) read(obj client.Object, payload reflect.Value, v view) view {
	at := obj.(*unstructured.Unstructured).Object
	if m, ok := at["metadata"].(map[string]any); ok { // GetManagedFields would decode them all
		entries, _ := m["managedFields"].([]any)
		v.named = len(entries) > 0
	}
	status, _ := at["status"].(map[string]any)
	for _, name := range s.path[:len(s.path)-1] {
		at, _ = at[name].(map[string]any)
	}
	if list, ok := at[s.path[len(s.path)-1]].([]any); ok && len(list) > 0 {
		v.conditions = make([]metav1.Condition, len(list))
		for i, item := range list {
			if m, ok := item.(map[string]any); ok {
				readCondition(m, &v.conditions[i])
			}
		}
	}
	if s.primary {
		v.observed = number(status[observedGeneration])
	}
	if !payload.IsValid() {
		return v
	}
	for i := range s.payload {
		p := &s.payload[i]
		want := p.want.in(payload)
		live, ok := status[p.want.name]
		switch {
		case p.want.absent(want):
			if ok {
				v.extra |= 1 << i
				v.addOdd(s.seed, i, live)
			}
		case !ok || !p.same(want, live):
			v.differs |= 1 << i
			v.addOdd(s.seed, i, live)
		}
	}
	return v
}

func readCondition(m map[string]any, c *metav1.Condition) {
	c.Type, _ = m["type"].(string)
	status, _ := m["status"].(string)
	c.Status = metav1.ConditionStatus(status)
	c.Reason, _ = m["reason"].(string)
	c.Message, _ = m["message"].(string)
	c.ObservedGeneration = number(m["observedGeneration"])
	if s, ok := m["lastTransitionTime"].(string); ok {
		if at, err := time.Parse(time.RFC3339, s); err == nil { // else zero: it is then written anew
			c.LastTransitionTime = metav1.NewTime(at)
		}
	}
}

func number(v any) int64 {
	switch n := v.(type) {
	case int64:
		return n
	case float64:
		return int64(n)
	}
	return 0
}
