// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	databasev1 "github.com/ashlar-go/ashlar/examples/database/api/v1"
	"github.com/ashlar-go/ashlar/test/controlplane/audit"
	"github.com/ashlar-go/ashlar/test/integration/lab"
)

// storageClass is the one of the control plane's volumes.
const storageClass = "kwok-volume"

// scene is one test with a namespace of its own, everything in it recorded.
type scene struct {
	*testing.T
	ctx context.Context // ends with the test, or early with a cause
	end context.CancelCauseFunc
	ns  string
	rec *lab.Recorder
}

func newScene(t *testing.T) *scene {
	t.Helper()
	ctx, end := context.WithCancelCause(t.Context())
	s := &scene{T: t, ctx: ctx, end: end, ns: namespace(ctx, t)}
	rec, err := cluster.Record(context.WithoutCancel(ctx), s.ns, lab.Kinds, nil)
	if err != nil {
		t.Fatal(err)
	}
	s.rec = rec
	t.Cleanup(func() {
		rec.Stop()
		if t.Failed() {
			s.tell()
		}
	})
	return s
}

var illegal = regexp.MustCompile(`[^a-z0-9]+`)

// namespace creates one that is named after the test.
func namespace(ctx context.Context, t *testing.T) string {
	t.Helper()
	base := strings.Trim(illegal.ReplaceAllString(strings.ToLower(strings.TrimPrefix(t.Name(), "Test")), "-"), "-")
	base = base[:min(len(base), 50)]
	for n := 1; ; n++ {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: base}}
		if n > 1 { // the test runs again
			ns.Name = fmt.Sprintf("%s-%d", base, n)
		}
		switch err := cluster.Client.Create(ctx, ns); {
		case err == nil:
			return ns.Name
		case !apierrors.IsAlreadyExists(err):
			t.Fatal(err)
		}
	}
}

// tell prints the history of the namespace, for the one who reads a failure.
func (s *scene) tell() {
	changes, err := s.rec.Changes()
	if err != nil {
		s.Log(err)
	}
	var out strings.Builder
	for _, c := range changes {
		fmt.Fprintf(&out, "%s %d %s %s %s", c.Time.Format("15:04:05.000"), c.Version, c.Type, c.Object.GetKind(), c.Object.GetName())
		if c.Object.GetDeletionTimestamp() != nil {
			fmt.Fprintf(&out, " terminating %v", c.Object.GetFinalizers())
		}
		if c.Object.GetKind() == "Database" {
			fmt.Fprintf(&out, " generation %d observed %v", c.Object.GetGeneration(), field(c.Object.Object, "status", "observedGeneration"))
			for _, condition := range conditions(c.Object.Object) {
				fmt.Fprintf(&out, "; %v %v %v", condition["type"], condition["status"], condition["reason"])
			}
		}
		if c.Object.GetKind() == "Event" {
			fmt.Fprintf(&out, " %v %v", c.Object.Object["reason"], c.Object.Object["note"])
		}
		out.WriteByte('\n')
	}
	s.Logf("history of namespace %s:\n%s", s.ns, out.String())
}

// operate runs an operator for the namespace until the test ends. It must still run then.
func (s *scene) operate(o lab.Operator) *lab.Process {
	s.Helper()
	o.Namespaces = []string{s.ns}
	p, err := cluster.Run(o)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { s.dismiss(p) })
	go func() {
		<-p.Done()
		s.end(errors.New("the operator has ended"))
	}()
	return p
}

// dismiss stops an operator and holds it against it if it does not go in order.
func (s *scene) dismiss(p *lab.Process) {
	if err := p.Stop(context.WithoutCancel(s.ctx)); err != nil {
		s.Errorf("stop the operator: %v", err)
	}
	if s.Failed() {
		s.Logf("the operator said:\n%s", p.Tail(12_000))
	}
}

// patience is how long a state may take on a busy machine before it counts as never.
const patience = 2 * time.Minute

// until waits for a state and ends the test if it does not come.
func (s *scene) until(what string, check func(context.Context) error) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.ctx, patience)
	defer cancel()
	if err := lab.Eventually(ctx, what, check); err != nil {
		s.Fatal(err)
	}
}

// must ends the test on an error.
func (s *scene) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// changes returns what was recorded so far.
func (s *scene) changes() []lab.Change {
	s.Helper()
	changes, err := s.rec.Changes()
	if err != nil {
		s.Fatal(err)
	}
	return changes
}

// honest checks that no tool could ever have been told Ready too early.
func (s *scene) honest() {
	s.Helper()
	lies, asked := lab.Lies(s.changes())
	if asked == 0 {
		s.Error("no Database was recorded")
	}
	for _, lie := range lies {
		s.Error(lie)
	}
}

// database is a valid one called db.
func (s *scene) database(replicas int32) *databasev1.Database {
	return s.named("db", replicas)
}

