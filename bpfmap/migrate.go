// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package bpfmap

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"syscall"
)

// fill completes an entry after the fields of the same name were copied.
type fill[K, V any] func(old Old, k *K, v *V) (keep bool, err error)

// WithMigration lets Open replace a pinned map that differs from what is asked for, in layout, size or type, and carry
// its entries over: fields are copied by name, numbers are widened, new fields are zero. Fill may be nil; else it gets
// every entry after that, sets what else it knows, and answers false to leave the entry out. A number that does not fit
// is an error and leaves everything as it was.
//
// The new map is filled beside the old one, as path-next, and takes its place by one rename: whoever opens the pin finds
// the old or the new map, never none. The old one stays as path-prev for [Undo]. A crash at any step leaves one of the
// two in place with all its entries, and the next Open goes on from there. What other processes write into the old map
// during the copy is lost.
//
// A map that a program uses cannot be replaced like this, the program would go on with the old one: [ErrInUse], also
// when CAP_SYS_ADMIN is missing to look at every program. Use [Migrate] together with the exchange of the program.
func WithMigration[K, V any](fillIn func(old Old, k *K, v *V) (keep bool, err error)) Option {
	return option{"WithMigration", func(c *config) { c.migrate = fill[K, V](fillIn) }}
}

// Migration replaces a pinned map step by step, for a caller that exchanges a program in between: Copy, load the program
// on Map, exchange it, Merge what was written meanwhile, Commit.
type Migration[K, V any] struct {
	sys      System
	pin      string
	old      *table
	work     *Map[K, V]
	fill     fill[K, V]
	from     sidecar // what the old bytes mean
	key, val converter
	hasCard  bool
}

// Migrate opens the map at [WithPin] and makes a new one of the wanted kind beside it, pinned as path-next and empty.
// It does not ask who uses the old map. [WithMigration] gives the fill function. Close the new map, or Abort.
func Migrate[K, V any](s Spec, opts ...Option) (*Migration[K, V], error) {
	c, kc, vc, err := prepare[K, V](opts, migrateTakes)
	if err == nil && c.pin == "" {
		err = errors.New("WithPin is missing")
	}
	if err != nil {
		return nil, &Error{Op: "migrate", Map: s.Name, Err: err}
	}
	g, err := begin(s, plainFace, c, kc, vc)
	if err != nil {
		return nil, &Error{Op: "migrate", Map: c.pin, Err: err}
	}
	return g, nil
}

// migrateOpen is what Open does with an incompatible pin.
func migrateOpen[K, V any](s Spec, f face, c *config, kc codec[K], vc codec[V]) (*Map[K, V], error) {
	fail := func(err error) error { return &Error{Op: "migrate", Map: c.pin, Err: err} }
	g, err := begin(s, f, c, kc, vc)
	if err != nil {
		return nil, fail(err)
	}
	programs, complete, err := c.sys.Users(g.old.info.ID)
	switch {
	case err != nil:
	case len(programs) > 0:
		err = fmt.Errorf("%w: by program id %d, which would go on with the old map: exchange both together", ErrInUse, programs)
	case !complete:
		err = fmt.Errorf("%w, as far as can be told: seeing every program needs CAP_SYS_ADMIN", ErrInUse)
	}
	if err == nil {
		_, err = g.Copy(context.Background())
	}
	if err != nil {
		return nil, fail(errors.Join(err, g.Abort()))
	}
	if err := g.Commit(); err != nil {
		return nil, fail(errors.Join(err, g.Abort()))
	}
	if err := g.work.Close(); err != nil {
		return nil, fail(err)
	}
	b, err := c.sys.OpenPin(c.pin, false)
	if err != nil {
		return nil, fail(err)
	}
	c.pinned = true
	m, err := build(b, c.pin, f, c, kc, vc)
	return closing(m, b, err)
}

