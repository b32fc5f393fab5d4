// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	databasev1 "github.com/ashlar-go/ashlar/examples/database/api/v1"
	"github.com/ashlar-go/ashlar/test/controlplane/audit"
	"github.com/ashlar-go/ashlar/test/integration/lab"
)

// The resources that the operator writes.
var (
	databases    = audit.Resource("db.example.com", "databases")
	configMaps   = audit.Resource("", "configmaps")
	services     = audit.Resource("", "services")
	statefulSets = audit.Resource("apps", "statefulsets")
	status       = audit.Subresource("status")
	mainResource = audit.Subresource("")
)

// verdict is what a watcher can tell apart in a condition.
type verdict struct{ Type, Status, Reason any }

// verdicts returns the different verdicts that a watcher of one Database saw, and how
// many different states each type was seen in, absent counting as one.
func verdicts(changes []lab.Change) (all map[verdict]bool, states map[any]int) {
	all, states = map[verdict]bool{}, map[any]int{}
	absent := map[any]bool{}
	types := []any{"ConfigReady", "StorageReady", "ServingReady", "Ready"}
	for _, c := range changes {
		if c.Object.GetKind() != "Database" {
			continue
		}
		seen := map[any]bool{}
		for _, condition := range conditions(c.Object.Object) {
			v := verdict{condition["type"], condition["status"], condition["reason"]}
			seen[v.Type] = true
			if !all[v] {
				all[v] = true
				states[v.Type]++
			}
		}
		for _, typ := range types {
			if !seen[typ] && !absent[typ] {
				absent[typ] = true
				states[typ]++
			}
		}
	}
	return all, states
}

// TestRequestsOfCreate counts what one Database costs from create to Ready.
func TestRequestsOfCreate(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.operate(lab.Operator{})
	mark := cluster.Audit().Mark()
	db := s.database(2)
	s.create(db)
	s.ready(db)
	s.settled()

	writes := s.requests(mark).Writes()
	t.Logf("writes:\n%s", writes.Table())
	rest := len(writes)
	for _, child := range []struct {
		name   string
		filter audit.Filter
	}{{"the Database (its finalizer)", databases}, {"the ConfigMap", configMaps}, {"the Service", services}, {"the StatefulSet", statefulSets}} {
		n := len(writes.Filter(child.filter, mainResource))
		rest -= n
		if n != 1 {
			t.Errorf("%d writes of %s, want 1", n, child.name)
		}
	}
	statuses := len(writes.Filter(databases, status))
	if rest != statuses {
		t.Errorf("%d writes are neither the finalizer, a child nor the status", rest-statuses)
	}
	for _, failed := range writes.Filter(audit.Not(audit.Code(200, 201))) {
		t.Errorf("refused: %s", failed)
	}
	all, states := verdicts(s.changes())
	t.Logf("%d status writes for %d verdicts: %v", statuses, len(all), all)
	if statuses == 0 || statuses > len(all) {
		t.Errorf("%d status writes for %d different verdicts that a watcher saw", statuses, len(all))
	}
	for _, typ := range []string{"ConfigReady", "StorageReady", "ServingReady", "Ready"} {
		if states[typ] < 2 {
			t.Errorf("a watcher saw %s in %d states, want at least 2: progress must show", typ, states[typ])
		}
	}
	s.honest()
}

