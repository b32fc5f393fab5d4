// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"

	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/ashlar-go/ashlar/examples/database/internal/controller"
)

// plan prints what would be done, from the same cache and under the same rights
// as the operator, and ends. No controller is started, so nothing can be written.
func plan(ctx context.Context, mgr manager.Manager, r *controller.Reconciler, out io.Writer) error {
	if err := r.Index(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	planned := make(chan error, 1)
	err := mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		planned <- r.Plan(ctx, out)
		cancel()
		return nil
	}))
	if err != nil {
		return err
	}
	if err := mgr.Start(ctx); err != nil {
		return err
	}
	select {
	case err := <-planned:
		return err
	default:
		return ctx.Err() // interrupted before the cache had synced
	}
}
