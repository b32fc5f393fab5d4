// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ownership_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/ownership"
)

func TestNew(t *testing.T) {
	t.Parallel()
	cm := ownership.Kind{GroupVersionKind: configMapKind}
	tests := map[string]struct {
		reason string
		name   string
		kinds  []ownership.Kind
		opts   []ownership.Option
		is     error
		text   string
	}{
		"good": {
			reason: "a namespaced native kind needs no finalizer",
			name:   "children", kinds: []ownership.Kind{cm},
		},
		"name": {
			reason: "the name becomes part of a label key",
			name:   "Children", kinds: []ownership.Kind{cm}, text: "DNS label",
		},
		"long name": {
			reason: "with owner-ref. in front it must fit in 63 bytes",
			name:   strings.Repeat("a", 54), kinds: []ownership.Kind{cm}, text: "at most 53 bytes",
		},
		"no kinds": {
			reason: "a set without kinds can own nothing",
			name:   "children", text: "at least one",
		},
		"twice": {
			reason: "the second declaration would be ignored silently",
			name:   "children", kinds: []ownership.Kind{cm, cm}, text: "declared twice",
		},
		"no version": {
			reason: "documents carry an apiVersion",
			name:   "children", kinds: []ownership.Kind{{GroupVersionKind: configMapKind.GroupKind().WithVersion("")}}, text: "version and kind",
		},
		"native cluster child": {
			reason: "the collector never collects it",
			name:   "children", kinds: []ownership.Kind{{GroupVersionKind: roleKind, Cluster: true, Carrier: ownership.Native}},
			is: ownership.ErrIllegalReference,
		},
		"native cluster child of a cluster owner": {
			reason: "both are cluster-scoped",
			name:   "children", kinds: []ownership.Kind{{GroupVersionKind: roleKind, Cluster: true, Carrier: ownership.Native}},
			opts: []ownership.Option{ownership.WithClusterOwner()},
		},
		"native and needed by cleanup": {
			reason: "foreground deletion collects native children before cleanup",
			name:   "children", kinds: []ownership.Kind{{GroupVersionKind: jobKind, NeededByCleanup: true, Carrier: ownership.Native}},
			opts: []ownership.Option{ownership.WithFinalizer(finalizer)}, is: ownership.ErrIllegalReference,
		},
		"label without finalizer": {
			reason: "nobody would ever delete the children",
			name:   "children", kinds: []ownership.Kind{{GroupVersionKind: configMapKind, Carrier: ownership.Label}},
			is: ownership.ErrNoFinalizer,
		},
		"cluster child without finalizer": {
			reason: "Auto can only mean Label here",
			name:   "children", kinds: []ownership.Kind{{GroupVersionKind: roleKind, Cluster: true}},
			is: ownership.ErrNoFinalizer,
		},
		"bad finalizer": {
			reason: "the server would refuse it",
			name:   "children", kinds: []ownership.Kind{cm}, opts: []ownership.Option{ownership.WithFinalizer("a b")}, text: "qualified name",
		},
		"long manager": {
			reason: "the server allows 128 bytes",
			name:   "children", kinds: []ownership.Kind{cm}, opts: []ownership.Option{ownership.WithManager(strings.Repeat("m", 129))}, text: "at most 128",
		},
		"unprintable manager": {
			reason: "the server allows printable runes",
			name:   "children", kinds: []ownership.Kind{cm}, opts: []ownership.Option{ownership.WithManager("a\nb")}, text: "printable",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := ownership.New(test.name, databaseKind, test.kinds, test.opts...)
			if test.is == nil && test.text == "" {
				if err != nil || s.Name() != test.name || s.Manager() != "children.database.example.com" {
					t.Fatalf("%s: got %v, manager %q", test.reason, err, s.Manager())
				}
				return
			}
			if err == nil || (test.is != nil && !errors.Is(err, test.is)) || !strings.Contains(err.Error(), test.text) {
				t.Errorf("%s: got error %v", test.reason, err)
			}
		})
	}
}

