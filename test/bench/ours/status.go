// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ashlar-go/ashlar/statussync"
	"github.com/ashlar-go/ashlar/test/bench/canned"
	"github.com/ashlar-go/ashlar/test/bench/load"
	"github.com/ashlar-go/ashlar/test/bench/side"
)

var statusBenches = []side.Bench{
	{Name: "statussync.noop", Prepare: statusNoOp},
	{Name: "statussync.change", Prepare: statusChange},
	{Name: "statussync.conditions", Prepare: statusConditions},
}

// Payload is what the writer owns beside conditions.
type Payload struct {
	ReadyReplicas *int32 `json:"readyReplicas,omitempty"`
}

func writer(s *canned.Server) (*statussync.Writer[Payload], error) {
	c, err := clientOf(s)
	if err != nil {
		return nil, err
	}
	g, err := statussync.New(c, c, "database-operator", statussync.WithClock(epoch))
	if err != nil {
		return nil, err
	}
	var types []string
	for _, c := range load.State(0).Conditions() {
		types = append(types, c.Type)
	}
	return statussync.For[Payload](g, "health", &Database{}, statussync.Owns{Conditions: types, Primary: true})
}

func desired(s load.State, generation int64) statussync.Desired[Payload] {
	conds := conditionsOf(s.Conditions())
	for i := range conds {
		conds[i].ObservedGeneration = 0
		conds[i].LastTransitionTime = metav1.Time{}
	}
	ready := s.Ready()
	return statussync.Desired[Payload]{Generation: generation, Conditions: conds, Status: Payload{ReadyReplicas: &ready}}
}

func statusNoOp() (side.Work, error) {
	s := &canned.Server{Answer: func(*http.Request, []byte) (int, []byte) { return 0, nil }}
	w, err := writer(s)
	if err != nil {
		return side.Work{}, err
	}
	live, err := databaseAt(0, 1, load.Generation)
	if err != nil {
		return side.Work{}, err
	}
	want := desired(0, load.Generation)
	ctx := context.Background()
	return side.Work{Counts: s.Counts, Do: func() error {
		out, err := w.Sync(ctx, live, want)
		if err == nil && out.Outcome != statussync.NoOp {
			err = fmt.Errorf("%v: %s", out.Outcome, out.Why)
		}
		return err
	}}, nil
}

// statusChange writes one condition, one payload field and the generation of an object that starts every operation with
// what the operation before has written and a new spec. It begins with the one deep copy a cached read costs.
func statusChange() (side.Work, error) {
	var to load.State
	version, generation := int64(10), int64(load.Generation)
	s := &canned.Server{Answer: func(*http.Request, []byte) (int, []byte) {
		return http.StatusOK, to.Reply(version+1, generation)
	}}
	w, err := writer(s)
	if err != nil {
		return side.Work{}, err
	}
	var cached [2]*Database
	want := [2]statussync.Desired[Payload]{desired(0, 0), desired(1, 0)}
	for i := range cached {
		if cached[i], err = databaseAt(load.State(i), 1, 1); err != nil {
			return side.Work{}, err
		}
	}
	ctx := context.Background()
	return side.Work{Counts: s.Counts, Do: func() error {
		from := to
		to, version, generation = 1-to, version+2, generation+1
		move(cached[from], version, generation, generation-1)
		live := cached[from].DeepCopyObject().(*Database)
		want[to].Generation = generation
		out, err := w.Sync(ctx, live, want[to])
		if err == nil && out.Outcome != statussync.Written {
			err = fmt.Errorf("%v: %s", out.Outcome, out.Why)
		}
		if err == nil && len(out.Findings) > 0 {
			err = fmt.Errorf("findings: %v", out.Findings)
		}
		return err
	}}, nil
}

// statusConditions writes one condition and nothing else.
func statusConditions() (side.Work, error) {
	var to load.State
	version := int64(10)
	s := &canned.Server{Answer: func(*http.Request, []byte) (int, []byte) {
		return http.StatusOK, to.Reply(version+1, load.Generation)
	}}
	w, err := writer(s)
	if err != nil {
		return side.Work{}, err
	}
	ctx := context.Background()
	return side.Work{Counts: s.Counts, Do: func() error {
		from := to
		to, version = 2-to, version+2
		live, err := databaseAt(from, version, load.Generation)
		if err != nil {
			return err
		}
		out, err := w.Sync(ctx, live, desired(to, load.Generation))
		if err == nil && out.Outcome != statussync.Written {
			err = fmt.Errorf("%v: %s", out.Outcome, out.Why)
		}
		return err
	}}, nil
}
