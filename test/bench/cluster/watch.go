// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apiwatch "k8s.io/apimachinery/pkg/watch"
)

// watcher counts what somebody who watches one Build sees of its status.
type watcher struct {
	mu            sync.Mutex
	moved         chan struct{} // closed and replaced with each event
	version       string
	last          BuildStatus
	events, mixed int64
}

// watch reads events until there are no more. from is the object the watch begins behind.
func watch(from *Build, events <-chan apiwatch.Event) *watcher {
	w := &watcher{moved: make(chan struct{}), version: from.ResourceVersion, last: from.Status}
	go func() {
		for e := range events {
			if b, ok := e.Object.(*Build); ok && e.Type == apiwatch.Modified {
				w.see(b)
			}
		}
	}()
	return w
}

func (w *watcher) see(b *Build) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.version = b.ResourceVersion
	close(w.moved)
	w.moved = make(chan struct{})
	if equality.Semantic.DeepEqual(b.Status, w.last) {
		return // the spec has changed
	}
	w.events++
	if !whole(b.Status) {
		w.mixed++
	}
	w.last = b.Status
}

// whole reports whether all parts of a status are of one verdict.
func whole(s BuildStatus) bool {
	name := partName(s.ObservedGeneration)
	for _, c := range s.Conditions {
		if c.Reason != name || c.ObservedGeneration != s.ObservedGeneration {
			return false
		}
	}
	return s.Artifact == name && len(s.Conditions) > 0
}

// until waits for the event of a version. What never comes is missing from the counts.
func (w *watcher) until(version string, limit time.Duration) {
	timeout := time.After(limit)
	for {
		w.mu.Lock()
		there, moved := w.version == version, w.moved
		w.mu.Unlock()
		if there {
			return
		}
		select {
		case <-moved:
		case <-timeout:
			return
		}
	}
}

func (w *watcher) counts() map[string]int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return map[string]int64{"events": w.events, "mixed": w.mixed}
}
