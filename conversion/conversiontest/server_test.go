// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conversiontest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/conversion"
	"github.com/ashlar-go/ashlar/conversion/conversiontest"
)

// faulty is an API server with a fault.
type faulty struct {
	applying
	applies func(obj []byte) []byte
	patches func(s *conversiontest.Server, name string)
	shows   func(conversiontest.Event) conversiontest.Event
}

func (f faulty) Apply(ctx context.Context, version, manager string, obj []byte) error {
	if f.applies != nil {
		obj = f.applies(obj)
	}
	return f.applying.Apply(ctx, version, manager, obj)
}

func (f faulty) Patch(ctx context.Context, version, name string, patch []byte) error {
	err := f.applying.Patch(ctx, version, name, patch)
	if err == nil && f.patches != nil {
		f.patches(f.Server, name)
	}
	return err
}

func (f faulty) Watch(ctx context.Context, version, name string) (func() (conversiontest.Event, error), error) {
	next, err := f.applying.Watch(ctx, version, name)
	if err != nil || f.shows == nil {
		return next, err
	}
	return func() (conversiontest.Event, error) {
		e, err := next()
		return f.shows(e), err
	}, nil
}

// Walks notice whatever kind of step goes wrong.
func TestWalksNoticeEveryKindOfStep(t *testing.T) {
	t.Parallel()
	c, crd := newGadgets(t, 2), gadgetCRD(2, "v1alpha1", nil)
	h, err := conversion.Handler([]*conversion.Converter{c})
	if err != nil {
		t.Fatal(err)
	}
	m, err := newManagers(h, crd)
	if err != nil {
		t.Fatal(err)
	}
	without := func(raw []byte, name string) []byte {
		var o map[string]any
		if err := json.Unmarshal(raw, &o); err != nil {
			t.Error(err)
		}
		if spec, ok := o["spec"].(map[string]any); ok {
			delete(spec, name)
		}
		out, err := json.Marshal(o)
		if err != nil {
			t.Error(err)
		}
		return out
	}
	for name, tt := range map[string]struct {
		reason string
		f      faulty
		says   string
	}{
		"apply": {"a field is not merged", faulty{applies: func(raw []byte) []byte { return without(raw, "args") }}, "want what was applied"},
		"patch": {"the annotation is lost behind the client's back", faulty{patches: func(s *conversiontest.Server, name string) {
			raw, v, _ := s.Stored(name)
			var o map[string]any
			if json.Unmarshal(raw, &o) == nil {
				meta := o["metadata"].(map[string]any)
				if a, ok := meta["annotations"].(map[string]any); ok {
					delete(a, conversion.Annotation)
				}
				out, _ := json.Marshal(o)
				if err := s.Update(context.Background(), v, out); err != nil {
					t.Error(err)
				}
			}
		}}, "after patch at"},
		"watch": {"an event shows another object", faulty{shows: func(e conversiontest.Event) conversiontest.Event {
			e.Object = without(e.Object, "args")
			return e
		}}, "the event is not what is read"},
		"deletion": {"the last event is of another kind", faulty{shows: func(e conversiontest.Event) conversiontest.Event {
			e.Type = strings.Replace(e.Type, "DELETED", "MODIFIED", 1)
			return e
		}}, "no event of the deletion"},
	} {
		got := verdict(func(tb testing.TB) {
			conversiontest.Walks(tb, c, crd, conversiontest.WithN(100), conversiontest.WithAPI(func(s *conversiontest.Server) conversiontest.API {
				f := tt.f
				f.applying = applying{s, m}
				return f
			}))
		})
		if !strings.Contains(got, tt.says) {
			t.Errorf("%s (%s): the verdict is %.600q", name, tt.reason, got)
		}
	}
}

// The server writes as a real one does.
func TestServerWrites(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := lampServer()
	next, err := s.Watch(ctx, "v1beta1", "a")
	if err != nil {
		t.Fatal(err)
	}
	read, err := s.Get(ctx, "v1", "a")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Update(ctx, "v1", read); err != nil {
		t.Error(err)
	}
	if again, err := s.Get(ctx, "v1", "a"); err != nil || !bytes.Equal(read, again) {
		t.Errorf("a write that changes nothing: %s, then %s, %v", read, again, err)
	}
	if err := s.Patch(ctx, "v1", "a", []byte(`{"spec":{"power":null},"metadata":{"labels":{"a":"b"}}}`)); err != nil {
		t.Error(err)
	}
	if e, err := next(); err != nil || e.Type != "MODIFIED" || strings.Contains(string(e.Object), "watts") || !strings.Contains(string(e.Object), `"labels":{"a":"b"}`) {
		t.Errorf("the first event after the read: %s %s, %v", e.Type, e.Object, err)
	}
	if err := s.Update(ctx, "v1", read); err == nil || !strings.Contains(err.Error(), "resourceVersion") {
		t.Errorf("an update of an old state: %v", err)
	}
	for name, err := range map[string]error{
		"create twice":        s.Create(ctx, "v1", read),
		"patch of nothing":    s.Patch(ctx, "v1", "b", []byte(`{}`)),
		"patch that is none":  s.Patch(ctx, "v1", "a", []byte(`[]`)),
		"update of nothing":   s.Update(ctx, "v1", []byte(`{"metadata":{"name":"b"}}`)),
		"an object of no one": s.Create(ctx, "v1", []byte(`{"kind":"Lamp"}`)),
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	cancel()
	if _, err := next(); err == nil {
		t.Error("the watch goes on after its end")
	}
}
