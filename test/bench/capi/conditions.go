// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"

	"github.com/ashlar-go/ashlar/test/bench/load"
	"github.com/ashlar-go/ashlar/test/bench/side"
)

var conditionBenches = []side.Bench{
	{Name: "conditions.summary20_unchanged", Prepare: func() (side.Work, error) { return summary(false) }},
	{Name: "conditions.summary20_flipped", Prepare: func() (side.Work, error) { return summary(true) }},
	{Name: "conditions.aggregate10k", Prepare: aggregate},
}

func epoch() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

func conditionsOf(list []load.Condition) []metav1.Condition {
	out := make([]metav1.Condition, len(list))
	for i, c := range list {
		out[i] = metav1.Condition{
			Type: c.Type, Status: metav1.ConditionStatus(c.Status), Reason: c.Reason, Message: c.Message,
			ObservedGeneration: load.Generation, LastTransitionTime: metav1.NewTime(epoch()),
		}
	}
	return out
}

// summary sums up twenty conditions that are on the object already: setting them is not timed.
func summary(flip bool) (side.Work, error) {
	objs := [2]*Database{newDatabase("default", "orders"), newDatabase("default", "orders")}
	objs[0].Status.Conditions = conditionsOf(load.Conditions(load.Passes, "True"))
	objs[1].Status.Conditions = conditionsOf(load.Conditions(load.Passes, "False"))
	want := [2]metav1.ConditionStatus{metav1.ConditionTrue, metav1.ConditionFalse}
	types := conditions.ForConditionTypes{}
	for i := range load.Passes {
		types = append(types, load.TypeName(i))
	}
	i := 0
	return side.Work{Do: func() error {
		if flip {
			i = 1 - i
		}
		c, err := conditions.NewSummaryCondition(objs[i], load.Root, types)
		if err != nil {
			return err
		}
		if c.Status != want[i] {
			return fmt.Errorf("summary is %s, want %s", c.Status, want[i])
		}
		return nil
	}}, nil
}

func aggregate() (side.Work, error) {
	var objs []*Database
	for _, m := range load.Fleet(load.FleetSize) {
		d := newDatabase(m.Namespace, m.Name)
		d.Status.Conditions = conditionsOf([]load.Condition{m.Ready})
		objs = append(objs, d)
	}
	return side.Work{Do: func() error {
		c, err := conditions.NewAggregateCondition(objs, load.Root, conditions.TargetConditionType("PoolsReady"))
		if err != nil {
			return err
		}
		if c.Status != metav1.ConditionFalse || c.Message == "" {
			return errors.New("aggregate is not False with a message")
		}
		return nil
	}}, nil
}
