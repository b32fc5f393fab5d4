// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package bpfmap

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
)

// Ring reads the records of a ring buffer as values of E.
//
// A full ring loses what comes: the program's reserve or output fails, and only the program can count that. By
// convention it adds 1 to slot 0 of a per-CPU array of uint64 each time; [WithLost] makes [Ring.Stat] report it, so that
// what was produced is Delivered plus Lost plus what is still there.
type Ring[E any] struct {
	b         Backend
	src       RingSource
	c         codec[E]
	name      string
	lost      *PerCPU[uint32, uint64]
	delivered atomic.Uint64
}

// RingStat counts records.
type RingStat struct {
	Delivered uint64 // records handed to the reader
	Lost      uint64 // records the program could not write, as far as it counts them
	Available int    // bytes that wait to be read, records and their headers
}

// WithLost names the counter of lost records, see [Ring].
func WithLost(counter *PerCPU[uint32, uint64]) Option {
	return option{"WithLost", func(c *config) {
		if counter == nil {
			c.errs = append(c.errs, errors.New("WithLost: the counter is nil"))
			return
		}
		c.lost = counter
	}}
}

// OpenRing is [Open] for a ring buffer. MaxEntries is its size in bytes.
func OpenRing[E any](s Spec, opts ...Option) (*Ring[E], error) {
	fail := func(err error) error { return &Error{Op: "open", Map: s.Name, Err: err} }
	c, err := configure(opts, ringTakes)
	ec, eerr := direct[E]("record")
	if err := errors.Join(err, eerr); err != nil {
		return nil, fail(err)
	}
	want, err := s.full(ringFace, wire{}, wire{})
	if err != nil {
		return nil, fail(err)
	}
	b, err := c.outer(want)
	if err != nil {
		return nil, fail(err)
	}
	return ringOf(b, cmp.Or(c.pin, s.Name), c, ec)
}

// WrapRing is [Wrap] for a ring buffer.
func WrapRing[E any](m *ebpf.Map, opts ...Option) (*Ring[E], error) {
	c, err := configure(opts, []string{"WithSystem", "WithLost"})
	ec, eerr := direct[E]("record")
	var b Backend
	if err = errors.Join(err, eerr); err == nil {
		b, err = handle(m)
	}
	var info Info
	if err == nil {
		info, err = b.Info()
	}
	if err == nil {
		err = ringFace.check(info.Type)
	}
	if err != nil {
		return nil, &Error{Op: "wrap", Map: "map", Err: err}
	}
	return ringOf(b, info.Name, c, ec)
}

func ringOf[E any](b Backend, name string, c *config, ec codec[E]) (*Ring[E], error) {
	src, err := c.sys.Ring(b)
	if err != nil {
		return nil, &Error{Op: "open", Map: name, Err: errors.Join(permission(err, needCreate), b.Close())}
	}
	return &Ring[E]{b: b, src: src, c: ec, name: name, lost: c.lost}, nil
}

// All yields records as they come and waits for more until ctx ends, which ends the loop without an error. A record of
// another size than E is an error of its own, and the loop goes on. One loop at a time.
func (r *Ring[E]) All(ctx context.Context) iter.Seq2[E, error] {
	return func(yield func(E, error) bool) {
		r.src.SetDeadline(time.Time{})
		stop := context.AfterFunc(ctx, func() { r.src.SetDeadline(time.Unix(1, 0)) })
		defer stop()
		var zero E
		for buf := block(r.c.size); ctx.Err() == nil; {
			var err error
			buf, err = r.src.Read(buf)
			switch {
			case errors.Is(err, os.ErrDeadlineExceeded): // from ctx, or late from that of a loop before
				r.src.SetDeadline(time.Time{})
				continue
			case errors.Is(err, os.ErrClosed):
				return
			case err != nil:
				yield(zero, &Error{Op: "read", Map: r.name, Err: err})
				return
			}
			r.delivered.Add(1)
			if len(buf) != r.c.size {
				err := &LayoutError{Side: "record", Want: fmt.Sprintf("%d bytes (%s)", r.c.size, r.c.lay.typ), Got: fmt.Sprintf("the record has %d", len(buf))}
				if !yield(zero, &Error{Op: "read", Map: r.name, Err: err}) {
					return
				}
				continue
			}
			if !yield(r.c.get(buf), nil) {
				return
			}
		}
	}
}

// Stat counts records. One call with [WithLost], none without.
func (r *Ring[E]) Stat() (RingStat, error) {
	s := RingStat{Delivered: r.delivered.Load(), Available: r.src.Available()}
	if r.lost == nil {
		return s, nil
	}
	var err error
	s.Lost, err = Sum(r.lost, 0)
	return s, err
}

// Backend is [Map.Backend].
func (r *Ring[E]) Backend() Backend { return r.b }

// Close ends a loop and gives the descriptor back.
func (r *Ring[E]) Close() error { return errors.Join(r.src.Close(), r.b.Close()) }