// TestRequestsOfRestart starts the operator on 50 converged Databases.
func TestRequestsOfRestart(t *testing.T) {
	t.Parallel()
	const many = 50
	s := newScene(t)
	first, err := cluster.Run(lab.Operator{Namespaces: []string{s.ns}})
	s.must(err)
	var all []*databasev1.Database
	for n := range many {
		db := s.named(fmt.Sprintf("db-%02d", n), 1)
		s.create(db)
		all = append(all, db)
	}
	for _, db := range all {
		s.ready(db)
	}
	s.settled()
	s.dismiss(first)

	mark := cluster.Audit().Mark()
	// The second one elects a leader, as it does in a cluster, so that those rules are used too.
	second := s.operate(lab.Operator{Metrics: true, Args: []string{"--leader-elect", "--leader-election-namespace=" + lab.SystemNamespace}})
	s.until("every Database was looked at", func(ctx context.Context) error {
		n, err := second.Reconciles(ctx)
		if err == nil && n < many {
			err = fmt.Errorf("%d reconciles of %d", n, many)
		}
		return err
	})
	s.settled()
	requests := s.requests(mark)
	t.Logf("requests after a restart with %d converged Databases:\n%s", many, requests.Table())
	if writes := requests.Writes(); len(writes) != 0 {
		t.Errorf("%d writes, want none", len(writes))
	}
	for _, r := range requests.Filter(audit.Verb("get")) {
		t.Errorf("a converged Database costs a read: %s", r)
	}
	s.honest()
}

// TestRequestsOfDrift changes a declared field of each child behind the operator's back.
func TestRequestsOfDrift(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.operate(lab.Operator{})
	db := s.database(1)
	s.create(db)
	s.ready(db)
	s.settled()
	meta := metav1.ObjectMeta{Namespace: s.ns, Name: db.Name}
	for _, drift := range []struct {
		name   string
		object client.Object
		filter audit.Filter
		body   string
		back   func(client.Object) bool
	}{
		{"ConfigMap", &corev1.ConfigMap{ObjectMeta: meta}, configMaps, `{"data":{"database.conf":"foreign"}}`,
			func(o client.Object) bool { return o.(*corev1.ConfigMap).Data["database.conf"] != "foreign" }},
		{"Service", &corev1.Service{ObjectMeta: meta}, services, `{"spec":{"selector":{"app.kubernetes.io/instance":"foreign"}}}`,
			func(o client.Object) bool {
				return o.(*corev1.Service).Spec.Selector["app.kubernetes.io/instance"] != "foreign"
			}},
		{"StatefulSet", &appsv1.StatefulSet{ObjectMeta: meta}, statefulSets, `{"spec":{"persistentVolumeClaimRetentionPolicy":{"whenScaled":"Delete"}}}`,
			func(o client.Object) bool {
				return o.(*appsv1.StatefulSet).Spec.PersistentVolumeClaimRetentionPolicy.WhenScaled == "Retain"
			}},
		{"a label", &corev1.Service{ObjectMeta: meta}, services, `{"metadata":{"labels":{"app.kubernetes.io/name":null}}}`,
			func(o client.Object) bool { return o.GetLabels()["app.kubernetes.io/name"] != "" }},
		{"the label that the cache selects by", &corev1.Service{ObjectMeta: meta}, services, `{"metadata":{"labels":{"app.kubernetes.io/managed-by":null}}}`,
			func(o client.Object) bool { return o.GetLabels()["app.kubernetes.io/managed-by"] != "" }},
		{"a field that nobody declared", &corev1.ConfigMap{ObjectMeta: meta}, nil, `{"data":{"extra":"foreign"}}`,
			func(o client.Object) bool { return o.(*corev1.ConfigMap).Data["extra"] == "foreign" }},
	} {
		mark := cluster.Audit().Mark()
		s.patch(drift.object, drift.body)
		s.until(drift.name+" is as declared", func(ctx context.Context) error {
			err := cluster.Client.Get(ctx, client.ObjectKeyFromObject(drift.object), drift.object)
			if err == nil && !drift.back(drift.object) {
				err = errors.New("it is not")
			}
			return err
		})
		s.ready(db)
		s.settled()
		writes := s.requests(mark).Writes()
		applies := len(writes.Filter(mainResource, audit.Code(200)))
		t.Logf("%s:\n%s", drift.name, writes.Table())
		switch {
		case drift.filter == nil && len(writes) > 0:
			t.Errorf("%s: %d writes, want none", drift.name, len(writes))
		case drift.filter != nil && (applies != 1 || len(writes.Filter(drift.filter, mainResource, audit.Code(200))) != 1):
			t.Errorf("%s: %d applies, want 1 of the child", drift.name, applies)
		}
	}
	s.honest()
}
