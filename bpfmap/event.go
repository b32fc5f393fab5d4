// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package bpfmap

import "log/slog"

// Event tells an observer of a pass that wrote something or failed. It is plain data: turn it into a log line or a
// metric.
type Event struct {
	Map    string // name or pin path
	Result Result
	Err    error
}

// LogValue groups the numbers.
func (e Event) LogValue() slog.Value {
	r := e.Result
	attrs := []slog.Attr{
		slog.String("map", e.Map), slog.Int("added", r.Added), slog.Int("changed", r.Changed), slog.Int("deleted", r.Deleted),
		slog.Int("failed", len(r.Failures)), slog.Int("drift", r.Drift), slog.Float64("pressure", r.Pressure),
	}
	if e.Err != nil {
		attrs = append(attrs, slog.String("error", e.Err.Error()))
	}
	return slog.GroupValue(attrs...)
}
