// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	databasev1 "github.com/ashlar-go/ashlar/examples/database/api/v1"
	"github.com/ashlar-go/ashlar/test/controlplane/audit"
	"github.com/ashlar-go/ashlar/test/integration/lab"
)

const (
	namespace = "demo"
	name      = "orders"
)

// story is the demo: acts one after the other, and what was seen of them.
type story struct {
	lab      *lab.Lab
	class    string
	start    time.Time
	recorder *lab.Recorder
	operator *lab.Process
	webhook  string // address of the operator's; empty in a cluster of somebody else, which cannot call it
	timeline timeline
	told     int          // changes printed so far
	before   []lab.Change // those of the acts before this one
	summary  []string     // what happened
	wrong    []error
}

// act is one thing the user does, and what must follow from it.
type act struct {
	title string
	do    func(context.Context) error
	until func(context.Context) (bool, error)
	// check looks at what was recorded and returns the line for the summary.
	check func(took time.Duration, changes []lab.Change, requests audit.Requests) (string, error)
}

func (s *story) tell(ctx context.Context) (err error) {
	if err := s.lab.Namespace(ctx, namespace); err != nil {
		return err
	}
	if err := s.versions(ctx); err != nil {
		return err
	}
	s.timeline.before = map[string]*unstructured.Unstructured{}
	if s.recorder, err = s.lab.Record(ctx, namespace, lab.Kinds, nil); err != nil {
		return err
	}
	defer s.recorder.Stop()
	for i, act := range s.acts() {
		if err := s.play(ctx, i+2, act); err != nil {
			return err
		}
	}
	return s.conclude()
}

func (s *story) startOperator() (err error) {
	s.operator, err = s.lab.Run(lab.Operator{
		Namespaces: []string{namespace, oldNamespace}, Webhook: s.webhook, Args: []string{"--chart-version=17"},
	})
	return err
}

// stopOperator ends the operator before its API server goes away; how it ends is part of the demo.
func (s *story) stopOperator(ctx context.Context) error {
	operator := s.operator
	if s.operator = nil; operator == nil {
		return nil
	}
	return operator.Stop(ctx)
}

// leave takes away what the demo has put into somebody else's cluster. A demo that failed leaves it to be looked at.
func (s *story) leave(ctx context.Context) error {
	if err := s.stopOperator(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if err := s.lab.Uninstall(ctx); err != nil {
		return err
	}
	fmt.Println("  What the demo installed is gone from the cluster.")
	return nil
}

func (s *story) play(ctx context.Context, number int, act act) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	fmt.Printf("\n%d. %s\n", number, act.title)
	mark, begin := s.lab.Audit().Mark(), time.Now()
	if err := act.do(ctx); err != nil {
		return fmt.Errorf("%s: %w", act.title, err)
	}
	for {
		done, err := act.until(ctx)
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("%s: %w", act.title, err)
		}
		if done {
			break
		}
		select {
		case <-s.operator.Done():
			return fmt.Errorf("%s: the operator ended by itself:\n%s", act.title, s.operator.Tail(4096))
		case <-s.lab.Done():
			return fmt.Errorf("%s: %w", act.title, s.lab.Err())
		case <-ctx.Done():
			return fmt.Errorf("%s: not done in 2 minutes; the operator's log ends with\n%s", act.title, s.operator.Tail(4096))
		case <-time.After(50 * time.Millisecond):
		}
	}
	took := time.Since(begin)

	var requests audit.Requests
	if s.lab.Audit().Counted() {
		// What follows from the last change still belongs to this act.
		if err := s.lab.Audit().Settle(ctx, 500*time.Millisecond, audit.User(lab.User)); err != nil {
			return err
		}
		all, err := s.lab.Audit().Since(mark, audit.User(lab.User))
		if err != nil {
			return err
		}
		requests = all.Writes()
	}
	all, err := s.recorder.Changes()
	if err != nil {
		return err
	}
	s.before, s.told = all[:s.told], len(all)
	changes := all[len(s.before):]
	s.timeline.print(os.Stdout, s.start, changes, requests)
	said, err := act.check(took, changes, requests)
	if err != nil {
		s.wrong = append(s.wrong, fmt.Errorf("%s: %w", act.title, err))
		said = "WRONG: " + err.Error()
	}
	s.summary = append(s.summary, fmt.Sprintf("%s: %s", act.title, said))
	return nil
}

