// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conversiontest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/ashlar-go/ashlar/conversion"
)

// Walks lets clients at random versions create, read, watch, update, patch, apply and delete objects on a [Server] whose
// storage version is random and sometimes changes, and predicts after every step what every version shows:
//
//   - After an update by a client that keeps annotations it does not know, and after a patch: at its own version exactly
//     what it wrote; at every other one what was there, but for what the edit changed.
//   - After an update by one that does not: at its own version exactly what it wrote; at every other one that, converted.
//     A full replace is a full replace.
//   - After an apply by one of two managers, each at a version of its own: at that version what it applied, and everything
//     else as it was, but for what the manager has applied before and does not any more. At every other one as after a
//     patch.
//   - To who watches at a random version: every change, as a read at that version shows it.
//
// In half of the walks the clients that update keep annotations, in half of them they do not. Managers apply if
// [WithAPI] gives an [Applier]. It returns how many steps there were.
func Walks(t testing.TB, c *conversion.Converter, crd []byte, opts ...Option) Steps {
	t.Helper()
	d, err := readDefinition(crd)
	if err != nil {
		t.Fatal(err)
	}
	cfg := configure(d, opts)
	h, err := conversion.Handler([]*conversion.Converter{c})
	if err != nil {
		t.Fatal(err)
	}
	all := Steps{}
	for i := range cfg.n {
		r := rand.New(rand.NewPCG(cfg.seed, uint64(i)))
		s := NewServer(h, d.group, cfg.versions[r.IntN(len(cfg.versions))])
		w := newWalk(d, c, cfg, cfg.wrap(s), uint64(i), r)
		if r.IntN(2) == 0 {
			w.restore = s.SetStorage
		}
		name := fmt.Sprintf("w%d", i)
		w.stored = func() string {
			_, v, _ := s.Stored(name)
			return v
		}
		if err := w.run(t.Context(), name, cfg.steps); err != nil {
			t.Fatalf("walk %d of seed %d (clients keep annotations: %t): %v", i, cfg.seed, w.keep, err)
		}
		all.Add(w.steps)
	}
	return all
}

// Walk is one walk of [Walks] on any API server, which stores objects in the given version all the time. The seed of the
// options and the number say which: on two servers that do the same, a walk takes the same steps.
func Walk(ctx context.Context, api API, c *conversion.Converter, crd []byte, storage, name string, number uint64, opts ...Option) (Steps, error) {
	d, err := readDefinition(crd)
	if err != nil {
		return nil, err
	}
	cfg := configure(d, opts)
	r := rand.New(rand.NewPCG(cfg.seed, number))
	r.IntN(len(cfg.versions)) // as Walks does
	r.IntN(2)
	w := newWalk(d, c, cfg, api, number, r)
	w.stored = func() string { return storage }
	if err := w.run(ctx, name, cfg.steps); err != nil {
		return w.steps, fmt.Errorf("walk %d of seed %d (clients keep annotations: %t): %w", number, cfg.seed, w.keep, err)
	}
	return w.steps, nil
}

// Steps counts the steps of walks, by kind and version: "patch at v1".
type Steps map[string]int

// Add counts the steps of other walks, too.
func (s Steps) Add(more Steps) {
	for k, n := range more {
		s[k] += n
	}
}

type walk struct {
	d        *definition
	c        *conversion.Converter
	r        *rand.Rand
	api      API
	versions []string
	keep     bool
	restore  func(string)
	stored   func() string // version the object is stored in
	trace    func(string)
	steps    Steps
	managers []*manager

	watched string // version
	next    func() (Event, error)
	seen    any // resourceVersion of the last event

	last  string // version of the last edit
	bases []base
}

// base is the object as it was when what is kept in it was last computed, and what was shown then. Edits at the version
// that is stored cross no conversion, and a place that is edited there and edited back still holds what it held.
type base struct {
	object map[string]any
	shown  map[string]any
}

func newWalk(d *definition, c *conversion.Converter, cfg config, api API, number uint64, r *rand.Rand) *walk {
	w := &walk{d: d, c: c, r: r, api: api, versions: cfg.versions, keep: number%2 == 0, trace: cfg.trace, steps: Steps{}}
	if _, ok := api.(Applier); ok {
		a := r.IntN(len(cfg.versions))
		b := (a + 1 + r.IntN(len(cfg.versions)-1)) % len(cfg.versions)
		w.managers = []*manager{{name: "first", version: cfg.versions[a]}, {name: "second", version: cfg.versions[b]}}
	}
	return w
}

func (w *walk) did(kind, version string) { w.steps[kind+" at "+version]++ }

func (w *walk) version() string { return w.versions[w.r.IntN(len(w.versions))] }

// plain is an object converted without anything that was kept.
func (w *walk) plain(ctx context.Context, m map[string]any, to string) (map[string]any, error) {
	out, err := w.c.Convert(ctx, encode(strip(m)), to)
	if err != nil {
		return nil, err
	}
	got, err := decode(out)
	return body(got), err
}