func begin[K, V any](s Spec, f face, c *config, kc codec[K], vc codec[V]) (*Migration[K, V], error) {
	g := &Migration[K, V]{sys: c.sys, pin: c.pin}
	switch fn := c.migrate.(type) {
	case nil:
	case fill[K, V]:
		g.fill = fn
	default:
		return nil, fmt.Errorf("WithMigration: %T does not fit keys and values of the map", fn)
	}
	want, err := s.full(f, kc.wire(), vc.wire())
	if err != nil {
		return nil, err
	}
	b, err := c.sys.OpenPin(c.pin, true)
	if err != nil {
		return nil, permission(err, needPin)
	}
	if g.old, err = newTable(c.sys, b, c.pin); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	if perCPU(g.old.info.Type) != perCPU(want.Type) || ofMaps(g.old.info.Type) || ofMaps(want.Type) {
		return nil, errors.Join(fmt.Errorf("%w: entries of a map of type %s cannot move to one of type %s", ErrIncompatible, g.old.info.Type, want.Type), b.Close())
	}
	if err := g.learn(kc, vc); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	if err := g.make(want.Name, f, c, kc, vc, s); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return g, nil
}

// learn finds out what the old bytes mean.
func (g *Migration[K, V]) learn(kc codec[K], vc codec[V]) error {
	info := g.old.info
	g.from = sidecar{id: info.ID, key: described{size: int(info.KeySize)}, value: described{size: int(info.ValueSize)}}
	known := false
	if info.BTF != 0 {
		key, value, err := g.sys.Types(g.old.b)
		if err == nil && key != nil && value != nil {
			var kerr, verr error
			g.from.key, kerr = describe(key)
			g.from.value, verr = describe(value)
			if err := errors.Join(kerr, verr); err != nil {
				return err
			}
			known = true
		}
	}
	card, err := readSidecar(g.sys, g.pin)
	if g.hasCard = err == nil; g.hasCard && card.id == info.ID && !known {
		g.from, known = card, true
	}
	if kc.lay.typ == nil { // a prefix: its bytes mean the same everywhere
		g.from.key = described{size: int(info.KeySize)}
	}
	to := sidecar{key: kc.described(), value: vc.described()}
	if !known || kc.lay.typ == nil {
		if g.from.key.size != to.key.size || !known && g.from.value.size != to.value.size && g.fill == nil {
			return fmt.Errorf("%w: the fields of the old map are not known (no BTF that may be read, no sidecar), so its %d and %d bytes cannot become %d and %d",
				ErrIncompatible, g.from.key.size, g.from.value.size, to.key.size, to.value.size)
		}
	}
	g.key, g.val = g.from.key.convertTo(to.key), g.from.value.convertTo(to.value)
	return nil
}

// make creates the new map beside the old one. What an earlier try left there is unfinished, or it would have been
// renamed.
func (g *Migration[K, V]) make(name string, f face, c *config, kc codec[K], vc codec[V], s Spec) error {
	next := g.pin + "-next"
	for _, path := range []string{next, sidecarPath(next)} {
		if err := g.sys.Remove(path); err != nil && !errors.Is(err, syscall.ENOENT) {
			return permission(err, needPin)
		}
	}
	plain := &config{sys: c.sys, clock: c.clock} // the copy owns and compares everything
	work, err := open(s, f, plain, kc, vc)
	if err != nil {
		return err
	}
	g.work = work
	if err = writeSidecar(c.sys, sidecarPath(next), sidecar{work.info.ID, kc.described(), vc.described()}); err == nil {
		err = g.sys.Pin(work.b, next)
	}
	if err != nil {
		return errors.Join(permission(err, needPin), work.Close())
	}
	return nil
}

// Map is the new map. It stays open after Commit.
func (g *Migration[K, V]) Map() *Map[K, V] { return g.work }

// Copy makes the new map hold what the old one holds now, and nothing else. It can be repeated: only what changed is
// written then.
func (g *Migration[K, V]) Copy(ctx context.Context) (Result, error) {
	var failed error
	res, err := g.work.Sync(ctx, func(yield func(K, V) bool) {
		failed = g.entries(ctx, yield)
	})
	return res, errors.Join(failed, err)
}

