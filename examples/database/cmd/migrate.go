// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ashlar-go/ashlar/conversion/migrate"
	"github.com/ashlar-go/ashlar/examples/database/internal/convert"
)

// migrateStorage rehearses, and writes only if every Database would come through.
func migrateStorage(ctx context.Context, cfg *rest.Config, scheme *runtime.Scheme, out io.Writer) error {
	databases, err := convert.Databases()
	if err != nil {
		return err
	}
	c, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		return err
	}
	m, err := migrate.New(c, c, convert.CRD, migrate.WithConverter(databases), migrate.WithoutDelegation(),
		migrate.WithObserver(func(p migrate.Progress) { fmt.Fprintln(out, p) }))
	if err != nil {
		return err
	}
	report, err := m.Rehearse(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintln(out, report)
	if !report.Empty() {
		return errors.New("nothing was written: not every Database would come through unchanged")
	}
	done, err := m.Run(ctx, "")
	if err != nil {
		return err
	}
	for _, failure := range done.Failures {
		fmt.Fprintln(out, failure)
	}
	dropped, err := m.Prune(ctx, done)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%d Databases are stored at %s; storedVersions lost %v\n", done.Objects, done.Storage, dropped)
	return nil
}
