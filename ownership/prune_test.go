// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ownership_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/ownership"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func verbs(p ownership.Plan) map[string]ownership.Verb {
	out := map[string]ownership.Verb{}
	for _, d := range p.Decisions {
		out[d.Ref.String()] = d.Verb
	}
	return out
}

func TestArgoCD16600EmptyDesiredSetPrunesNothing(t *testing.T) {
	t.Parallel()
	s, owner := newSet(t), database()
	var live []ownership.Object
	for i := range 10 {
		live = append(live, stored(t, s, owner, configMap(fmt.Sprintf("x%d", i))))
	}
	tests := map[string]struct {
		reason  string
		desired []ownership.Object
		policy  ownership.Policy
		prunes  int
		refused bool
	}{
		"empty":            {"an empty set is more often a bug than a wish", nil, ownership.Policy{}, 0, true},
		"empty allowed":    {"the user said so", nil, ownership.Policy{AllowEmpty: true}, 10, false},
		"no cap":           {"the zero policy caps nothing else", objects(configMap("x0")), ownership.Policy{}, 9, false},
		"at the maximum":   {"9 of at most 9", objects(configMap("x0")), ownership.Policy{Max: 9}, 9, false},
		"over the maximum": {"9 of at most 8: none goes", objects(configMap("x0")), ownership.Policy{Max: 8}, 0, true},
		"over the percent": {"9 of 10 are more than half", objects(configMap("x0")), ownership.Policy{Percent: 50}, 0, true},
		"free":             {"4 free, 5 of 10 are half", objects(configMap("x0")), ownership.Policy{Percent: 50, Free: 4}, 9, false},
		"free and maximum": {"free counts against the maximum", objects(configMap("x0")), ownership.Policy{Max: 8, Free: 9}, 0, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, err := s.Plan(owner, test.desired, live, test.policy)
			prunes := 0
			for _, d := range p.Decisions {
				if d.Verb == ownership.Prune {
					prunes++
				}
			}
			var refused *ownership.PruneError
			if prunes != test.prunes || errors.As(err, &refused) != test.refused || errors.Is(err, ownership.ErrPruneRefused) != test.refused {
				t.Fatalf("%s: got %d prunes and error %v", test.reason, prunes, err)
			}
			if test.refused {
				if len(p.Decisions) != 10 || len(refused.Refused) != 10-len(test.desired) || refused.Members != 10 {
					t.Errorf("%s: the plan must come back with its keeps, got %d decisions, %v", test.reason, len(p.Decisions), refused)
				}
				if !strings.Contains(err.Error(), "Database team-a/orders") || !strings.Contains(err.Error(), "more") {
					t.Errorf("%s: the error must name owner and members: %v", test.reason, err)
				}
			}
		})
	}
}

