// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conversiontest

import (
	"context"
	"slices"
	"sync"
)

// watcher is somebody who watches one object.
type watcher struct {
	version, name string

	mu     sync.Mutex
	events []seen
	more   chan struct{} // has room for one
}

type seen struct {
	event Event
	err   error // the object could not be converted
}

// Watch shows every change of an object from now on, converted to a version. One that cannot be converted is an error of
// next, as it ends a watch of an API server.
func (s *Server) Watch(ctx context.Context, version, name string) (next func() (Event, error), err error) {
	w := &watcher{version: version, name: name, more: make(chan struct{}, 1)}
	s.mu.Lock()
	s.watchers = append(s.watchers, w)
	s.mu.Unlock()
	context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.watchers = slices.DeleteFunc(s.watchers, func(x *watcher) bool { return x == w })
	})
	return func() (Event, error) {
		for {
			if e, ok := w.take(); ok {
				return e.event, e.err
			}
			select {
			case <-w.more:
			case <-ctx.Done():
				return Event{}, ctx.Err()
			}
		}
	}, nil
}

// tell shows an object to those who watch it.
func (s *Server) tell(ctx context.Context, kind, name string) {
	for _, w := range s.watchers {
		if w.name != name {
			continue
		}
		raw, err := s.get(ctx, w.version, name)
		w.put(seen{Event{kind, raw}, err})
	}
}

func (w *watcher) put(e seen) {
	w.mu.Lock()
	w.events = append(w.events, e)
	w.mu.Unlock()
	select {
	case w.more <- struct{}{}:
	default:
	}
}

func (w *watcher) take() (e seen, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.events) == 0 {
		return e, false
	}
	e, w.events = w.events[0], w.events[1:]
	return e, true
}
