// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package finalizers_test

import (
	"strings"
	"testing"
	"time"

	"github.com/ashlar-go/ashlar/finalizers"
)

func TestNew(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		reason string
		name   string
		steps  []step
		opts   []finalizers.Option
		want   []string // substrings of the error; none means no error
	}{
		"good": {
			reason: "what the documentation shows",
			name:   name, steps: []step{{Name: "a", Do: done}, {Name: "b", After: []string{"a", "a"}, Do: done, Deadline: 1, Overrun: finalizers.Skip}},
			opts: []finalizers.Option{finalizers.WithFormerNames("old.example.com/x"), finalizers.WithObserver(nil), nil},
		},
		"no steps": {reason: "a finalizer alone is a hold", name: name},
		"cycle": {
			reason: "the path says which edges to look at", name: name,
			steps: []step{
				{Name: "free", Do: done},
				{Name: "a", After: []string{"c"}, Do: done}, {Name: "b", After: []string{"a"}, Do: done}, {Name: "c", After: []string{"b"}, Do: done},
			},
			want: []string{"new finalizer example.com/cleanup: ", "wait for each other: a after c after b after a"},
		},
		"cycle with a tail": {
			reason: "a step that only leads into the cycle is not part of it", name: name,
			steps: []step{{Name: "tail", After: []string{"a"}, Do: done}, {Name: "a", After: []string{"b"}, Do: done}, {Name: "b", After: []string{"a"}, Do: done}},
			want:  []string{"wait for each other: a after b after a"},
		},
		"self": {
			reason: "the smallest cycle", name: name,
			steps: []step{{Name: "a", After: []string{"a"}, Do: done}}, want: []string{"a after a"},
		},
		"unknown and repeated": {
			reason: "every finding at once, so that one look is enough", name: name,
			steps: []step{{Name: "a", After: []string{"x"}, Do: done}, {Name: "a", Do: done}, {Name: "b"}, {Name: "", Do: done}, {Name: "no spaces", Do: done}},
			want:  []string{`"a": After names unknown step "x"`, `"a": declared twice`, `"b": Do is nil`, `step 3: name ""`, `step 4: name "no spaces"`},
		},
		"deadline": {
			reason: "a negative time is a mistake of unit or sign", name: name,
			steps: []step{{Name: "a", Deadline: -time.Second, Do: done}}, want: []string{"Deadline -1s is negative"},
		},
		"overrun": {
			reason: "it would never happen", name: name,
			steps: []step{{Name: "a", Overrun: finalizers.Skip, Do: done}}, want: []string{"no Deadline"},
		},
		"policy": {
			reason: "only the declared constants", name: name,
			steps: []step{{Name: "a", InTerminatingNamespace: 7, Do: done}}, want: []string{"unknown Policy"},
		},
		"empty name":    {reason: "the server refuses it", name: "", want: []string{`finalizer ""`}},
		"no domain":     {reason: "built-in kinds refuse it", name: "cleanup", want: []string{"domain prefix"}},
		"gc's own":      {reason: "it would never be ours alone", name: "foregroundDeletion", want: []string{"domain prefix"}},
		"illegal":       {reason: "422 at the first write", name: "example.com/a b", want: []string{"example.com/a b"}},
		"hold":          {reason: "Sweep would take it for a hold", name: "ashlar-go.github.io/hold-x", want: []string{"belongs to Hold"}},
		"former":        {reason: "checked like the name", name: name, opts: []finalizers.Option{finalizers.WithFormerNames("x")}, want: []string{`"x"`}},
		"former, again": {reason: "it would rename itself for ever", name: name, opts: []finalizers.Option{finalizers.WithFormerNames(name)}, want: []string{"declared twice"}},
		"clock":         {reason: "would panic at the first deletion", name: name, opts: []finalizers.Option{finalizers.WithClock(nil)}, want: []string{"WithClock"}},
	}
	for title, tt := range tests {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			f, err := finalizers.New(tt.name, tt.steps, tt.opts...)
			if (err == nil) != (tt.want == nil) || (f == nil) != (tt.want != nil) {
				t.Fatalf("%s: New = %v, %v", tt.reason, f, err)
			}
			if err == nil {
				if f.Name() != tt.name {
					t.Errorf("Name = %q", f.Name())
				}
				return
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%s: error %q, want %q in it", tt.reason, err, want)
				}
			}
		})
	}
}

// TestNewIsDeterministic: the order of calls is that of declaration wherever dependencies leave a choice.
func TestNewIsDeterministic(t *testing.T) {
	t.Parallel()
	for range 20 {
		var log []string
		f := mustNew(t, []step{
			{Name: "z", After: []string{"m"}, Do: say(&log, "z", finalizers.Done())},
			{Name: "y", Do: say(&log, "y", finalizers.Done())},
			{Name: "m", Do: say(&log, "m", finalizers.Done())},
			{Name: "a", Do: say(&log, "a", finalizers.Done())},
		})
		w := newWorld(t, terminating("a", name))
		if _, err := f.Sync(t.Context(), w, w, w.get("a"), nil); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(log, " "); got != "y m a z" {
			t.Fatalf("calls %q", got)
		}
	}
}
