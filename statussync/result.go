// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package statussync

import (
	"log/slog"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Outcome says what a Sync did.
type Outcome uint8

const (
	NoOp     Outcome = iota // nothing to say that the live object does not say already; no write
	Written                 // the status was written; Result.Object is the fresh object
	Stale                   // a verdict of a newer generation is live; ours was dropped
	Gone                    // the object, or the incarnation the verdict is about, does not exist any more
	Deferred                // not written now; come back after Result.RequeueAfter
)

var outcomes = [...]string{"NoOp", "Written", "Stale", "Gone", "Deferred"}

// String returns the constant's name.
func (o Outcome) String() string {
	if int(o) < len(outcomes) {
		return outcomes[o]
	}
	return "Outcome(" + strconv.Itoa(int(o)) + ")"
}

// Result says what one Sync did. When Sync returns an error, Outcome is NoOp and says nothing.
type Result struct {
	Outcome Outcome // what was done

	// Object is the object as the server returned it, of the same Go type as the one passed in; nil when nothing was
	// written. Pass this one on: the old one's resourceVersion is a certain conflict.
	Object client.Object

	// RequeueAfter is when to come back although nothing changes; 0 when nothing is due.
	RequeueAfter time.Duration

	// Why is one sentence for humans.
	Why string

	// Findings are what the caller may want to report, in a fixed order; mostly nil.
	Findings []Finding
}

// Kinds of Finding.
const (
	// Contested: what this writer owns was taken from it twice within 10 minutes. Manager is the other one, empty when
	// managedFields do not tell.
	Contested = "Contested"

	// Repaired: Field held an observedGeneration above the object's generation, which no controller can have observed.
	Repaired = "Repaired"

	// Altered: the server stored something else in Field than was sent: the schema defaults it, another manager holds a
	// part of it, or a webhook changes it. It is written again when the desired value or the stored one changes.
	Altered = "Altered"
)

// Finding is something that is not an error of this Sync but worth telling.
type Finding struct {
	Kind    string // Contested, Repaired or Altered
	Manager string // the other field manager, where one is known
	Field   string // a condition type, or a path below status
}

// String returns one sentence without a full stop.
func (f Finding) String() string {
	switch f.Kind {
	case Contested:
		by := f.Manager
		if by == "" {
			by = "an unknown manager"
		}
		return "Contested: " + f.Field + " was taken twice within 10 minutes by " + by
	case Repaired:
		return "Repaired: " + f.Field + " was above the object's generation"
	case Altered:
		return "Altered: the server stored another " + f.Field + " than was sent"
	}
	return f.Kind + ": " + f.Field
}

// Event is what an observer sees of one Sync or TakeOver.
type Event struct {
	Writer          string // field manager: group/writer
	Kind            string
	Namespace, Name string
	UID             types.UID
	Generation      int64 // of the verdict
	Outcome         Outcome
	Why             string
	Requests        int // sent to the server, reads included
	Findings        []Finding
	RequeueAfter    time.Duration
	Err             error
}

// LogValue implements slog.LogValuer.
func (e Event) LogValue() slog.Value {
	at := []slog.Attr{
		slog.String("writer", e.Writer),
		slog.String("kind", e.Kind),
		slog.String("object", objectName(e.Namespace, e.Name)),
		slog.Int64("generation", e.Generation),
		slog.String("outcome", e.Outcome.String()),
		slog.String("why", e.Why),
		slog.Int("requests", e.Requests),
	}
	if e.RequeueAfter > 0 {
		at = append(at, slog.Duration("requeueAfter", e.RequeueAfter))
	}
	for _, f := range e.Findings {
		at = append(at, slog.String("finding", f.String()))
	}
	if e.Err != nil {
		at = append(at, slog.String("error", e.Err.Error()))
	}
	return slog.GroupValue(at...)
}

func objectName(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}
