// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package bpfmaptest

import (
	"os"
	"sync"
	"time"
)

// ringBuffer has the kernel's room: a record takes 8 bytes more than it has, rounded up to 8, and one byte stays free.
type ringBuffer struct {
	mu      sync.Mutex
	changed chan struct{} // closed and replaced on every change
	size    int
	used    int
	records [][]byte
}

func newRing(size int) *ringBuffer { return &ringBuffer{size: size, changed: make(chan struct{})} }

func (r *ringBuffer) wake() {
	close(r.changed)
	r.changed = make(chan struct{})
}

func footprint(record []byte) int { return stride(len(record) + 8) }

func (r *ringBuffer) emit(record []byte) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.used+footprint(record) > r.size-1 {
		return false
	}
	r.used += footprint(record)
	r.records = append(r.records, append([]byte(nil), record...))
	r.wake()
	return true
}

// ringReader reads one.
type ringReader struct {
	r        *ringBuffer
	deadline time.Time
	closed   bool
}

func (s *ringReader) Read(buf []byte) ([]byte, error) {
	for {
		s.r.mu.Lock()
		closed, deadline, changed := s.closed, s.deadline, s.r.changed
		if !closed && len(s.r.records) > 0 {
			record := s.r.records[0]
			s.r.records = s.r.records[1:]
			s.r.used -= footprint(record)
			s.r.mu.Unlock()
			return append(buf[:0], record...), nil
		}
		s.r.mu.Unlock()
		if closed {
			return nil, os.ErrClosed
		}
		var late <-chan time.Time
		if !deadline.IsZero() {
			left := time.Until(deadline)
			if left <= 0 {
				return nil, os.ErrDeadlineExceeded
			}
			late = time.After(left)
		}
		select {
		case <-changed:
		case <-late:
		}
	}
}

func (s *ringReader) Available() int {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	return s.r.used
}

func (s *ringReader) SetDeadline(t time.Time) {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	s.deadline = t
	s.r.wake()
}

func (s *ringReader) Close() error {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	s.closed = true
	s.r.wake()
	return nil
}
