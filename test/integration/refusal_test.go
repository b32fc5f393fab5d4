// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	databasev1 "github.com/ashlar-go/ashlar/examples/database/api/v1"
	"github.com/ashlar-go/ashlar/test/integration/lab"
)

// TestRefused sends what the API server itself refuses, by the rules of the CRD.
func TestRefused(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	for name, row := range map[string]struct {
		reason string
		spoil  func(*databasev1.Database)
		says   []string
	}{
		"no replicas":       {"a Database without pods serves nobody", func(db *databasev1.Database) { db.Spec.ScalePolicy.Replicas = 0 }, []string{"spec.scalePolicy.replicas", "greater than or equal to 1"}},
		"fewer than none":   {"the minimum is a number", func(db *databasev1.Database) { db.Spec.ScalePolicy.Replicas = -1 }, []string{"spec.scalePolicy.replicas", "greater than or equal to 1"}},
		"no version":        {"the version is a choice of the user", func(db *databasev1.Database) { db.Spec.Version = "latest" }, []string{"spec.version", "major or major.minor version"}},
		"no storage":        {"a volume has a size", func(db *databasev1.Database) { db.Spec.Storage.Size = resource.MustParse("0") }, []string{"spec.storage.size", "more than 0"}},
		"less than nothing": {"a volume has a size", func(db *databasev1.Database) { db.Spec.Storage.Size = resource.MustParse("-1Gi") }, []string{"spec.storage.size", "more than 0"}},
		"no class":          {"which storage is a choice of the user", func(db *databasev1.Database) { db.Spec.Storage.Class = "" }, []string{"spec.storage.class", "at least 1"}},
		"a long name":       {"pods and Jobs are named after it", func(db *databasev1.Database) { db.Name = strings.Repeat("a", 41) }, []string{"metadata.name", "at most 40 characters"}},
		"a dotted name":     {"the Service is named after it", func(db *databasev1.Database) { db.Name = "a.b" }, []string{"metadata.name", "DNS label"}},
	} {
		db := s.database(1)
		row.spoil(db)
		s.refused(name+", "+row.reason, cluster.Client.Create(s.ctx, db), row.says)
	}
	db := s.database(1)
	s.create(db)
	for name, row := range map[string]struct {
		change string
		says   []string
	}{
		"a larger size":  {`{"spec":{"storage":{"size":"2Gi"}}}`, []string{"spec.storage.size", "immutable", "restore the backup"}},
		"another class":  {`{"spec":{"storage":{"class":"other"}}}`, []string{"spec.storage.class", "immutable", "restore the backup"}},
		"replicas gone":  {`{"spec":{"scalePolicy":{"replicas":null}}}`, []string{"spec.scalePolicy.replicas", "Required value"}},
		"no replicas":    {`{"spec":{"scalePolicy":{"replicas":0}}}`, []string{"spec.scalePolicy.replicas", "greater than or equal to 1"}},
		"no storage":     {`{"spec":{"storage":null}}`, []string{"spec.storage", "Required value"}},
		"both of it":     {`{"spec":{"storage":{"size":"2Gi","class":"other"}}}`, []string{"spec.storage.size", "spec.storage.class"}},
		"a version gone": {`{"spec":{"version":null}}`, []string{"spec.version", "Required value"}},
	} {
		err := cluster.Client.Patch(s.ctx, db.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(row.change)))
		s.refused(name, err, row.says)
	}
	same := `{"spec":{"storage":{"size":"1024Mi"}}}`
	if err := cluster.Client.Patch(s.ctx, db.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(same))); err != nil {
		t.Errorf("the same size in other words is refused: %v", err)
	}
}

func (s *scene) refused(name string, err error, says []string) {
	s.Helper()
	if !apierrors.IsInvalid(err) {
		s.Errorf("%s: %v, want it refused as invalid", name, err)
		return
	}
	for _, word := range says {
		if !strings.Contains(err.Error(), word) {
			s.Errorf("%s: the refusal does not say %q: %v", name, word, err)
		}
	}
}

