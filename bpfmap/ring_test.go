// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package bpfmap_test

import (
	"context"
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/ashlar-go/ashlar/bpfmap"
	"github.com/ashlar-go/ashlar/bpfmap/bpfmaptest"
)

var ringSpec = bpfmap.Spec{Name: "ring", MaxEntries: 4096}

// A loop that waits for a record ends when its context does: nothing may ever come.
func TestRingContextEndsAnIdleLoop(t *testing.T) {
	worlds(t, func(t *testing.T, w world) {
		r, err := bpfmap.OpenRing[uint32](ringSpec, bpfmap.WithSystem(w.sys))
		ok(t, err)
		defer r.Close()
		for range 3 { // and the next loop waits again
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() {
				defer close(done)
				for range r.All(ctx) {
					t.Error("a record out of nothing")
				}
			}()
			select {
			case <-done:
				t.Fatal("the loop ended before its context")
			case <-time.After(50 * time.Millisecond):
			}
			cancel()
			select {
			case <-done:
			case <-time.After(5 * time.Second):
				t.Fatal("the context has ended and the loop still waits")
			}
		}
	})
}

// Close ends a loop that waits, and what is asked afterwards is an answer and no panic.
func TestRingAfterClose(t *testing.T) {
	worlds(t, func(t *testing.T, w world) {
		r, err := bpfmap.OpenRing[uint32](ringSpec, bpfmap.WithSystem(w.sys))
		ok(t, err)
		done := make(chan struct{})
		go func() {
			defer close(done)
			for range r.All(t.Context()) {
				t.Error("a record out of nothing")
			}
		}()
		time.Sleep(20 * time.Millisecond)
		var stats sync.WaitGroup
		for range 4 {
			stats.Go(func() {
				for range 200 {
					_, err := r.Stat()
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		ok(t, r.Close())
		stats.Wait()
		<-done
		s, err := r.Stat()
		ok(t, err)
		same(t, "after Close", s, bpfmap.RingStat{})
		for range r.All(t.Context()) {
			t.Error("a record out of a closed ring")
		}
	})
}

// lateRing is a ring whose deadlines in the past are set only when gate opens.
type lateRing struct {
	bpfmap.System
	gate, reached chan struct{}
}

type lateSource struct {
	bpfmap.RingSource
	r *lateRing
}

func (r *lateRing) Ring(m bpfmap.Backend) (bpfmap.RingSource, error) {
	src, err := r.System.Ring(m)
	return lateSource{src, r}, err
}

func (s lateSource) SetDeadline(at time.Time) {
	if !at.IsZero() {
		<-s.r.gate
		defer close(s.r.reached)
	}
	s.RingSource.SetDeadline(at)
}

// A loop that was left while its context ended must not end the loop after it.
func TestRingLoopAfterACancelledOne(t *testing.T) {
	k := bpfmaptest.New()
	late := &lateRing{System: k, gate: make(chan struct{}), reached: make(chan struct{})}
	r, err := bpfmap.OpenRing[uint32](ringSpec, bpfmap.WithSystem(late))
	ok(t, err)
	defer r.Close()
	emit := func() {
		if !k.Emit(r.Backend(), []byte{1, 0, 0, 0}) {
			t.Error("the ring is full")
		}
	}
	emit()
	ctx, cancel := context.WithCancel(t.Context())
	for range r.All(ctx) {
		cancel()
		break
	}
	ctx, cancel = context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	go func() {
		time.Sleep(20 * time.Millisecond) // the second loop waits
		close(late.gate)
		<-late.reached
		time.Sleep(20 * time.Millisecond)
		emit()
	}()
	n := 0
	for _, err := range r.All(ctx) {
		ok(t, err)
		n++
		break
	}
	if n != 1 {
		t.Error("the loop ended, although its context had not")
	}
}

// Emit reaches a ring that was opened through Inject: a false says that the ring is full, and it is not.
func TestEmitThroughInject(t *testing.T) {
	k := bpfmaptest.New()
	r, err := bpfmap.OpenRing[uint32](ringSpec, bpfmap.WithSystem(bpfmaptest.Inject(k)))
	ok(t, err)
	defer r.Close()
	if !k.Emit(r.Backend(), []byte{1, 0, 0, 0}) {
		t.Error("an empty ring lost a record")
	}
	if err := r.Backend().Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		t.Error(err)
	}
}
