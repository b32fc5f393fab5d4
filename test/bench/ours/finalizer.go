// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/ashlar-go/ashlar/finalizers"
	"github.com/ashlar-go/ashlar/test/bench/canned"
	"github.com/ashlar-go/ashlar/test/bench/load"
	"github.com/ashlar-go/ashlar/test/bench/side"
)

var finalizerBenches = []side.Bench{
	{Name: "finalizers.noop", Prepare: func() (side.Work, error) { return finalize(true) }},
	{Name: "finalizers.change", Prepare: func() (side.Work, error) { return finalize(false) }},
}

const finalizerName = "example.com/database"

// finalize syncs an object that has the finalizer, or one that gets it; in that case every operation has an object of its
// own, told apart by uid, because a second write to one object would be for nothing.
func finalize(stored bool) (side.Work, error) {
	live, err := databaseAt(0, 7, load.Generation)
	if err != nil {
		return side.Work{}, err
	}
	if stored {
		live.Finalizers = []string{"example.com/other", finalizerName}
	} else {
		live.Finalizers = []string{"example.com/other"}
	}
	s := &canned.Server{Answer: func(*http.Request, []byte) (int, []byte) {
		reply := string(load.State(0).Reply(8, load.Generation))
		reply = strings.Replace(reply, `["`+finalizerName+`"]`, `["example.com/other","`+finalizerName+`"]`, 1)
		return http.StatusOK, []byte(strings.Replace(reply, load.OwnerUID, string(live.UID), 1))
	}}
	c, err := clientOf(s)
	if err != nil {
		return side.Work{}, err
	}
	f, err := finalizers.New(finalizerName, []finalizers.Step[*Database]{
		{Name: "backup", Do: func(context.Context, finalizers.Deletion[*Database]) finalizers.Outcome { return finalizers.Done() }},
		{Name: "children", After: []string{"backup"}, Do: func(context.Context, finalizers.Deletion[*Database]) finalizers.Outcome {
			return finalizers.Done()
		}},
	})
	if err != nil {
		return side.Work{}, err
	}
	applied := 0
	apply := func(_ context.Context, d *Database) (time.Duration, error) {
		if len(d.Finalizers) != 2 {
			return 0, errors.New("applied without the finalizer")
		}
		applied++
		return 0, nil
	}
	ctx := context.Background()
	n := 0
	return side.Work{Counts: s.Counts, Do: func() error {
		n++
		if !stored {
			live.UID = types.UID("uid-" + strconv.Itoa(n))
		}
		_, err := f.Sync(ctx, c, c, live, apply)
		if err == nil && applied != n {
			err = fmt.Errorf("applied %d times in %d passes", applied, n)
		}
		return err
	}}, nil
}
