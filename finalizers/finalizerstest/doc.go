// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

// Package finalizerstest tests cleanups that are built with package finalizers. That a cleanup is idempotent, resumes
// after a crash and tolerates other writers is easily claimed and rarely tried; this package tries it, at every request.
//
//	finalizerstest.Run(t, finalizerstest.Case[*v1.Database]{
//		World: func(t testing.TB) client.Client { return fake.NewClientBuilder().WithObjects(database()).Build() },
//		Owner: database(),
//		New:   func(c client.Client) (*finalizers.Finalizer[*v1.Database], error) { return newFinalizer(c) },
//		Check: func(ctx context.Context, c client.Client) error { return nothingLeft(ctx, c) },
//	})
//
// # Guarantees
//
// Run tries every request of the undisturbed run as a crash point, before and after the server has acted. It reports
// steps that do not converge, leftovers that Check finds, and steps that ran although one that comes after them had
// begun.
//
// # Assumptions
//
// Everything the steps and apply send goes through the client they are given, and World makes the same world each time.
//
// # Cost
//
// Some four runs of the whole life of the object for each of its requests. No goroutine, no clock of its own.
//
// # RBAC
//
// None with an in-memory client; with a real API server, what the tested code needs.
//
// # Not for
//
// Proving what a server does: an in-memory client does not collect garbage.
package finalizerstest
