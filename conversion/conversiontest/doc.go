// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

// Package conversiontest holds conversions to their laws. Hand-written round-trip tests see what their author thought of;
// what users lose are the fields, spellings and edits nobody thought of.
//
//	func TestDatabaseConversion(t *testing.T) {
//		conversiontest.Laws(t, converter, crd)  // every ordered pair of versions, random objects of the schema
//		conversiontest.Walks(t, converter, crd) // random steps at random versions, through an API server's rules
//	}
//
// # Guarantees
//
//   - Objects come from the CRD's own schemas: what the API server would let through, zeros, nulls and equal list items
//     included, complete and partial.
//   - Comparisons are made on JSON, not on Go values, and not with code of package conversion.
//   - [Validate] is the API server's judgement of an answer (apiextensions-apiserver 0.37, webhook_converter.go), and
//     [Server] stores, converts and restores metadata as one.
//   - A failure prints the seed. The same seed gives the same objects and, on servers that do the same, the same steps:
//     [Walk] takes those of [Walks] through a real API server, and [WithTrace] shows that both did the same.
//
// # Assumptions
//
// The conversion functions depend on nothing but their arguments.
//
// # Cost
//
// About a millisecond for a step of a walk, several where managers apply.
//
// # RBAC
//
// None: no cluster is involved.
//
// # Not for
//
// Deciding who owns a field: [Server] does not apply. With an [Applier] around it walks apply, too.
//
// Validation of the schemas themselves: the generator knows types, enums, bounds, list types and nullability, not
// patterns and CEL rules. Give a string with a pattern an enum in the schema a test uses.
package conversiontest
