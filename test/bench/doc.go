// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

// Package bench measures the library beside its peers and judges each figure against a declared target.
//
// A metric is one row of [Metrics]. A timing is a ratio of two sides: small programs, built first, one module per set
// of clashing pins, that answer the protocol of package side. The rounds are interleaved, so a machine that slows
// down slows both sides of a pair; the figure is the median of the per-round ratios; the raw samples are kept.
//
//	metric conditions.pass20_unchanged/cluster-api 0.081 ratio target <= 0.33 PASS
//
// # Guarantees
//
//   - A metric without samples is FAIL. A metric whose peer cannot be fetched is SKIP. Neither is ever PASS.
//   - The line of a judged timing has its samples in a JSON file named after the metric.
//   - Thresholds are judged only when somebody asks for figures; the mode that runs each benchmark once judges
//     nothing but that it runs.
//
// # Not for
//
// Absolute figures: a ratio survives another machine, nanoseconds do not.
package bench
