// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	databasev1 "github.com/ashlar-go/ashlar/examples/database/api/v1"
)

// Kinds that a recorder of a Database watches.
var Kinds = []schema.GroupVersionKind{
	databasev1.DatabaseKind,
	{Version: "v1", Kind: "ConfigMap"},
	{Version: "v1", Kind: "Service"},
	{Group: "apps", Version: "v1", Kind: "StatefulSet"},
	{Version: "v1", Kind: "Pod"},
	{Version: "v1", Kind: "PersistentVolumeClaim"},
	{Group: "batch", Version: "v1", Kind: "Job"},
	{Group: "events.k8s.io", Version: "v1", Kind: "Event"},
}

// Change is one watch event.
type Change struct {
	Type    watch.EventType
	Time    time.Time // when it arrived here
	Version uint64    // resourceVersion: comparable over all kinds of one etcd
	Object  *unstructured.Unstructured
}

// Recorder keeps every watch event of a namespace.
type Recorder struct {
	stop   context.CancelFunc
	wait   sync.WaitGroup
	onEach func(Change)

	mu      sync.Mutex
	changes []Change
	err     error
}

// Record watches the kinds in a namespace ("" for all) until Stop. onEach, if not nil,
// is called with every change as it arrives, one at a time.
func (l *Lab) Record(ctx context.Context, namespace string, kinds []schema.GroupVersionKind, onEach func(Change)) (*Recorder, error) {
	ctx, stop := context.WithCancel(ctx)
	r := &Recorder{stop: stop, onEach: onEach}
	for _, kind := range kinds {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		if err := l.Client.List(ctx, list, client.InNamespace(namespace)); err != nil {
			r.Stop()
			return nil, fmt.Errorf("record %s: %w", kind.Kind, err)
		}
		for i := range list.Items {
			r.add(watch.Added, &list.Items[i])
		}
		version := list.GetResourceVersion()
		r.wait.Go(func() { r.follow(ctx, l.Client, kind, namespace, version) })
	}
	return r, nil
}

// follow re-opens the watch where it broke off, since a server ends watches as it likes.
func (r *Recorder) follow(ctx context.Context, c client.WithWatch, kind schema.GroupVersionKind, namespace, version string) {
	for ctx.Err() == nil {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		w, err := c.Watch(ctx, list, client.InNamespace(namespace),
			&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: version, AllowWatchBookmarks: true}})
		if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
			r.fail(fmt.Errorf("watch %s from %s: lost the place: %w", kind.Kind, version, err))
			return
		}
		if err != nil {
			pause(ctx) // the server may be down for a while, and the place is kept
			continue
		}
		for event := range w.ResultChan() {
			object, ok := event.Object.(*unstructured.Unstructured)
			if !ok || event.Type == watch.Error {
				w.Stop()
				if ctx.Err() != nil {
					return // the end of ctx itself comes as an error that cannot be decoded
				}
				r.fail(fmt.Errorf("watch %s from %s: lost the place: %v", kind.Kind, version, event.Object))
				return
			}
			version = object.GetResourceVersion()
			if event.Type != watch.Bookmark {
				r.add(event.Type, object)
			}
		}
	}
}

// pause waits a little before a watch is tried again.
func pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(200 * time.Millisecond):
	}
}

func (r *Recorder) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = errors.Join(r.err, err)
}

func (r *Recorder) add(kind watch.EventType, object *unstructured.Unstructured) {
	version, err := strconv.ParseUint(object.GetResourceVersion(), 10, 64)
	if err != nil {
		r.fail(fmt.Errorf("read the resourceVersion of %s %s: %w", object.GetKind(), object.GetName(), err))
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	change := Change{kind, time.Now(), version, object}
	r.changes = append(r.changes, change)
	if r.onEach != nil {
		r.onEach(change)
	}
}

// Stop ends the watches.
func (r *Recorder) Stop() {
	r.stop()
	r.wait.Wait()
}

// Changes returns what was recorded so far in the order in which it happened on the
// server, and an error if a watch lost its place, because then something may be missing.
func (r *Recorder) Changes() ([]Change, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	changes := slices.Clone(r.changes)
	slices.SortStableFunc(changes, func(a, b Change) int { return cmp.Compare(a.Version, b.Version) })
	return changes, r.err
}
