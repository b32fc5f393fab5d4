// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ashlar-go/ashlar/statussync"
	"github.com/ashlar-go/ashlar/test/bench/side"
	"github.com/ashlar-go/ashlar/test/controlplane"
)

var statusBenches = []side.Bench{{Name: "statussync.watch", Prepare: statusWatch}}

// Payload is what the writer owns beside conditions.
type Payload struct {
	Artifact string `json:"artifact"`
}

// statusWatch is one logical change: a user changes the spec, and conditions, payload and generation follow, while
// somebody watches. Counts are events, the changes of status the watcher saw, and mixed, the states among them in which
// parts of two verdicts stood side by side.
func statusWatch() (_ side.Work, err error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer func() {
		if err != nil {
			cancel()
		}
	}()
	plane, err := controlplane.Start(ctx, controlplane.WithoutAudit(), controlplane.WithSetup(installBuilds),
		controlplane.Without(controlplane.ControllerManager, controlplane.Scheduler, controlplane.Kwok))
	if err != nil {
		return side.Work{}, err
	}
	done := func() error {
		cancel()
		return plane.Stop()
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, done())
		}
	}()
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(buildGroup, &Build{}, &BuildList{})
	metav1.AddToGroupVersion(scheme, buildGroup)
	c, err := client.NewWithWatch(plane.Config(), client.Options{Scheme: scheme})
	if err != nil {
		return side.Work{}, err
	}
	g, err := statussync.New(c, c, "bench")
	if err != nil {
		return side.Work{}, err
	}
	w, err := statussync.For[Payload](g, "build", &Build{}, statussync.Owns{Conditions: []string{"Ready", "Fetched"}, Primary: true})
	if err != nil {
		return side.Work{}, err
	}
	build := &Build{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "build"}}
	if err := c.Create(ctx, build); err != nil {
		return side.Work{}, err
	}
	events, err := c.Watch(ctx, &BuildList{}, &client.ListOptions{
		Namespace: build.Namespace, FieldSelector: fields.OneTermEqualSelector("metadata.name", build.Name),
		Raw: &metav1.ListOptions{ResourceVersion: build.ResourceVersion},
	})
	if err != nil {
		return side.Work{}, err
	}
	seen := watch(build, events.ResultChan())
	written := build.ResourceVersion
	return side.Work{
		Close: done,
		Do: func() error {
			obj := &Build{ObjectMeta: metav1.ObjectMeta{Namespace: build.Namespace, Name: build.Name}}
			spec := fmt.Appendf(nil, `{"spec":{"size":%d}}`, time.Now().UnixNano())
			if err := c.Patch(ctx, obj, client.RawPatch(types.MergePatchType, spec)); err != nil {
				return err
			}
			out, err := w.Sync(ctx, obj, verdict(obj.Generation))
			if err == nil && out.Outcome != statussync.Written {
				err = fmt.Errorf("%v: %s", out.Outcome, out.Why)
			}
			if err == nil {
				written = out.Object.GetResourceVersion()
			}
			return err
		},
		Counts: func() map[string]int64 {
			seen.until(written, time.Minute)
			return seen.counts()
		},
	}, nil
}

// verdict names its generation in each of its parts.
func verdict(generation int64) statussync.Desired[Payload] {
	name := partName(generation)
	return statussync.Desired[Payload]{
		Generation: generation, Status: Payload{Artifact: name},
		Conditions: []metav1.Condition{
			{Type: "Ready", Status: metav1.ConditionStatus([]string{"True", "False"}[generation%2]), Reason: name},
			{Type: "Fetched", Status: metav1.ConditionTrue, Reason: name},
		},
	}
}

func partName(generation int64) string { return fmt.Sprintf("Built%d", generation) }

// installBuilds makes the kind.
func installBuilds(ctx context.Context, config *rest.Config) error {
	c, err := client.New(config, client.Options{})
	if err != nil {
		return err
	}
	return c.Create(ctx, buildCRD())
}
