// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conversion

import (
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// EventKind says what an [Event] is about.
type EventKind string

const (
	// Reviewed: a request was answered, well or badly. There is one for each request.
	Reviewed EventKind = "Reviewed"
	// Failed: an object could not be converted, and with it its review. An API server repeats it for ever, hundreds of
	// times a second: Repeated tells the first time from the rest.
	Failed EventKind = "Failed"
	// Quarantined: an object could not be converted and was set apart, see [WithQuarantine].
	Quarantined EventKind = "Quarantined"
	// Dropped: Count values of the annotation did not come back, because the place was edited, moved or removed.
	Dropped EventKind = "Dropped"
	// Rejected: the annotation of an object was not used; Err says why.
	Rejected EventKind = "Rejected"
	// Applied: managers own the annotation, because somebody applies an exported manifest. See [Owners].
	Applied EventKind = "Applied"
)

// Failure is what an API server counts a bad answer as: the label failure_type of its metric
// apiserver_conversion_webhook_request_total.
type Failure string

// The values of the label.
const (
	CallFailure      Failure = "conversion_webhook_call_failure"               // no answer, or not 200
	MalformedFailure Failure = "conversion_webhook_malformed_response_failure" // the answer says Failure, or is no answer to the question
	PartialFailure   Failure = "conversion_webhook_partial_response_failure"
	InvalidFailure   Failure = "conversion_webhook_invalid_converted_object_failure"
	EmptyFailure     Failure = "conversion_webhook_no_objects_returned_failure"
)

// Event is what the observer of a [Handler] is told.
type Event struct {
	Kind      EventKind        // what happened
	GroupKind schema.GroupKind // of the object; of the first one for Reviewed
	From, To  string           // versions, likewise
	Ref       string           // the object; "" for Reviewed
	Count     int              // Dropped: values; Reviewed: objects; Applied: managers
	Hits      int              // Reviewed: objects answered from the cache
	In, Out   int              // Reviewed: bytes of the bodies
	CacheSize int              // Reviewed: bytes the cache holds
	Duration  time.Duration    // Reviewed: from the body's last byte to the answer's first
	Failure   Failure          // Reviewed: what the API server counts it as; "" for a success
	Repeated  bool             // Failed, Quarantined: the same was said of the same object before
	Managers  []Owner          // Applied
	Err       error            // Failed, Quarantined, Rejected
}

// LogValue leaves out what is empty.
func (e Event) LogValue() slog.Value {
	attrs := []slog.Attr{slog.String("kind", string(e.Kind)), slog.String("groupKind", e.GroupKind.String()), slog.String("from", e.From), slog.String("to", e.To)}
	if e.Ref != "" {
		attrs = append(attrs, slog.String("object", e.Ref))
	}
	if e.Kind == Reviewed {
		attrs = append(attrs, slog.Int("hits", e.Hits), slog.Int("in", e.In), slog.Int("out", e.Out), slog.Duration("duration", e.Duration))
	}
	if e.Count > 0 {
		attrs = append(attrs, slog.Int("count", e.Count))
	}
	if e.Failure != "" {
		attrs = append(attrs, slog.String("failure", string(e.Failure)))
	}
	if e.Repeated {
		attrs = append(attrs, slog.Bool("repeated", true))
	}
	if e.Err != nil {
		attrs = append(attrs, slog.String("error", e.Err.Error()))
	}
	return slog.GroupValue(attrs...)
}