func (w *walk) get(ctx context.Context, version, name string) (map[string]any, error) {
	raw, err := w.api.Get(ctx, version, name)
	if err != nil {
		return nil, fmt.Errorf("get at %s: %w", version, err)
	}
	return decode(raw)
}

func (w *walk) run(ctx context.Context, name string, steps int) error {
	ctx, cancel := context.WithCancel(ctx) // ends the watch
	defer cancel()
	shown, err := w.create(ctx, name)
	if err != nil {
		return err
	}
	w.watched = w.version()
	if w.next, err = w.api.Watch(ctx, w.watched, name); err != nil {
		return fmt.Errorf("watch at %s: %w", w.watched, err)
	}
	m, err := w.get(ctx, w.watched, name)
	if err != nil {
		return err
	}
	w.seen = versionOf(m)
	for range steps {
		if w.restore != nil && w.r.IntN(4) == 0 {
			w.restore(w.version())
		}
		if err := w.step(ctx, name, shown); err != nil {
			return err
		}
	}
	at := w.version()
	if err := w.api.Delete(ctx, at, name); err != nil {
		return fmt.Errorf("delete at %s: %w", at, err)
	}
	w.did("delete", at)
	e, err := w.next()
	if err == nil && e.Type != "DELETED" {
		err = fmt.Errorf("%s %s", e.Type, e.Object)
	}
	if err != nil {
		return fmt.Errorf("watch at %s: no event of the deletion: %w", w.watched, err)
	}
	w.did("watch", w.watched)
	gone, err := decode(e.Object)
	if err != nil {
		return err
	}
	if d := differs(shown[w.watched], body(gone), w.watched); d != "" {
		return fmt.Errorf("watch at %s: the deletion: %s", w.watched, d)
	}
	if _, err := w.api.Get(ctx, w.version(), name); err == nil {
		return errors.New("the object is there after it was deleted")
	}
	return nil
}

// create makes the object, and what every version shows.
func (w *walk) create(ctx context.Context, name string) (map[string]any, error) {
	at, kind := w.version(), "create"
	var m *manager
	if w.managers != nil && w.r.IntN(4) == 0 {
		m, kind = w.managers[w.r.IntN(2)], "apply"
		at = m.version
	}
	first := w.d.complete(w.d.object(w.r, at), metadata(w.r, name), at)
	var err error
	if m == nil {
		err = w.api.Create(ctx, at, first)
	} else if err = w.api.(Applier).Apply(ctx, at, m.name, first); err == nil {
		m.config, err = decode(first)
	}
	if err != nil {
		return nil, fmt.Errorf("%s at %s: %w\n%s", kind, at, err, first)
	}
	w.did(kind, at)
	now, err := w.get(ctx, at, name)
	if err != nil {
		return nil, err
	}
	shown := map[string]any{}
	for _, v := range w.versions {
		if shown[v], err = w.plain(ctx, now, v); err != nil {
			return nil, err
		}
	}
	shown[at] = body(now)
	said := fmt.Sprintf("%s at %s of\n%s", kind, at, first)
	w.trace(kind + " at " + at + ": " + string(first))
	return shown, w.check(ctx, name, shown, said)
}

// check reads the object at every version and waits for its event. It remembers what was open.
func (w *walk) check(ctx context.Context, name string, shown map[string]any, said string) error {
	for _, v := range w.versions {
		m, err := w.get(ctx, v, name)
		if err != nil {
			return fmt.Errorf("%w after %s", err, said)
		}
		got := body(m)
		if d := differs(shown[v], got, v); d != "" {
			return fmt.Errorf("%s after %s\nshown %s", d, said, encode(m))
		}
		shown[v] = got
		w.trace(v + " shows " + string(encode(got)))
		if v != w.watched {
			continue
		}
		if err := w.event(m); err != nil {
			return fmt.Errorf("watch at %s: %w after %s", v, err, said)
		}
	}
	return nil
}

func versionOf(m map[string]any) any {
	meta, _ := m["metadata"].(map[string]any)
	return meta["resourceVersion"]
}

// event reads what the watch shows until it shows the object as it was read.
func (w *walk) event(m map[string]any) error {
	rv := versionOf(m)
	for w.seen != rv {
		e, err := w.next()
		if err != nil {
			return fmt.Errorf("no event of resourceVersion %v: %w", rv, err)
		}
		got, err := decode(e.Object)
		if err != nil {
			return err
		}
		if e.Type != "MODIFIED" {
			return fmt.Errorf("%s %s", e.Type, e.Object)
		}
		if w.seen = versionOf(got); w.seen != rv {
			continue
		}
		w.did("watch", w.watched)
		if d := differs(m, got, ""); d != "" {
			return fmt.Errorf("the event is not what is read: %s", d)
		}
	}
	return nil
}