// TestExplained creates what only the operator can judge. It says in one sentence of a
// condition which field or object is at fault and which rule it breaks, does not
// hammer the API server, and goes on by itself when the fault is gone.
func TestExplained(t *testing.T) {
	t.Parallel()
	const calm = 10 // reconciles in the first minute
	foreign := func(s *scene) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: s.ns, Name: "db"} }
	for name, row := range map[string]struct {
		prepare func(s *scene)
		spoil   func(*databasev1.Database)
		typ     string
		says    []string
		mend    func(s *scene) // what the sentence asks for
	}{
		"unknown class": {
			spoil: func(db *databasev1.Database) { db.Spec.Storage.Class = "no-such-class" },
			typ:   "StorageReady", says: []string{"spec.storage.class", `"no-such-class"`, "does not exist"},
		},
		"unknown class, five replicas": {
			spoil: func(db *databasev1.Database) {
				db.Spec.Storage.Class, db.Spec.ScalePolicy.Replicas = "no-such-class", 5
			},
			typ: "StorageReady", says: []string{"spec.storage.class", `"no-such-class"`, "does not exist"},
		},
		"unsupported version": {
			spoil: func(db *databasev1.Database) { db.Spec.Version = "9.6" },
			typ:   "ConfigReady", says: []string{"spec.version", `"9.6"`, "16, 17, 18"},
			mend: func(s *scene) { s.patch(s.database(1), `{"spec":{"version":"18"}}`) },
		},
		"foreign configmap": {
			prepare: func(s *scene) { s.create(&corev1.ConfigMap{ObjectMeta: foreign(s), Data: map[string]string{"a": "b"}}) },
			typ:     "ConfigReady", says: []string{"ConfigMap", "/db", "exists"},
			mend: func(s *scene) { s.must(cluster.Client.Delete(s.ctx, &corev1.ConfigMap{ObjectMeta: foreign(s)})) },
		},
		"foreign service": {
			prepare: func(s *scene) {
				s.create(&corev1.Service{ObjectMeta: foreign(s), Spec: corev1.ServiceSpec{ClusterIP: "None", Selector: map[string]string{"a": "b"}}})
			},
			typ: "ConfigReady", says: []string{"Service", "/db", "exists"},
			mend: func(s *scene) { s.must(cluster.Client.Delete(s.ctx, &corev1.Service{ObjectMeta: foreign(s)})) },
		},
		"foreign statefulset": {
			prepare: func(s *scene) {
				labels := map[string]string{"a": "b"}
				s.create(&appsv1.StatefulSet{ObjectMeta: foreign(s), Spec: appsv1.StatefulSetSpec{
					Replicas: new(int32(0)), ServiceName: "x", Selector: &metav1.LabelSelector{MatchLabels: labels},
					Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
						Containers: []corev1.Container{{Name: "c", Image: "c"}},
					}},
				}})
			},
			typ: "ConfigReady", says: []string{"StatefulSet", "/db", "exists"},
			mend: func(s *scene) { s.must(cluster.Client.Delete(s.ctx, &appsv1.StatefulSet{ObjectMeta: foreign(s)})) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t)
			if row.prepare != nil {
				row.prepare(s)
			}
			operator := s.operate(lab.Operator{Metrics: true})
			db := s.database(1)
			if row.spoil != nil {
				row.spoil(db)
			}
			start := time.Now()
			s.create(db)
			s.until("the fault is explained", func(ctx context.Context) error {
				if err := cluster.Client.Get(ctx, client.ObjectKeyFromObject(db), db); err != nil {
					return err
				}
				var all error
				for _, typ := range []string{row.typ, "Ready"} { // the root repeats the cause
					c := meta.FindStatusCondition(db.Status.Conditions, typ)
					if c == nil || c.Status != metav1.ConditionFalse {
						all = errors.Join(all, fmt.Errorf("%s: %+v", typ, c))
						continue
					}
					for _, word := range row.says {
						if !strings.Contains(c.Message, word) {
							all = errors.Join(all, fmt.Errorf("%s does not say %q: %s", typ, word, c.Message))
						}
					}
					if all == nil && typ == row.typ {
						t.Logf("%s %s: %s", typ, c.Reason, c.Message)
					}
				}
				return all
			})
			// The minute is the promise, so it has to pass.
			select {
			case <-time.After(time.Until(start.Add(time.Minute))):
			case <-s.ctx.Done():
			}
			n, err := operator.Reconciles(s.ctx)
			s.must(err)
			t.Logf("%d reconciles in the first minute", n)
			if n > calm {
				t.Errorf("%d reconciles in the first minute, want at most %d", n, calm)
			}
			if row.mend != nil {
				row.mend(s)
				s.ready(db)
			}
			s.honest()
		})
	}
}
