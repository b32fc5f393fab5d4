// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ashlar-go/ashlar/finalizers"
	"github.com/ashlar-go/ashlar/test/controlplane/audit"
	"github.com/ashlar-go/ashlar/test/integration/lab"
)

// kubectl runs the real one as the administrator.
func (s *scene) kubectl(args ...string) string {
	s.Helper()
	cmd := exec.CommandContext(s.ctx, cluster.Kubectl(), append([]string{"--kubeconfig", cluster.Kubeconfig()}, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// TestDeletion deletes a Database in every way in which kubectl can, with the real
// garbage collector and the real namespace controller.
func TestDeletion(t *testing.T) {
	t.Parallel()
	for _, cascade := range []string{"background", "foreground"} {
		t.Run(cascade, func(t *testing.T) {
			t.Parallel()
			s := newScene(t)
			s.operate(lab.Operator{})
			db := s.database(2)
			s.create(db)
			s.ready(db)
			s.kubectl("delete", "database", "db", "-n", s.ns, "--cascade="+cascade) // waits until it is gone
			s.gone()
			changes := s.changes()
			for _, fault := range lab.Disorder(changes, true) {
				t.Error(fault)
			}
			stepsInOrder(t, changes, finalizers.StateDone)
			if jobs := lab.Incarnations(changes, "Job"); len(jobs) != 1 {
				t.Errorf("backup Jobs %v, want one", jobs)
			}
			said := false
			for _, c := range changes {
				if c.Object.GetKind() == "Database" && c.Object.GetDeletionTimestamp() != nil {
					for _, condition := range conditions(c.Object.Object) {
						said = said || condition["type"] == "Ready" && condition["status"] == "False" && strings.Contains(fmt.Sprint(condition["message"]), "Job")
					}
				}
			}
			if !said {
				t.Error("the status never said that the cleanup waits for the Job")
			}
			s.honest()
		})
	}
	t.Run("orphan", testOrphan)
	t.Run("namespace", testNamespace)
}

// stepsInOrder checks by the progress that the operator stored that no step began before
// the one before it was over, and that the backup ended as it should.
func stepsInOrder(t *testing.T, changes []lab.Change, backup finalizers.State) {
	t.Helper()
	seen := false
	for _, c := range changes {
		progress, ok := finalizers.ProgressOf(c.Object)
		if c.Object.GetKind() != "Database" || !ok {
			continue
		}
		for i, step := range progress.Steps {
			seen = seen || step.Step == "backup" && step.State == backup
			if i > 0 && !progress.Steps[i-1].State.Over() {
				t.Errorf("revision %d: step %s began while %s was %s", c.Version, step.Step, progress.Steps[i-1].Step, progress.Steps[i-1].State)
			}
		}
	}
	if !seen {
		t.Errorf("the progress never said that the backup is %s", backup)
	}
}

// testOrphan keeps everything: `--cascade=orphan` takes the Database away and nothing else.
func testOrphan(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.operate(lab.Operator{})
	db := s.database(2)
	s.create(db)
	s.ready(db)
	s.settled()
	before := s.keepsakes()
	mark := cluster.Audit().Mark()
	s.kubectl("delete", "database", "db", "-n", s.ns, "--cascade=orphan")
	s.until("the Database alone is gone", func(ctx context.Context) error {
		want := whole(2)
		want.Databases = 0
		return populated(ctx, s.ns, want)
	})
	s.settled()
	if len(before) != 2+1+2+2 { // ConfigMap and Service, StatefulSet, pods, claims
		t.Errorf("%d objects to keep, want 7", len(before))
	}
	for name, child := range before { // the one thing that is different
		child.Owners = slices.DeleteFunc(child.Owners, func(kind string) bool { return kind == "Database" })
		before[name] = child
	}
	after := s.keepsakes()
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("orphaned children differ (-before +after):\n%s", diff)
	}
	for _, r := range s.requests(mark).Writes().Filter(audit.Not(databases)) {
		t.Errorf("the operator wrote a child of an orphaning owner: %s", r)
	}
	for _, kind := range []string{"Job", "StatefulSet", "PersistentVolumeClaim", "ConfigMap", "Service"} {
		for _, c := range s.changes() {
			if c.Object.GetKind() == kind && (kind == "Job" || c.Object.GetDeletionTimestamp() != nil) {
				t.Errorf("revision %d: %s %s was touched", c.Version, kind, c.Object.GetName())
			}
		}
	}
	s.honest()
}

// keepsake is what must stay of an orphaned child.
type keepsake struct {
	UID                 string
	Labels, Annotations map[string]string
	Owners              []string       // their kinds
	Body                map[string]any // spec or data
}

// keepsakes returns every child in the namespace.
func (s *scene) keepsakes() map[string]keepsake {
	s.Helper()
	kept := map[string]keepsake{}
	for _, kind := range lab.Kinds {
		if kind.Kind == "Database" || kind.Kind == "Event" {
			continue
		}
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		s.must(cluster.Client.List(s.ctx, list, client.InNamespace(s.ns)))
		for _, item := range list.Items {
			if item.GetName() == "kube-root-ca.crt" {
				continue
			}
			body := map[string]any{}
			for _, key := range []string{"spec", "data"} {
				if value, ok := item.Object[key]; ok {
					body[key] = value
				}
			}
			owners := []string{}
			for _, ref := range item.GetOwnerReferences() {
				owners = append(owners, ref.Kind)
			}
			kept[kind.Kind+" "+item.GetName()] = keepsake{string(item.GetUID()), item.GetLabels(), item.GetAnnotations(), owners, body}
		}
	}
	return kept
}

// testNamespace deletes the namespace: nothing can be created in it any more, so the
// backup is skipped, and that is said where it can still be said.
func testNamespace(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	operator := s.operate(lab.Operator{})
	db := s.database(2)
	s.create(db)
	s.ready(db)
	s.kubectl("delete", "namespace", s.ns) // waits until it is gone
	if err := cluster.Client.Get(s.ctx, client.ObjectKey{Name: s.ns}, &corev1.Namespace{}); !apierrors.IsNotFound(err) {
		t.Errorf("the namespace: %v", err)
	}
	changes := s.changes()
	for _, fault := range lab.Disorder(changes, false) {
		t.Error(fault)
	}
	stepsInOrder(t, changes, finalizers.StateSkipped)
	if jobs := lab.Incarnations(changes, "Job"); len(jobs) != 0 {
		t.Errorf("backup Jobs %v in a terminating namespace", jobs)
	}
	s.until("an event in namespace default says that the backup was skipped", func(ctx context.Context) error {
		list := &eventsv1.EventList{}
		if err := cluster.Client.List(ctx, list, client.InNamespace(metav1.NamespaceDefault)); err != nil {
			return err
		}
		for _, e := range list.Items {
			if e.Regarding.Kind == "Namespace" && e.Regarding.Name == s.ns && e.ReportingController != "" && strings.Contains(e.Note, "backup") {
				t.Logf("event %s: %s", e.Reason, e.Note)
				return nil
			}
		}
		return errors.New("there is none")
	})
	if !slices.ContainsFunc(logged(t, operator), func(line map[string]any) bool {
		text := fmt.Sprint(line)
		return strings.Contains(text, "backup") && strings.Contains(text, s.ns) && strings.Contains(strings.ToLower(text), "skip")
	}) {
		t.Error("the operator's log does not say that the backup was skipped")
	}
	s.honest()
}

// logged returns the lines of an operator's log, which are JSON.
func logged(t *testing.T, p *lab.Process) (lines []map[string]any) {
	t.Helper()
	for text := range strings.Lines(p.Tail(1 << 20)) {
		var line map[string]any
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Errorf("a line of the log is not JSON: %v: %s", err, text)
			continue
		}
		lines = append(lines, line)
	}
	return lines
}

// TestDeletionWithoutOperator shows that nothing is lost while no operator runs: the
// finalizer holds the Database, and the operator finishes when it is back.
func TestDeletionWithoutOperator(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	first, err := cluster.Run(lab.Operator{Namespaces: []string{s.ns}})
	s.must(err)
	db := s.database(1)
	s.create(db)
	s.ready(db)
	s.settled()
	s.dismiss(first)
	s.kubectl("delete", "database", "db", "-n", s.ns, "--wait=false", "--cascade=foreground")
	// The garbage collector takes the native children at once; the rest has to wait for the cleanup.
	s.until("the garbage collector has done its part", func(ctx context.Context) error {
		return populated(ctx, s.ns, population{Databases: 1, StatefulSets: 1, Pods: 1, ReadyPods: 1, Claims: 1})
	})
	s.operate(lab.Operator{})
	s.gone()
	for _, fault := range lab.Disorder(s.changes(), true) {
		t.Error(fault)
	}
}
