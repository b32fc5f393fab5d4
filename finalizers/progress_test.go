// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package finalizers_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ashlar-go/ashlar/finalizers"
)

func TestProgressOf(t *testing.T) {
	t.Parallel()
	blocked := `{"policy":"Orphan","steps":[{"step":"a","state":"Done"},{"step":"b","state":"BlockedBy","since":"2026-03-01T10:00:00Z","blocker":{"kind":"Pod","namespace":"ns","name":"p"}}]}`
	over := `{"steps":[{"step":"a","state":"Done"}]}`
	tests := map[string]struct {
		reason     string
		annotation string
		want       string
		finalizer  string
	}{
		"none":       {reason: "not being cleaned up"},
		"unreadable": {reason: "a reader can do nothing about it", annotation: "["},
		"wrong form": {reason: "the entry is not one", annotation: fmt.Sprintf(`{"uid":%q,"by":{"a/b":7}}`, uid)},
		"another's":  {reason: "a copied manifest", annotation: fmt.Sprintf(`{"uid":"x","by":{"a/b":%s}}`, blocked)},
		"one": {
			reason: "step, state, blocker and time", annotation: fmt.Sprintf(`{"uid":%q,"by":{"a/b":%s}}`, uid, blocked),
			want: "a: Done, b: BlockedBy Pod ns/p since 2026-03-01T10:00:00Z", finalizer: "a/b",
		},
		"several": {
			reason: "the one that is not over", annotation: fmt.Sprintf(`{"uid":%q,"by":{"a/b":%s,"c/d":%s}}`, uid, over, blocked),
			want: "a: Done, b: BlockedBy Pod ns/p since 2026-03-01T10:00:00Z", finalizer: "c/d",
		},
		"all over": {
			reason: "the first", annotation: fmt.Sprintf(`{"uid":%q,"by":{"c/d":%s,"a/b":%s}}`, uid, over, over), want: "a: Done", finalizer: "a/b",
		},
	}
	for title, tt := range tests {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			obj := terminating("x", name)
			if tt.annotation != "" {
				obj.Annotations = map[string]string{finalizers.Annotation: tt.annotation}
			}
			p, ok := finalizers.ProgressOf(obj)
			if ok != (tt.want != "") || ok && p.String() != tt.want || p.Finalizer != tt.finalizer {
				t.Errorf("%s: %v %q of %q", tt.reason, ok, p, p.Finalizer)
			}
			if strings.Contains(tt.want, "Pod") && p.Policy != metav1.DeletePropagationOrphan {
				t.Errorf("policy %q", p.Policy)
			}
		})
	}
}

func TestProgressCurrent(t *testing.T) {
	t.Parallel()
	of := func(states ...finalizers.State) finalizers.Progress {
		var p finalizers.Progress
		for i, s := range states {
			p.Steps = append(p.Steps, finalizers.StepProgress{Step: fmt.Sprint(i), State: s})
		}
		return p
	}
	const (
		pending, skipped, waiting = finalizers.StatePending, finalizers.StateSkipped, finalizers.StateWaiting
		blocked, retrying, stuck  = finalizers.StateBlocked, finalizers.StateRetrying, finalizers.StateStuck
		ns, over                  = finalizers.StateNamespaceTerminating, finalizers.StateDone
	)
	for want, p := range map[string]finalizers.Progress{
		"": of(over, skipped, pending), "1": of(over, waiting, blocked), "2": of(waiting, blocked, retrying),
		"3": of(waiting, retrying, pending, stuck), "0": of(ns, stuck),
	} {
		if s, ok := p.Current(); s.Step != want || ok != (want != "") {
			t.Errorf("Current of %v = %v, %v; want step %q", p, s, ok, want)
		}
	}
}

func TestProgressErr(t *testing.T) {
	t.Parallel()
	p := finalizers.Progress{Steps: []finalizers.StepProgress{{Step: "a"}, {Step: "b", Err: errors.New("x")}, {Step: "c", Err: errors.New("y")}}}
	if got, want := p.Err().Error(), "cleanup step \"b\": x\ncleanup step \"c\": y"; got != want {
		t.Errorf("Err = %q, want %q", got, want)
	}
	if err := (finalizers.Progress{}).Err(); err != nil {
		t.Errorf("Err of nothing = %v", err)
	}
}

func TestEventLogValue(t *testing.T) {
	t.Parallel()
	w := newWorld(t, terminating("a", name))
	var out bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
	var log []string
	f := mustNew(t, []step{{Name: "s", Do: say(&log, "s", finalizers.BlockedBy(finalizers.Ref{Kind: "Pod", Name: "p"}), finalizers.Retry(errors.New("no")), finalizers.Done())}},
		finalizers.WithObserver(func(e finalizers.Event) { logger.Info("", "cleanup", e) }))
	for range 3 {
		_, _ = f.Sync(t.Context(), w, w, w.get("a"), nil)
	}
	want := `level=INFO msg="" cleanup.kind=Step cleanup.finalizer=example.com/cleanup cleanup.object="ConfigMap ns/a" cleanup.step=s cleanup.state=BlockedBy cleanup.blocker="Pod p" cleanup.since=2026-03-01T10:00:00.000Z cleanup.message="s: BlockedBy Pod p since 2026-03-01T10:00:00Z"
level=INFO msg="" cleanup.kind=Step cleanup.finalizer=example.com/cleanup cleanup.object="ConfigMap ns/a" cleanup.step=s cleanup.state=Retry cleanup.since=2026-03-01T10:00:00.000Z cleanup.message="s: Retry since 2026-03-01T10:00:00Z" cleanup.error=no
level=INFO msg="" cleanup.kind=Step cleanup.finalizer=example.com/cleanup cleanup.object="ConfigMap ns/a" cleanup.step=s cleanup.state=Done cleanup.message="s: Done"
level=INFO msg="" cleanup.kind=Released cleanup.finalizer=example.com/cleanup cleanup.object="ConfigMap ns/a" cleanup.message="the cleanup is over and the finalizer is removed"
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
}
