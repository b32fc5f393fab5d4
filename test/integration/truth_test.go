// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ashlar-go/ashlar/test/integration/lab"
)

// TestTruthFromCreation asks the tools from before the operator has ever seen the
// Database, through scaling and upgrades, some of them faster than the pods.
func TestTruthFromCreation(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	db := s.database(1)
	s.create(db) // without an operator
	s.until("the Database is recorded", func(context.Context) error {
		if _, asked := lab.Lies(s.changes()); asked == 0 {
			return errors.New("it is not")
		}
		return nil
	})
	s.operate(lab.Operator{})
	s.ready(db)
	for _, change := range []string{
		`{"spec":{"scalePolicy":{"replicas":3}}}`,
		`{"spec":{"version":"17.2"}}`,
		`{"spec":{"scalePolicy":{"replicas":1},"version":"18"}}`,
	} {
		s.patch(db.DeepCopy(), change)
		s.ready(db)
	}
	// A spec that changes while the former one is still rolled out.
	for n := range 6 {
		s.patch(db.DeepCopy(), fmt.Sprintf(`{"spec":{"version":"18.%d","scalePolicy":{"replicas":%d}}}`, n, 1+n%2))
		s.until("the operator has taken notice", func(ctx context.Context) error {
			err := cluster.Client.Get(ctx, client.ObjectKeyFromObject(db), db)
			if err == nil && db.Status.ObservedGeneration != db.Generation {
				err = fmt.Errorf("generation %d, observed %d", db.Generation, db.Status.ObservedGeneration)
			}
			return err
		})
	}
	s.ready(db)
	s.settled()
	_, asked := lab.Lies(s.changes())
	t.Logf("asked both tools at %d revisions", asked)
	s.honest()
}

// TestTruthAfterLoss takes something away from a ready Database and measures how long
// Ready goes on saying so.
func TestTruthAfterLoss(t *testing.T) {
	t.Parallel()
	const within = 5 * time.Second
	for name, take := range map[string]func(s *scene) client.Object{
		"pod": func(s *scene) client.Object {
			return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "db-1"}}
		},
		"statefulset": func(s *scene) client.Object {
			return &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "db"}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t)
			s.operate(lab.Operator{})
			db := s.database(2)
			s.create(db)
			s.ready(db)
			s.settled()
			object := take(s)
			s.must(cluster.Client.Get(s.ctx, client.ObjectKeyFromObject(object), object))
			s.must(cluster.Client.Delete(s.ctx, object, client.PropagationPolicy(metav1.DeletePropagationBackground)))

			var lost, turned, back *lab.Change
			s.until("the loss was seen and made good", func(ctx context.Context) error {
				lost, turned, back = nil, nil, nil
				changes := s.changes()
				for i := range changes {
					c := &changes[i]
					switch {
					case c.Object.GetUID() == object.GetUID() && (c.Type == "DELETED" || c.Object.GetDeletionTimestamp() != nil):
						if lost == nil {
							lost = c
						}
					case lost == nil || c.Object.GetKind() != "Database":
					case turned == nil && !saysReady(c):
						turned = c
					case turned != nil && back == nil && saysReady(c):
						back = c
					}
				}
				if back == nil {
					return fmt.Errorf("lost %t, turned %t, back %t", lost != nil, turned != nil, back != nil)
				}
				return nil
			})
			after := turned.Time.Sub(lost.Time)
			t.Logf("Ready turned %s after the loss and was back %s after it", after.Round(time.Millisecond), back.Time.Sub(lost.Time).Round(time.Millisecond))
			if after > within {
				t.Errorf("Ready turned after %s, want within %s", after, within)
			}
			s.until("everything is whole again", func(ctx context.Context) error {
				return errors.Join(isReady(ctx, db), populated(ctx, s.ns, whole(2)))
			})
			if claims := lab.Incarnations(s.changes(), "PersistentVolumeClaim"); claims["data-db-0"] != 1 || claims["data-db-1"] != 1 {
				t.Errorf("volumes %v, want the old ones", claims)
			}
			s.honest()
		})
	}
}

// saysReady says whether the Database of a change claims to be ready.
func saysReady(c *lab.Change) bool {
	for _, condition := range conditions(c.Object.Object) {
		if condition["type"] == "Ready" {
			return condition["status"] == "True"
		}
	}
	return false
}