// Merge goes through the old map once more, after the program works on the new one: merge gets what the old map holds
// and what the new one has by now (there is false when nothing), and says what to write, false for nothing.
func (g *Migration[K, V]) Merge(ctx context.Context, merge func(k K, old, now V, there bool) (V, bool)) (Report, error) {
	var failed, unread error
	seq := iter.Seq2[K, V](func(yield func(K, V) bool) {
		failed = g.entries(ctx, func(k K, old V) bool {
			now, there, err := g.work.Get(k)
			if err != nil {
				unread = err
				return false
			}
			if v, write := merge(k, old, now, there); write {
				return yield(k, v)
			}
			return true
		})
	})
	r, err := g.work.PutAll(seq)
	return r, errors.Join(failed, unread, err)
}

// entries yields the old map's entries as the new map has them.
func (g *Migration[K, V]) entries(ctx context.Context, yield func(K, V) bool) error {
	var b buffers
	key, value := block(g.work.ks), block(g.work.vs)
	from, to := g.old.vs/g.old.cpus, g.work.vs/g.work.cpus
	err := g.old.walk(ctx, &b, false, func(keys, values []byte, n int) error {
		for i := range n {
			k, v := keys[i*g.old.ks:(i+1)*g.old.ks], values[i*g.old.vs:(i+1)*g.old.vs]
			clear(key)
			clear(value)
			err := g.key.convert(key, k)
			for cpu := 0; err == nil && cpu < g.old.cpus; cpu++ {
				err = g.val.convert(value[cpu*to:(cpu+1)*to], v[cpu*from:(cpu+1)*from])
			}
			if err != nil {
				return fmt.Errorf("entry % x: %w", k, err)
			}
			newKey, newValue := g.work.kc.get(key), g.work.vc.get(value)
			if g.fill != nil {
				keep, err := g.fill(Old{k, v[:g.from.value.size], g.from.key, g.from.value}, &newKey, &newValue)
				if err != nil {
					return fmt.Errorf("fill %v: %w", newKey, err)
				}
				if !keep {
					continue
				}
			}
			if !yield(newKey, newValue) {
				return errStop
			}
		}
		return nil
	})
	if errors.Is(err, errStop) {
		return nil
	}
	return err
}

// Commit puts the new map in the place of the old one by one rename; the old one stays as path-prev. [ErrSplitBrain]
// when the pin is no longer the map that was copied, or path-next no longer the new one: another migration is under way.
func (g *Migration[K, V]) Commit() error {
	prev, next := g.pin+"-prev", g.pin+"-next"
	steps := []func() error{
		func() error { return pinned(g.sys, g.pin, g.old) },
		func() error { return pinned(g.sys, next, g.work.table) },
		func() error { return gone(g.sys.Remove(prev)) },
		func() error { return g.sys.Pin(g.old.b, prev) },
		func() error { return g.sys.Rename(next, g.pin) },
		func() error { return gone(g.sys.Rename(sidecarPath(g.pin), sidecarPath(prev))) },
		func() error { return gone(g.sys.Rename(sidecarPath(next), sidecarPath(g.pin))) },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return &Error{Op: "commit", Map: g.pin, Err: permission(err, needPin)}
		}
	}
	return g.old.b.Close()
}

// Abort gives up before Commit, or after one that failed: the new map goes, unless it has its place by then.
func (g *Migration[K, V]) Abort() error {
	next := g.pin + "-next"
	err := pinned(g.sys, next, g.work.table)
	switch {
	case err == nil:
		err = errors.Join(gone(g.sys.Remove(next)), gone(g.sys.Remove(sidecarPath(next))))
	case errors.Is(err, ErrSplitBrain): // gone, or another migration's
		err = nil
	}
	return errors.Join(err, g.work.Close(), g.old.b.Close())
}

func gone(err error) error {
	if errors.Is(err, syscall.ENOENT) {
		return nil
	}
	return err
}

// Undo puts the map back that a migration replaced, by one rename. What was written to the new map since is lost, and
// so is the new map, unless something else holds it. ENOENT when there is nothing to go back to.
func Undo(pin string, opts ...Option) error {
	c, err := configure(opts, undoTakes)
	if err == nil {
		err = checkPin(pin)
	}
	if err == nil {
		err = c.sys.Rename(pin+"-prev", pin)
	}
	if err == nil {
		err = gone(c.sys.Rename(sidecarPath(pin+"-prev"), sidecarPath(pin)))
	}
	if err != nil {
		return &Error{Op: "undo", Map: pin, Err: permission(err, needPin)}
	}
	return nil
}
