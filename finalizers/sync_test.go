// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package finalizers_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ashlar-go/ashlar/finalizers"
)

const (
	former    = "old.example.com/cleanup"
	olderName = "older.example.com/cleanup"
)

func bare422() error {
	return apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "PATCH", schema.GroupResource{}, "", "test failed", 0, false)
}

// TestSyncStores holds the write that stores the finalizer, byte by byte.
func TestSyncStores(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		reason string
		have   []string
		former []string
		patch  string // without the test of the uid
		want   []string
	}{
		"first": {
			reason: "a list that is absent cannot be appended to, and must still be absent when it is created",
			patch:  `{"op":"test","path":"/metadata/finalizers","value":null},{"op":"add","path":"/metadata/finalizers","value":["example.com/cleanup"]}`,
			want:   []string{name},
		},
		"appended": {
			reason: "others keep their place, so nobody's index moves",
			have:   []string{other},
			patch:  `{"op":"add","path":"/metadata/finalizers/-","value":"example.com/cleanup"}`,
			want:   []string{other, name},
		},
		"renamed": {
			reason: "an object must not be without a finalizer between two names, so it is one request, in place",
			have:   []string{other, former, "example.com/third"},
			former: []string{former},
			patch:  `{"op":"test","path":"/metadata/finalizers/1","value":"old.example.com/cleanup"},{"op":"replace","path":"/metadata/finalizers/1","value":"example.com/cleanup"}`,
			want:   []string{other, name, "example.com/third"},
		},
		"renamed twice": {
			reason: "several former names become one entry; highest index first",
			have:   []string{former, other, olderName},
			former: []string{former, olderName},
			patch: `{"op":"test","path":"/metadata/finalizers/2","value":"older.example.com/cleanup"},{"op":"remove","path":"/metadata/finalizers/2"},` +
				`{"op":"test","path":"/metadata/finalizers/0","value":"old.example.com/cleanup"},{"op":"replace","path":"/metadata/finalizers/0","value":"example.com/cleanup"}`,
			want: []string{name, other},
		},
		"both names": {
			reason: "two versions of the controller ran side by side: the former name goes",
			have:   []string{former, name},
			former: []string{former},
			patch:  `{"op":"test","path":"/metadata/finalizers/0","value":"old.example.com/cleanup"},{"op":"remove","path":"/metadata/finalizers/0"}`,
			want:   []string{name},
		},
	}
	for title, tt := range tests {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, configMap("a", tt.have...))
			f := mustNew(t, []step{{Name: "s", Do: done}}, finalizers.WithFormerNames(tt.former...))
			obj := w.get("a")
			before := obj.DeepCopy()
			var a applied
			res, err := f.Sync(t.Context(), w, w, obj, a.apply)
			if err != nil || res.Phase != finalizers.Active || res.RequeueAfter != 7*time.Second {
				t.Fatalf("%s: Sync = %v after %v, %v", tt.reason, res.Phase, res.RequeueAfter, err)
			}
			w.wantSent("PATCH [" + uidTest() + "," + tt.patch + "]")
			if diff := cmp.Diff(tt.want, w.get("a").Finalizers); diff != "" {
				t.Errorf("%s: stored (-want +got):\n%s", tt.reason, diff)
			}
			if diff := cmp.Diff(before, obj); diff != "" {
				t.Errorf("the argument was changed (-before +after):\n%s", diff)
			}
			if a.calls != 1 {
				t.Fatalf("apply was called %d times in the pass that stored the finalizer, want 1", a.calls)
			}
			if diff := cmp.Diff(w.get("a").ResourceVersion, a.last.ResourceVersion); diff != "" {
				t.Errorf("apply did not get the fresh object (-stored +got):\n%s", diff)
			}
			if res.Object != a.last {
				t.Error("Result.Object is not the object that apply got")
			}
			// The second pass from what is stored now has nothing to send.
			if _, err := f.Sync(t.Context(), w, w, w.get("a"), a.apply); err != nil || a.calls != 2 {
				t.Errorf("second pass: %d calls of apply, %v", a.calls, err)
			}
			w.wantSent()
		})
	}
}

func TestSyncKeepsApplysError(t *testing.T) {
	t.Parallel()
	w := newWorld(t, configMap("a", name))
	mine := errors.New("mine")
	res, err := mustNew(t, nil).Sync(t.Context(), w, w, w.get("a"), func(context.Context, *corev1.ConfigMap) (time.Duration, error) {
		return time.Minute, mine
	})
	if err != mine || res.Phase != finalizers.Active || res.RequeueAfter != time.Minute {
		t.Errorf("Sync = %v after %v, %v; want apply's own error as it is", res.Phase, res.RequeueAfter, err)
	}
}