func (s *story) acts() []act {
	var killed time.Time
	var robbed types.UID
	return []act{{
		title: "Create a Database of version 17 with 3 replicas",
		do:    func(ctx context.Context) error { return s.lab.Client.Create(ctx, s.database()) },
		until: s.ready,
		check: func(took time.Duration, _ []lab.Change, requests audit.Requests) (string, error) {
			finalizer, applies, status := split(requests)
			if s.lab.Audit().Counted() && (finalizer != 1 || applies != 3) {
				return "", fmt.Errorf("%d finalizer writes and %d applies, want 1 and 3", finalizer, applies)
			}
			return fmt.Sprintf("Ready after %.1f s, %s", took.Seconds(), s.cost(requests, "%d finalizer write, %d applies, %d status writes", finalizer, applies, status)), nil
		},
	}, {
		title: "Scale to 5 replicas",
		do:    s.change(func(db *databasev1.Database) { db.Spec.ScalePolicy.Replicas = 5 }),
		until: s.ready,
		check: s.oneApply,
	}, {
		title: "Upgrade to version 18, while the chart still says 17",
		do:    s.change(func(db *databasev1.Database) { db.Spec.Version = "18" }),
		until: s.ready,
		check: func(took time.Duration, _ []lab.Change, requests audit.Requests) (string, error) {
			db, err := s.get(context.Background())
			if err != nil {
				return "", err
			}
			if !meta.IsStatusConditionTrue(db.Status.Conditions, "VersionSkew") {
				return "", errors.New("condition VersionSkew is not True though chart and spec disagree")
			}
			_, applies, status := split(requests)
			return fmt.Sprintf("Ready after %.1f s, VersionSkew reported and not fought, %s", took.Seconds(), s.cost(requests, "%d applies, %d status writes", applies, status)), nil
		},
	}, {
		title: "Delete its StatefulSet behind its back",
		do: func(ctx context.Context) error {
			sts := &appsv1.StatefulSet{}
			if err := s.lab.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, sts); err != nil {
				return err
			}
			robbed = sts.UID
			return s.lab.Client.Delete(ctx, sts, client.PropagationPolicy(metav1.DeletePropagationForeground))
		},
		until: func(ctx context.Context) (bool, error) {
			sts := &appsv1.StatefulSet{}
			err := s.lab.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, sts)
			if apierrors.IsNotFound(err) || err == nil && sts.UID == robbed {
				return false, nil
			} else if err != nil {
				return false, err
			}
			return s.ready(ctx)
		},
		check: func(took time.Duration, changes []lab.Change, _ audit.Requests) (string, error) {
			lost, noticed := time.Time{}, time.Time{}
			for _, change := range changes {
				if change.Object.GetKind() == "StatefulSet" && lost.IsZero() {
					lost = change.Time
				}
				if change.Object.GetKind() == "Database" && noticed.IsZero() {
					for _, c := range conditionsOf(change.Object) {
						if c["type"] == "Ready" && c["status"] != "True" {
							noticed = change.Time
						}
					}
				}
			}
			if noticed.IsZero() || noticed.Sub(lost) > 5*time.Second {
				return "", errors.New("condition Ready did not turn within 5 s of the loss")
			}
			return fmt.Sprintf("Ready turned after %.1f s, made again and Ready after %.1f s", noticed.Sub(lost).Seconds(), took.Seconds()), nil
		},
	}, {
		title: "Kill the operator with -9, scale to 2 while it is dead, start it again",
		do: func(ctx context.Context) error {
			s.operator.Kill()
			killed = time.Now()
			if err := s.change(func(db *databasev1.Database) { db.Spec.ScalePolicy.Replicas = 2 })(ctx); err != nil {
				return err
			}
			return s.startOperator()
		},
		until: s.ready,
		check: func(_ time.Duration, changes []lab.Change, requests audit.Requests) (string, error) {
			return s.oneApply(time.Since(killed), changes, requests)
		},
	}, {
		title: "Delete the Database",
		do: func(ctx context.Context) error {
			db, err := s.get(ctx)
			if err != nil {
				return err
			}
			return s.lab.Client.Delete(ctx, db)
		},
		until: s.gone,
		check: func(took time.Duration, changes []lab.Change, _ audit.Requests) (string, error) {
			if faults := lab.Disorder(append(s.standing(), changes...), true); len(faults) > 0 {
				return "", errors.New(strings.Join(faults, "; "))
			}
			return fmt.Sprintf("backup Job, then StatefulSet and pods, then volumes, then the Database: in order, in %.1f s, nothing left", took.Seconds()), nil
		},
	}}
}

func (s *story) oneApply(took time.Duration, _ []lab.Change, requests audit.Requests) (string, error) {
	finalizer, applies, status := split(requests)
	if s.lab.Audit().Counted() && (finalizer != 0 || applies != 1) {
		return "", fmt.Errorf("%d finalizer writes and %d applies, want 0 and 1", finalizer, applies)
	}
	return fmt.Sprintf("Ready after %.1f s, %s", took.Seconds(), s.cost(requests, "%d apply, %d status writes", applies, status)), nil
}

