// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ratelimit

import (
	"log/slog"
	"time"
)

// EventKind says what an [Event] is about.
type EventKind string

const (
	// EventRetry: a failure was counted and has a deadline now.
	EventRetry EventKind = "Retry"
	// EventEarly: a run before the deadline failed; neither count nor deadline changed.
	EventEarly EventKind = "Early"
	// EventHeld: a trigger was turned away, because the key waits and has no early run left.
	EventHeld EventKind = "Held"
	// EventGaveUp: the budget of [WithGiveUpAfter] is used up.
	EventGaveUp EventKind = "GaveUp"
	// EventTerminal: a failure that is not tried again.
	EventTerminal EventKind = "Terminal"
	// EventReset: a new generation has cleared what was remembered.
	EventReset EventKind = "Reset"
	// EventSlowed: a remote has throttled, and its rate is lower now, or as low as it gets. Key is the remote.
	EventSlowed EventKind = "Slowed"
	// EventOpened: the breaker of a remote has opened; nothing is admitted for Delay, then one probe. Key is the remote.
	EventOpened EventKind = "Opened"
	// EventClosed: a remote whose breaker was open has answered. Key is the remote.
	EventClosed EventKind = "Closed"
	// EventEvicted: a key had to make room for another one. Key is nil: keys are not kept.
	EventEvicted EventKind = "Evicted"
)

// Event tells an observer what happened to one key. It is plain data: turn it into a log line or a metric.
type Event struct {
	Kind  EventKind     // what happened
	Key   any           // the key, of the type of the Backoff
	Class Class         // of the failure
	Count int           // transient failures in a row
	Delay time.Duration // until the key may run
	Err   error         // what was observed, if anything
}

// LogValue groups the fields that are set.
func (e Event) LogValue() slog.Value {
	attrs := make([]slog.Attr, 0, 6)
	attrs = append(attrs, slog.String("kind", string(e.Kind)))
	if e.Key != nil {
		attrs = append(attrs, slog.Any("key", e.Key))
	}
	if e.Class != 0 {
		attrs = append(attrs, slog.String("class", e.Class.String()), slog.Int("count", e.Count))
	}
	if e.Delay > 0 {
		attrs = append(attrs, slog.Duration("delay", e.Delay))
	}
	if e.Err != nil {
		attrs = append(attrs, slog.String("error", e.Err.Error()))
	}
	return slog.GroupValue(attrs...)
}