func TestSyncRefusesHalfAnInput(t *testing.T) {
	t.Parallel()
	w := newWorld(t, configMap("a"))
	f := mustNew(t, nil)
	var a applied
	if _, err := f.Sync(t.Context(), w, nil, w.get("a"), a.apply); err == nil {
		t.Error("no live reader: want an error at once, not when the first patch is refused")
	}
	_, err := f.Sync(t.Context(), w, w, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "ns"}}, a.apply)
	var e *finalizers.Error
	if !errors.As(err, &e) || a.calls != 0 {
		t.Errorf("no uid: got %v and %d calls of apply", err, a.calls)
	}
	w.wantSent()
}

// TestSyncServerRefuses holds what follows when the server does not take the patch.
func TestSyncServerRefuses(t *testing.T) {
	t.Parallel()
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "a", errors.New("no"))
	tests := map[string]struct {
		reason   string
		err      error
		requests int
		is       func(error) bool
	}{
		"forbidden": {
			reason: "missing rights are not helped by reading", err: forbidden, requests: 1, is: apierrors.IsForbidden,
		},
		"invalid for good": {
			reason: "the live object leads to the same patch: nobody was in the way, so it is the answer",
			err:    bare422(), requests: 2, is: apierrors.IsInvalid,
		},
		"conflict for ever": {
			reason: "bounded: three patches, three reads",
			err:    apierrors.NewConflict(schema.GroupResource{}, "a", errors.New("busy")), requests: 6,
			is: func(err error) bool { return errors.Is(err, finalizers.ErrContended) && apierrors.IsConflict(err) },
		},
	}
	for title, tt := range tests {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, configMap("a"))
			w.before = func(_ int, req string) error {
				if req[:3] == "GET" {
					return nil
				}
				return tt.err
			}
			var a applied
			res, err := mustNew(t, nil).Sync(t.Context(), w, w, w.get("a"), a.apply)
			if !tt.is(err) || len(w.sent) != tt.requests {
				t.Errorf("%s: %d requests, error %v", tt.reason, len(w.sent), err)
			}
			if a.calls != 0 || res.Phase != finalizers.Pending || res.Object == nil {
				t.Errorf("apply was called %d times, phase %v: nothing may happen before the finalizer is stored", a.calls, res.Phase)
			}
		})
	}
}

// TestSyncRemoves holds the write that removes the finalizer, byte by byte.
func TestSyncRemoves(t *testing.T) {
	t.Parallel()
	w := newWorld(t, terminating("a", other, former, name))
	f := mustNew(t, []step{{Name: "s", Do: done}}, finalizers.WithFormerNames(former))
	res, err := f.Sync(t.Context(), w, w, w.get("a"), nil)
	if err != nil || res.Phase != finalizers.Released {
		t.Fatalf("Sync = %v, %v", res.Phase, err)
	}
	w.wantSent(`PATCH [` + uidTest() +
		`,{"op":"test","path":"/metadata/finalizers/2","value":"example.com/cleanup"},{"op":"remove","path":"/metadata/finalizers/2"}` +
		`,{"op":"test","path":"/metadata/finalizers/1","value":"old.example.com/cleanup"},{"op":"remove","path":"/metadata/finalizers/1"}]`)
	if diff := cmp.Diff([]string{other}, w.get("a").Finalizers); diff != "" {
		t.Errorf("stored (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{other}, res.Object.Finalizers); diff != "" {
		t.Errorf("Result.Object is not the reply (-want +got):\n%s", diff)
	}
}

// TestSyncReplyHasNoLeftovers: the reply after the last finalizer has no list at all. Decoded over a copy of the old
// object it would still show ours.
func TestSyncReplyHasNoLeftovers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, terminating("a", name))
	res, err := mustNew(t, nil).Sync(t.Context(), w, w, w.get("a"), nil)
	if err != nil || res.Phase != finalizers.Released || len(res.Object.Finalizers) != 0 {
		t.Errorf("Sync = %v with %q, %v", res.Phase, res.Object.Finalizers, err)
	}
	if w.exists("a") {
		t.Error("the object is still there")
	}
}

func TestSyncUnstructured(t *testing.T) {
	t.Parallel()
	w := newWorld(t, configMap("a", other))
	f, err := finalizers.New[*unstructured.Unstructured](name, nil)
	if err != nil {
		t.Fatal(err)
	}
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"})
	obj.SetNamespace("ns")
	obj.SetName("a")
	obj.SetUID(uid)
	obj.SetFinalizers([]string{other})
	res, err := f.Sync(t.Context(), w, w, obj, func(_ context.Context, got *unstructured.Unstructured) (time.Duration, error) {
		if diff := cmp.Diff([]string{other, name}, got.GetFinalizers()); diff != "" {
			t.Errorf("apply got (-want +got):\n%s", diff)
		}
		return 0, nil
	})
	if err != nil || res.Object.GetKind() != "ConfigMap" {
		t.Errorf("Sync = %v, %v", res.Object, err)
	}
}
