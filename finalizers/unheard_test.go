// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package finalizers_test

import (
	"context"
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ashlar-go/ashlar/finalizers"
)

// deaf carries patches out and answers with an error while it is set.
type deaf struct {
	client.Client
	err error
}

func (d *deaf) Patch(ctx context.Context, obj client.Object, p client.Patch, opts ...client.PatchOption) error {
	if err := d.Client.Patch(ctx, obj, p, opts...); err != nil {
		return err
	}
	return d.err
}

// TestUnheardStore: the finalizer was stored, the answer got lost and the cache does not show it yet. Appending it again
// would be accepted.
func TestUnheardStore(t *testing.T) {
	t.Parallel()
	w := newWorld(t, configMap("a", other))
	f := mustNew(t, nil)
	cached := w.get("a")
	d := &deaf{Client: w.Client, err: errors.New("connection reset by peer")}
	if res, err := f.Sync(t.Context(), d, w.Client, cached, nil); err == nil || res.Phase != finalizers.Pending {
		t.Fatalf("got %v, %v", res.Phase, err)
	}
	d.err = nil
	w.sent = nil
	if res, err := f.Sync(t.Context(), d, w.Client, cached, nil); err != nil || res.Phase != finalizers.Active {
		t.Fatalf("got %v, %v", res.Phase, err)
	}
	w.wantVerbs("GET")
	if got := w.get("a").Finalizers; len(got) != 2 {
		t.Errorf("got %q", got)
	}
}

// TestUnheardProgress: a step found out that the owner is orphaned, that was stored, and the answer got lost. The cache
// shows the object after the garbage collector's sign has gone and before the note; the next step must be told.
func TestUnheardProgress(t *testing.T) {
	t.Parallel()
	for title, c := range map[string]struct {
		reason string
		err    error
		look   bool
	}{
		"a broken connection": {"it may have arrived", errors.New("connection reset by peer"), true},
		"a server's timeout":  {"it may have been stored", apierrors.NewServerTimeout(schema.GroupResource{}, "patch", 1), true},
		"a refusal":           {"it was not stored", apierrors.NewForbidden(schema.GroupResource{}, "a", errors.New("no")), false},
	} {
		w := newWorld(t, terminating("a", name))
		var log []string
		f := mustNew(t, []step{{Name: "wait", Do: say(&log, "wait", finalizers.Wait(0))}})
		cached := w.get("a")
		d := &deaf{Client: w.Client, err: c.err}
		if _, err := f.Sync(t.Context(), d, w.Client, cached, nil); !errors.Is(err, c.err) {
			t.Fatalf("%s: got %v", title, err)
		}
		d.err = nil
		w.sent = nil
		if _, err := f.Sync(t.Context(), d, w.Client, cached, nil); err != nil {
			t.Fatalf("%s: %v", title, err)
		}
		if got := len(w.sent) > 0 && w.sent[0] == "GET a"; got != c.look {
			t.Errorf("%s (%s): looked: %v; sent %v", title, c.reason, got, w.sent)
		}
	}
}
