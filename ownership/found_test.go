// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ownership_test

import (
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/ownership"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var claimKind = corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim")

func foundSet(t *testing.T, kind ownership.Kind) *ownership.Set {
	t.Helper()
	s, err := ownership.New("volumes", databaseKind, []ownership.Kind{kind}, ownership.WithFinalizer(finalizer))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestFound: the volumes of a StatefulSet carry the claim of its template. Nobody here knows which ones are still used.
func TestFound(t *testing.T) {
	t.Parallel()
	s := foundSet(t, ownership.Kind{GroupVersionKind: claimKind, Found: true})
	volume := object(claimKind, "team-a", "data-0", uid("v"), version("5"), claimed(s, database()))
	everything := ownership.Policy{AllowEmpty: true, Protect: []schema.GroupKind{}}
	if d := only(t, plan(t, s, database(), nil, objects(volume), everything)); d.Verb != ownership.Keep {
		t.Errorf("a pass should not prune what others create: %s", d)
	}
	if _, err := s.Plan(database(), objects(object(claimKind, "team-a", "data-1")), nil, everything); err == nil || !strings.Contains(err.Error(), "others create it") {
		t.Errorf("declaring one: %v", err)
	}
	p, err := s.Teardown(database(terminating()), objects(volume), nil)
	if err != nil || only(t, p).Verb != ownership.Prune {
		t.Errorf("a teardown removes it: %s, %v", p, err)
	}
	if p, err = s.Teardown(database(terminating(), finalizers(finalizer, "orphan")), objects(volume), nil); err != nil || only(t, p).Verb != ownership.Release {
		t.Errorf("an orphan deletion leaves it: %s, %v", p, err)
	}
}

func TestVerbs(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		reason string
		kind   ownership.Kind
		want   string
	}{
		"applied":         {"everything", ownership.Kind{}, "create delete get list patch watch"},
		"retired":         {"none is created", ownership.Kind{Retired: true}, "delete get list patch watch"},
		"found":           {"others create it, and it may be released", ownership.Kind{Found: true}, "delete get list patch watch"},
		"found, needed":   {"nor is it released", ownership.Kind{Found: true, NeededByCleanup: true}, "delete get list watch"},
		"applied, needed": {"patch also updates", ownership.Kind{NeededByCleanup: true}, "create delete get list patch watch"},
	} {
		c.kind.GroupVersionKind = claimKind
		if diff := cmp.Diff(c.want, strings.Join(c.kind.Verbs(), " ")); diff != "" {
			t.Errorf("%s (%s): %s", name, c.reason, diff)
		}
		if rules := foundSet(t, c.kind).Rules(); !strings.Contains(rules, "["+strings.ReplaceAll(c.want, " ", ", ")+"]") {
			t.Errorf("%s: the rules say %s", name, rules)
		}
	}
}

func TestFoundIsDeclaredAlone(t *testing.T) {
	t.Parallel()
	for name, kind := range map[string]ownership.Kind{
		"native":  {GroupVersionKind: claimKind, Found: true, Carrier: ownership.Native},
		"retired": {GroupVersionKind: claimKind, Found: true, Retired: true},
	} {
		if _, err := ownership.New("volumes", databaseKind, []ownership.Kind{kind}, ownership.WithFinalizer(finalizer)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := ownership.New("volumes", databaseKind, []ownership.Kind{{GroupVersionKind: claimKind, Found: true}}); err == nil {
		t.Error("no collector knows the claim, so the owner needs a finalizer")
	}
}