func (s *scene) named(name string, replicas int32) *databasev1.Database {
	return &databasev1.Database{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: name},
		Spec: databasev1.DatabaseSpec{
			ScalePolicy: databasev1.ScalePolicy{Replicas: replicas}, Version: "17",
			Storage: databasev1.Storage{Size: resource.MustParse("1Gi"), Class: storageClass},
		},
	}
}

// create creates an object as the administrator.
func (s *scene) create(object client.Object) {
	s.Helper()
	if err := cluster.Client.Create(s.ctx, object); err != nil {
		s.Fatal(err)
	}
}

// patch changes an object by a JSON merge patch, as somebody who is not the operator.
func (s *scene) patch(object client.Object, body string) {
	s.Helper()
	if err := cluster.Client.Patch(s.ctx, object, client.RawPatch("application/merge-patch+json", []byte(body)), client.FieldOwner("somebody")); err != nil {
		s.Fatal(err)
	}
}

// settled waits until the operator has sent no request about the namespace for a while.
func (s *scene) settled() {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.ctx, patience)
	defer cancel()
	if err := cluster.Audit().Settle(ctx, 2*time.Second, audit.User(lab.User), audit.Namespace(s.ns)); err != nil {
		s.Fatal(err)
	}
}

// requests returns what the operator asked about the namespace since a mark.
func (s *scene) requests(since audit.Mark) audit.Requests {
	s.Helper()
	requests, err := cluster.Audit().Since(since, audit.User(lab.User), audit.Namespace(s.ns))
	if err != nil {
		s.Fatal(err)
	}
	return requests
}

// isReady says what a Database lacks to be ready at its present generation.
func isReady(ctx context.Context, db *databasev1.Database) error {
	if err := cluster.Client.Get(ctx, client.ObjectKeyFromObject(db), db); err != nil {
		return err
	}
	ready := meta.FindStatusCondition(db.Status.Conditions, "Ready")
	switch {
	case ready == nil:
		return errors.New("the Database has no condition Ready")
	case ready.Status != metav1.ConditionTrue:
		return fmt.Errorf("Ready is %s, %s: %s", ready.Status, ready.Reason, ready.Message)
	case ready.ObservedGeneration != db.Generation || db.Status.ObservedGeneration != db.Generation:
		return fmt.Errorf("generation %d, Ready for %d, status for %d", db.Generation, ready.ObservedGeneration, db.Status.ObservedGeneration)
	}
	return nil
}

func (s *scene) ready(db *databasev1.Database) {
	s.Helper()
	s.until(fmt.Sprintf("Database %s/%s is ready", db.Namespace, db.Name), func(ctx context.Context) error { return isReady(ctx, db) })
}

// population counts what is in a namespace of what a Database consists of.
type population struct {
	Databases, ConfigMaps, Services, StatefulSets, Pods, ReadyPods, Claims, Jobs int
}

func count(ctx context.Context, ns string) (p population, err error) {
	databases, maps, services, sets := &databasev1.DatabaseList{}, &corev1.ConfigMapList{}, &corev1.ServiceList{}, &appsv1.StatefulSetList{}
	pods, claims, jobs := &corev1.PodList{}, &corev1.PersistentVolumeClaimList{}, &batchv1.JobList{}
	for _, list := range []client.ObjectList{databases, maps, services, sets, pods, claims, jobs} {
		if err := cluster.Client.List(ctx, list, client.InNamespace(ns)); err != nil {
			return p, err
		}
	}
	for i := range maps.Items {
		if maps.Items[i].Name != "kube-root-ca.crt" { // every namespace has it
			p.ConfigMaps++
		}
	}
	for i := range pods.Items {
		p.Pods++
		for _, c := range pods.Items[i].Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
				p.ReadyPods++
			}
		}
	}
	p.Databases, p.Services, p.StatefulSets = len(databases.Items), len(services.Items), len(sets.Items)
	p.Claims, p.Jobs = len(claims.Items), len(jobs.Items)
	return p, nil
}

// whole is the population of one ready Database.
func whole(replicas int) population {
	return population{
		Databases: 1, ConfigMaps: 1, Services: 1, StatefulSets: 1,
		Pods: replicas, ReadyPods: replicas, Claims: replicas,
	}
}

// populated says how a namespace differs from what it should hold.
func populated(ctx context.Context, ns string, want population) error {
	got, err := count(ctx, ns)
	if err == nil && got != want {
		err = fmt.Errorf("namespace %s holds %+v, not %+v", ns, got, want)
	}
	return err
}

func (s *scene) gone() {
	s.Helper()
	s.until("nothing of the Database is left", func(ctx context.Context) error { return populated(ctx, s.ns, population{}) })
}

// conditions reads the conditions of an object as it came over the wire.
func conditions(object map[string]any) (list []map[string]any) {
	status, _ := object["status"].(map[string]any)
	items, _ := status["conditions"].([]any)
	for _, item := range items {
		if condition, ok := item.(map[string]any); ok {
			list = append(list, condition)
		}
	}
	return list
}

func field(object map[string]any, path ...string) any {
	var at any = object
	for _, key := range path {
		fields, _ := at.(map[string]any)
		at = fields[key]
	}
	return at
}
