// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

// Package conditionstest tells a controller's tests whether its conditions obey the laws that package conditions
// promises. It serves controllers that use the package, and those that set conditions by other means and want to know
// what they are missing.
//
//	func TestConditions(t *testing.T) {
//		reconcile := func(live []metav1.Condition, gen int64, now time.Time) ([]metav1.Condition, error) {
//			pass := health.Begin(live, gen, nil)
//			pass.Put(serving(world))
//			r, err := pass.Done(now)
//			return r.Conditions, err
//		}
//		conditionstest.Verify(t, conditionstest.Exercise(health, reconcile))
//	}
//
// [Check] judges states recorded elsewhere, for example by a watch in an end-to-end test.
//
// # Guarantees
//
//   - Each law has a number, a name and a sentence that says why it is one ([Laws]); a violation quotes them.
//   - The checks are written from the declaration of the Set and share no code with package conditions.
//   - Nothing passed in is modified. The outcome is the same on every run.
//
// # Assumptions
//
//   - Exercise: what the controller looks at, other than its arguments, does not change between calls, and holds are off.
//   - Check: the snapshots are of one incarnation of one object, oldest first.
//
// # Cost
//
// Quadratic in the number of types; a set of twenty is exercised in about a millisecond. No requests.
//
// # RBAC
//
// None.
//
// # Not for
//
// Production code: it imports testing.
package conditionstest
