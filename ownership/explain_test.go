// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ownership_test

import (
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/ownership"
	"github.com/google/go-cmp/cmp"
)

func TestExplain(t *testing.T) {
	t.Parallel()
	s := newSet(t)
	live := objects(
		stored(t, s, database(), configMap("a-current")),
		stored(t, s, database(), configMap("b-stale"), func(u *edited) {
			refs := u.GetOwnerReferences()
			refs[0].Kind = "Db"
			u.SetOwnerReferences(refs)
		}),
		stored(t, s, database(), configMap("c-stripped"), func(u *edited) { u.SetOwnerReferences(nil) }),
		configMap("d-former", uid("c"), ref("example.com/v1", "Database", "orders", "u0", true)),
		configMap("e-foreign", uid("c"), ref("apps/v1", "Deployment", "web", "u9", true)),
		stored(t, s, database(), configMap("f-lost"), func(u *edited) { u.SetOwnerReferences(nil) }, ref("apps/v1", "Deployment", "web", "u9", true)),
		object(secretKind, "team-a", "g-shared", uid("c"), claimed(s, database()), ref("apps/v1", "Deployment", "web", "u9", true)),
		stored(t, s, database(), object(secretKind, "team-b", "h-label"), terminating()),
	)
	want := `Database team-a/orders (uid u1), set "children", field manager "children.database.example.com", lacks finalizer example.com/database, terminating, children are left behind
  ConfigMap team-a/a-current: ours by owner reference
  ConfigMap team-a/b-stale: ours by owner reference, the reference needs an update
  ConfigMap team-a/c-stripped: was ours, its owner reference is gone
  ConfigMap team-a/d-former: left behind by a former owner of the same name (uid u0)
  ConfigMap team-a/f-lost: was ours, now controlled by Deployment team-a/web (uid u9)
  Secret team-a/g-shared: ours by label, but controlled by Deployment team-a/web (uid u9)
  Secret team-b/h-label: ours by label, terminating
`
	if diff := cmp.Diff(want, s.Explain(database(terminating(), finalizers("orphan")), live)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := s.Explain(database(), nil); !strings.HasSuffix(got, "  no children\n") {
		t.Errorf("got %s", got)
	}
	if got := s.Explain(database(uid("")), nil); !strings.Contains(got, "metadata.uid") {
		t.Errorf("got %s", got)
	}
}

func TestRules(t *testing.T) {
	t.Parallel()
	s, err := ownership.New("bundle", databaseKind, []ownership.Kind{
		{GroupVersionKind: configMapKind, Carrier: ownership.ApplySet},
		{GroupVersionKind: secretKind, Carrier: ownership.Label, Resource: "secretz"},
		{GroupVersionKind: jobKind, NeededByCleanup: true, Retired: true},
	}, ownership.WithFinalizer(finalizer))
	if err != nil {
		t.Fatal(err)
	}
	want := `- apiGroups: [""]
  resources: [configmaps, secretz]
  verbs: [create, delete, get, list, patch, watch]
- apiGroups: ["batch"]
  resources: [jobs]
  verbs: [delete, get, list, patch, watch]
- apiGroups: ["example.com"]
  resources: [databases]
  verbs: [get, patch]
`
	if diff := cmp.Diff(want, s.Rules()); diff != "" {
		t.Errorf("no native child, no right on finalizers (-want +got):\n%s", diff)
	}
}
