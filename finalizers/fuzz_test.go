// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package finalizers_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ashlar-go/ashlar/finalizers"
)

// listOf makes a list of finalizers out of letters: o is ours, f and g are former names, everything else somebody's.
func listOf(letters string) []string {
	var list []string
	for _, c := range []byte(letters) {
		switch c {
		case 'o':
			list = append(list, name)
		case 'f':
			list = append(list, former)
		case 'g':
			list = append(list, olderName)
		default:
			list = append(list, "example.com/x"+string('a'+c%26))
		}
	}
	return list
}

func foreign(list []string) []string {
	return slices.DeleteFunc(append([]string{}, list...), func(s string) bool { return s == name || s == former || s == olderName })
}

// FuzzLists: whatever the list, and whatever another controller makes of it between read and write, ours is on a live
// object and off a terminating one in the end, former names are gone, and the others are what that controller said,
// in its order.
func FuzzLists(f *testing.F) {
	for _, seed := range []string{"", "o", "oo", "oxo", "xoy", "f", "fg", "gof", "xfyg"} {
		f.Add(seed, seed, false)
		f.Add(seed, "z"+seed, false)
		f.Add("x"+seed+"o", seed+"o", true)
		f.Add("ox", "x", true)
	}
	f.Fuzz(lists)
}

// TestRandomLists is FuzzLists without a fuzzer: the same walk every time.
func TestRandomLists(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	letters := func() string {
		b := make([]byte, r.IntN(7))
		for i := range b {
			b[i] = "oofgxyz"[r.IntN(7)]
		}
		return string(b)
	}
	for range 120 {
		read, meanwhile := letters(), letters()
		if r.IntN(3) == 0 {
			meanwhile = read
		}
		lists(t, read, meanwhile, r.IntN(2) == 0)
	}
}

func lists(t *testing.T, read, meanwhile string, deleted bool) {
	if len(read) > 12 || len(meanwhile) > 12 {
		return // longer lists show nothing new
	}
	from, to := listOf(read), listOf(meanwhile)
	make := configMap
	if deleted {
		make = terminating
		if len(from) == 0 {
			return // such an object does not exist
		}
		// The server takes no new names on a terminating object.
		to = slices.DeleteFunc(to, func(s string) bool { return !slices.Contains(from, s) })
	}
	w := newWorld(t, make("a", from...))
	w.before = func(n int, _ string) error {
		if n == 0 && !slices.Equal(from, to) {
			w.set("a", to...)
		}
		return nil
	}
	obj := w.get("a")
	before := slices.Clone(obj.Finalizers)
	fin := mustNew(t, []step{{Name: "s", Do: done}}, finalizers.WithFormerNames(former, olderName))
	var a applied
	res, err := fin.Sync(t.Context(), w, w, obj, a.apply)
	if err != nil {
		t.Fatalf("%q then %q: %v", from, to, err)
	}
	if diff := cmp.Diff(before, obj.Finalizers); diff != "" {
		t.Fatalf("the argument was changed: %s", diff)
	}
	if len(w.sent) == 0 {
		to = from // nobody got a chance to act
	}
	if !w.exists("a") {
		if !deleted || len(foreign(to)) > 0 || a.calls > 0 {
			t.Fatalf("%q then %q: gone, %d calls of apply", from, to, a.calls)
		}
		return
	}
	got := w.get("a").Finalizers
	if diff := cmp.Diff(foreign(to), foreign(got)); diff != "" {
		t.Fatalf("%q then %q: others (-want +got):\n%s", from, to, diff)
	}
	if deleted {
		if len(got) != len(foreign(got)) || res.Phase != finalizers.Released || a.calls > 0 {
			t.Fatalf("%q then %q: %q is left, %v, %d calls of apply", from, to, got, res.Phase, a.calls)
		}
		return
	}
	if !slices.Contains(got, name) || slices.Contains(got, former) || slices.Contains(got, olderName) || a.calls != 1 {
		t.Fatalf("%q then %q: stored %q, %d calls of apply", from, to, got, a.calls)
	}
}

// FuzzProgress: whatever the annotation holds, reading never fails hard, a cleanup that is not over keeps the
// finalizer, and what is written is read back as what it was.
func FuzzProgress(f *testing.F) {
	for _, seed := range []string{
		"", "{", "null", "[]", `{"uid":1}`, `{"by":null}`, `{"uid":"` + string(uid) + `","by":{"example.com/cleanup":null}}`,
		entry(`[]`), entry(`null`), entry(`[{"step":"a","state":"Done"}]`), entry(`[{"step":"a","state":"Wait","since":"yesterday"}]`),
		entry(`[{"step":"a","state":"Done"},{"step":"b","state":"Done"}]`), entry(`[{"step":"b","state":"BlockedBy","blocker":{}}]`),
		entry(`[{"step":"a","state":"Done"},{"step":"a","state":"Wait"}]`), strings.Replace(entry(`[]`), "example.com", "another.com", 1),
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		// No API server hands out anything else: its JSON has U+FFFD in the place of what is not UTF-8.
		value = strings.ToValidUTF8(value, "\uFFFD")
		obj := terminating("a", name, other)
		obj.Annotations = map[string]string{finalizers.Annotation: value}
		if stored, ok := finalizers.ProgressOf(obj); ok && (stored.Finalizer == "" || stored.String() == "") {
			t.Errorf("read %+v", stored)
		}
		w := newWorld(t, obj)
		var log []string
		fin := mustNew(t, []step{{Name: "a", Do: done}, {Name: "b", After: []string{"a"}, Do: say(&log, "b", finalizers.Wait(0))}})
		over := fin.Plan(w.get("a"), start()).Verb == finalizers.Release
		res, err := fin.Sync(t.Context(), w, w, w.get("a"), nil)
		if err != nil {
			t.Fatal(err)
		}
		if over {
			if res.Phase != finalizers.Released || log != nil {
				t.Errorf("all over: %v after %q", res.Phase, log)
			}
			return
		}
		if !slices.Contains(w.get("a").Finalizers, name) {
			t.Fatal("released although a step waits")
		}
		stored, ok := finalizers.ProgressOf(w.get("a"))
		if want := res.Progress.String(); stored.Finalizer == name && (!ok || stored.String() != want) {
			t.Errorf("stored %q, want %q", stored, want)
		}
		w.sent = nil
		if _, err := fin.Sync(t.Context(), w, w, w.get("a"), nil); err != nil {
			t.Fatal(err)
		}
		w.wantSent()
	})
}