func TestPlanRefuses(t *testing.T) {
	t.Parallel()
	s := newSet(t)
	nativeOnly, err := ownership.New("native", databaseKind, []ownership.Kind{{GroupVersionKind: configMapKind}})
	if err != nil {
		t.Fatal(err)
	}
	forced, err := ownership.New("forced", databaseKind, []ownership.Kind{{GroupVersionKind: configMapKind, Carrier: ownership.Native}})
	if err != nil {
		t.Fatal(err)
	}
	retired, err := ownership.New("retired", databaseKind, []ownership.Kind{{GroupVersionKind: configMapKind, Retired: true}})
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := configMap("x", func(u *edited) { u.SetNamespace("team-b") })
	tests := map[string]struct {
		reason  string
		set     *ownership.Set
		owner   *edited
		desired []ownership.Object
		is      error
		text    string
	}{
		"owner without uid": {
			reason: "a claim is made of the uid",
			set:    s, owner: database(uid("")), text: "metadata.uid",
		},
		"owner of another kind": {
			reason: "the set would claim for the wrong kind",
			set:    s, owner: object(configMapKind, "team-a", "x", uid("u")), text: "declared for Database.example.com",
		},
		"cluster owner undeclared": {
			reason: "the scope decides the carrier",
			set:    s, owner: database(func(u *edited) { u.SetNamespace("") }), text: "WithClusterOwner",
		},
		"undeclared kind": {
			reason: "what is not declared could never be pruned",
			set:    s, desired: objects(object(databaseKind, "team-a", "x")), is: ownership.ErrUndeclared,
		},
		"other version": {
			reason: "fields are compared at one version",
			set:    s, desired: objects(object(roleKind.GroupKind().WithVersion("v1beta1"), "", "x")), text: "declares rbac.authorization.k8s.io/v1",
		},
		"retired kind": {
			reason: "a retired kind only goes away",
			set:    retired, desired: objects(configMap("x")), text: "retired",
		},
		"no name": {
			reason: "apply needs a name",
			set:    s, desired: objects(configMap("")), text: "metadata.name",
		},
		"no namespace": {
			reason: "guessing the owner's would hide mistakes",
			set:    s, desired: objects(object(configMapKind, "", "x")), text: "metadata.namespace",
		},
		"namespace on a cluster kind": {
			reason: "the server would refuse it",
			set:    s, desired: objects(object(roleKind, "team-a", "x")), text: "metadata.namespace",
		},
		"declared twice": {
			reason: "the second would overwrite the first in every pass",
			set:    s, desired: objects(configMap("x"), configMap("x")), text: "declared twice",
		},
		"another controller declared": {
			reason: "two controllers are a 422",
			set:    s, desired: objects(configMap("x", ref("apps/v1", "Deployment", "d", "u9", true))), text: "another controller",
		},
		"banzaicloud/koperator#186 forced native across namespaces": {
			reason: "the collector would delete the child",
			set:    forced, desired: objects(elsewhere), is: ownership.ErrIllegalReference,
		},
		"across namespaces without a declared finalizer": {
			reason: "nobody would clean the label claim up",
			set:    nativeOnly, desired: objects(elsewhere), is: ownership.ErrNoFinalizer,
		},
		"owner lacks the finalizer": {
			reason: "declared is not enough, it must be stored before the claim",
			set:    s, owner: database(finalizers()), desired: objects(elsewhere), is: ownership.ErrNoFinalizer,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			owner := test.owner
			if owner == nil {
				owner = database()
			}
			p, err := test.set.Plan(owner, test.desired, nil, ownership.Policy{})
			if err == nil || (test.is != nil && !errors.Is(err, test.is)) || !strings.Contains(err.Error(), test.text) {
				t.Errorf("%s: got error %v", test.reason, err)
			}
			if len(p.Decisions) != 0 {
				t.Errorf("%s: got decisions beside the error:\n%s", test.reason, p)
			}
		})
	}
}