func (s *story) cost(requests audit.Requests, format string, args ...any) string {
	if !s.lab.Audit().Counted() {
		return "requests not counted"
	}
	refused := 0
	for _, request := range requests {
		if request.Code >= 400 {
			refused++
		}
	}
	return fmt.Sprintf(format, args...) + fmt.Sprintf(", %d refused", refused)
}

// split counts the operator's writes by what they are for.
func split(requests audit.Requests) (finalizer, applies, status int) {
	for _, request := range requests {
		switch {
		case request.Resource == "databases" && request.Subresource == "status":
			status++
		case request.Resource == "databases":
			finalizer++
		default:
			applies++
		}
	}
	return finalizer, applies, status
}

// standing is the last change of every object that was there when the act began.
func (s *story) standing() []lab.Change {
	last := map[types.UID]lab.Change{}
	for _, change := range s.before {
		if last[change.Object.GetUID()] = change; change.Type == watch.Deleted {
			delete(last, change.Object.GetUID())
		}
	}
	return slices.Collect(maps.Values(last))
}

func (s *story) database() *databasev1.Database {
	return &databasev1.Database{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: databasev1.DatabaseSpec{
			ScalePolicy: databasev1.ScalePolicy{Replicas: 3},
			Version:     "17",
			Storage:     databasev1.Storage{Size: resource.MustParse("1Gi"), Class: s.class},
		},
	}
}

func (s *story) get(ctx context.Context) (*databasev1.Database, error) {
	db := &databasev1.Database{}
	return db, s.lab.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, db)
}

func (s *story) change(edit func(*databasev1.Database)) func(context.Context) error {
	return func(ctx context.Context) error {
		db, err := s.get(ctx)
		if err != nil {
			return err
		}
		before := db.DeepCopy()
		edit(db)
		return s.lab.Client.Patch(ctx, db, client.MergeFrom(before))
	}
}

func (s *story) ready(ctx context.Context) (bool, error) {
	db, err := s.get(ctx)
	if err != nil {
		return false, err
	}
	c := meta.FindStatusCondition(db.Status.Conditions, "Ready")
	return c != nil && c.Status == metav1.ConditionTrue && c.ObservedGeneration == db.Generation, nil
}

// gone is true when nothing of the Database is left.
func (s *story) gone(ctx context.Context) (bool, error) {
	if _, err := s.get(ctx); !apierrors.IsNotFound(err) {
		return false, err
	}
	left := 0
	for _, list := range []client.ObjectList{
		&corev1.PodList{}, &corev1.PersistentVolumeClaimList{}, &corev1.ServiceList{}, &appsv1.StatefulSetList{}, &batchv1.JobList{}, &corev1.ConfigMapList{},
	} {
		if err := s.lab.Client.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return false, err
		}
		_ = meta.EachListItem(list, func(object runtime.Object) error {
			if accessor, err := meta.Accessor(object); err == nil && accessor.GetName() != "kube-root-ca.crt" {
				left++
			}
			return nil
		})
	}
	return left == 0, nil
}

func (s *story) conclude() error {
	changes, err := s.recorder.Changes()
	if err != nil {
		return err
	}
	lies, asked := lab.Lies(changes)
	for _, lie := range lies {
		s.wrong = append(s.wrong, errors.New(lie))
	}
	s.summary = append(s.summary, fmt.Sprintf("kstatus and kubectl wait were asked at each of %d changes of the Database: %d times they called it ready too early", asked, len(lies)))
	fmt.Printf("\nWhat happened\n  %s\n", strings.Join(s.summary, "\n  "))
	if err := errors.Join(s.wrong...); err != nil {
		return err
	}
	fmt.Println("  All of it was right.")
	return nil
}

// keep leaves everything running, with a Database to look at, until interrupted.
func (s *story) keep(ctx context.Context) error {
	if err := s.lab.Client.Create(ctx, s.database()); err != nil {
		return err
	}
	fmt.Printf("\nEverything is left running. In another terminal:\n\n  export KUBECONFIG=%s\n  %s -n %s get databases,statefulsets,pods -w\n\nInterrupt to stop it all.\n",
		s.lab.Kubeconfig(), s.lab.Kubectl(), namespace)
	select {
	case <-ctx.Done():
		return nil
	case <-s.operator.Done():
		return fmt.Errorf("the operator ended by itself:\n%s", s.operator.Tail(4096))
	case <-s.lab.Done():
		return s.lab.Err()
	}
}