func TestProtectedKindsStay(t *testing.T) {
	t.Parallel()
	s, owner := newSet(t), database()
	live := objects(stored(t, s, owner, object(namespaceKind, "", "data")), stored(t, s, owner, object(roleKind, "", "reader")))
	keepRoles := ownership.Policy{AllowEmpty: true, Protect: []schema.GroupKind{roleKind.GroupKind()}}
	none := ownership.Policy{AllowEmpty: true, Protect: []schema.GroupKind{}}
	for name, test := range map[string]struct {
		policy    ownership.Policy
		ns, roles ownership.Verb
	}{
		"default": {ownership.Policy{AllowEmpty: true}, ownership.Keep, ownership.Prune},
		"own":     {keepRoles, ownership.Prune, ownership.Keep},
		"none":    {none, ownership.Prune, ownership.Prune},
	} {
		got := verbs(plan(t, s, owner, nil, live, test.policy))
		if got["Namespace data"] != test.ns || got["ClusterRole reader"] != test.roles {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

func TestCliUtils274NamespaceWithMembersStays(t *testing.T) {
	t.Parallel()
	s, owner := newSet(t), database()
	nothing := ownership.Policy{AllowEmpty: true, Protect: []schema.GroupKind{}}
	ns := stored(t, s, owner, object(namespaceKind, "", "data"))
	inside := object(configMapKind, "data", "x")
	p := plan(t, s, owner, objects(inside), objects(ns), nothing)
	if got := verbs(p)["Namespace data"]; got != ownership.Keep || !strings.Contains(p.String(), "members still live in the namespace") {
		t.Errorf("a declared member: got %s:\n%s", got, p)
	}
	p = plan(t, s, owner, nil, objects(ns, stored(t, s, owner, inside)), nothing)
	if got := verbs(p); got["Namespace data"] != ownership.Keep || got["ConfigMap data/x"] != ownership.Prune {
		t.Errorf("a member on its way out: got %v", got)
	}
	if got := verbs(plan(t, s, owner, nil, objects(ns), nothing))["Namespace data"]; got != ownership.Prune {
		t.Errorf("an empty namespace: got %s", got)
	}
}

func TestKustomizeController338ChildOfAnotherOwnerIsNotPruned(t *testing.T) {
	t.Parallel()
	s, a, b := newSet(t), database(), database(uid("u2"), func(u *edited) { u.SetName("billing") })
	moved := stored(t, s, b, object(secretKind, "team-a", "x"))
	if p := plan(t, s, a, nil, objects(moved), ownership.Policy{AllowEmpty: true}); len(p.Decisions) != 0 {
		t.Errorf("got\n%s", p)
	}
}

// KEP-3659, security considerations: an update right is enough to label an object into somebody's prune.
func TestKEP3659LabelledObjectOfAnotherControllerIsConflict(t *testing.T) {
	t.Parallel()
	s, owner := newSet(t), database()
	live := object(secretKind, "team-a", "x", uid("c"), claimed(s, owner), ref("apps/v1", "ReplicaSet", "web", "u9", true))
	d := only(t, plan(t, s, owner, nil, objects(live), ownership.Policy{AllowEmpty: true}))
	if d.Verb != ownership.Conflict || !strings.Contains(d.Why, "ReplicaSet team-a/web (uid u9)") {
		t.Errorf("got %s", d)
	}
}

func TestKubernetes77081TerminatingMemberIsNotDeletedAgain(t *testing.T) {
	t.Parallel()
	s, owner := newSet(t), database()
	live := objects(stored(t, s, owner, configMap("x"), terminating()))
	for range 3 {
		if p := plan(t, s, owner, nil, live, ownership.Policy{AllowEmpty: true}); !p.Empty() || only(t, p).Verb != ownership.Wait {
			t.Fatalf("got\n%s", p)
		}
	}
}

// One object can be served by two groups, as Ingress was; deleting it under one deletes it under both.
func TestFlux3202SameObjectUnderTwoGroupsIsKept(t *testing.T) {
	t.Parallel()
	old := schema.GroupVersionKind{Group: "extensions", Version: "v1beta1", Kind: "Ingress"}
	now := schema.GroupVersionKind{Group: "networking.k8s.io", Version: "v1", Kind: "Ingress"}
	s, err := ownership.New("web", databaseKind, []ownership.Kind{{GroupVersionKind: old, Retired: true}, {GroupVersionKind: now}})
	if err != nil {
		t.Fatal(err)
	}
	owner := database()
	desired := object(now, "team-a", "x")
	live := stored(t, s, owner, desired)
	twin := live.DeepCopy()
	twin.SetGroupVersionKind(old)
	got := plan(t, s, owner, objects(desired), objects(live, twin), ownership.Policy{})
	for _, d := range got.Decisions {
		if d.Verb != ownership.Keep {
			t.Errorf("got %s", d)
		}
	}
	if len(got.Decisions) != 2 {
		t.Errorf("got\n%s", got)
	}
}

func TestPlanOrder(t *testing.T) {
	t.Parallel()
	s, owner := newSet(t), database()
	live := objects(
		stored(t, s, owner, configMap("b")), stored(t, s, owner, object(jobKind, "team-a", "j")),
		stored(t, s, owner, configMap("a")), stored(t, s, owner, object(secretKind, "team-a", "s")))
	desired := objects(configMap("z"), object(roleKind, "", "r"), configMap("y"))
	want := plan(t, s, owner, desired, live, ownership.Policy{}).String()
	var refs []string
	for line := range strings.Lines(want) {
		refs = append(refs, strings.SplitN(line, ":", 2)[0])
	}
	if got := strings.Join(refs, ", "); got != "Create ConfigMap team-a/z, Create ClusterRole r, Create ConfigMap team-a/y, "+
		"Prune Job team-a/j, Prune Secret team-a/s, Prune ConfigMap team-a/a, Prune ConfigMap team-a/b" {
		t.Errorf("got order %s", got)
	}
	live[0], live[3] = live[3], live[0]
	if got := plan(t, s, owner, desired, live, ownership.Policy{}).String(); got != want {
		t.Errorf("the order of live objects shows:\n%s\n%s", want, got)
	}
}

// Annotations end at 256 KiB; a record that lists members breaks at a few thousand of them, after they were created.
func TestKustomize1516RecordDoesNotGrowWithMembers(t *testing.T) {
	t.Parallel()
	s, err := ownership.New("bundle", databaseKind, []ownership.Kind{{GroupVersionKind: configMapKind, Carrier: ownership.ApplySet}},
		ownership.WithFinalizer(finalizer))
	if err != nil {
		t.Fatal(err)
	}
	var desired []ownership.Object
	for i := range 5000 {
		desired = append(desired, configMap(fmt.Sprintf("x%d", i)))
	}
	record, err := s.RecordBefore(plan(t, s, database(), desired, nil, ownership.Policy{}))
	if err != nil {
		t.Fatal(err)
	}
	size := 0
	for k, v := range record.GetAnnotations() {
		size += len(k) + len(v)
	}
	if size > 1024 || record.GetUID() != "u1" {
		t.Errorf("%d bytes for 5000 members: %v", size, record.GetAnnotations())
	}
}
