// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conversiontest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/ashlar-go/ashlar/conversion"
)

// Walks lets clients at random versions create, read, edit and delete objects on a [Server] whose storage version is
// random and sometimes changes, and predicts after every edit what every version shows:
//
//   - Where the client keeps annotations it does not know: at its own version exactly what it wrote; at every other one
//     what was there, but for what the edit changed.
//   - Where it does not: at its own version exactly what it wrote; at every other one that, converted. A full replace is a
//     full replace.
//
// Half of the walks are of the one sort, half of the other. It returns how many edits there were.
func Walks(t testing.TB, c *conversion.Converter, crd []byte, opts ...Option) int {
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
	edits := 0
	for i := range cfg.n {
		r := rand.New(rand.NewPCG(cfg.seed, uint64(i)))
		s := NewServer(h, d.group, cfg.versions[r.IntN(len(cfg.versions))])
		w := walk{d: d, c: c, r: r, api: s, versions: cfg.versions, keep: i%2 == 0}
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
		edits += w.edits
	}
	return edits
}

// Walk is one walk of [Walks] on any API server, which stores objects in the given version all the time. The seed of the
// options and the number say which.
func Walk(ctx context.Context, api API, c *conversion.Converter, crd []byte, storage, name string, number uint64, opts ...Option) error {
	d, err := readDefinition(crd)
	if err != nil {
		return err
	}
	cfg := configure(d, opts)
	r := rand.New(rand.NewPCG(cfg.seed, number))
	r.IntN(len(cfg.versions)) // as Walks does
	r.IntN(2)
	w := walk{d: d, c: c, r: r, api: api, versions: cfg.versions, keep: number%2 == 0, stored: func() string { return storage }}
	if err := w.run(ctx, name, cfg.steps); err != nil {
		return fmt.Errorf("walk %d of seed %d (clients keep annotations: %t): %w", number, cfg.seed, w.keep, err)
	}
	return nil
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
	edits    int

	// The object as it was when what is kept in it was last computed, and what was shown then. Edits at the version that
	// is stored cross no conversion, and a place that is edited there and edited back still holds what it held.
	last  string
	base  map[string]any
	shown map[string]any
}

// body is what walks compare: the API server looks after the rest.
func body(m map[string]any) map[string]any {
	out := map[string]any{}
	for k, v := range m {
		if k != "apiVersion" && k != "kind" && k != "metadata" {
			out[k] = v
		}
	}
	if meta, ok := strip(m)["metadata"].(map[string]any); ok {
		for _, k := range []string{"labels", "annotations"} {
			if v, ok := meta[k]; ok {
				out["metadata."+k] = v
			}
		}
	}
	return out
}

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
		return nil, err
	}
	return decode(raw)
}

func (w *walk) run(ctx context.Context, name string, steps int) error {
	at := w.version()
	first := w.d.complete(w.d.object(w.r, at), metadata(w.r, name), at)
	if err := w.api.Create(ctx, at, first); err != nil {
		return fmt.Errorf("create at %s: %w\n%s", at, err, first)
	}
	m, err := w.get(ctx, at, name)
	if err != nil {
		return err
	}
	shown := map[string]any{}
	for _, v := range w.versions {
		if shown[v], err = w.plain(ctx, m, v); err != nil {
			return err
		}
	}
	shown[at] = body(m)
	if err := w.check(ctx, name, shown, "create at "+at); err != nil {
		return err
	}
	for range steps {
		if w.restore != nil && w.r.IntN(4) == 0 {
			w.restore(w.version())
		}
		if err := w.edit(ctx, name, shown); err != nil {
			return err
		}
	}
	if err := w.api.Delete(ctx, w.version(), name); err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	if _, err := w.api.Get(ctx, w.version(), name); err == nil {
		return errors.New("the object is there after it was deleted")
	}
	return nil
}

func (w *walk) edit(ctx context.Context, name string, shown map[string]any) error {
	at := w.version()
	before, err := w.get(ctx, at, name)
	if err != nil {
		return err
	}
	if w.last != at || w.stored() != at {
		w.base, w.shown = before, maps.Clone(shown)
	}
	w.last = at
	after, _ := w.d.schemas[at].edit(w.r, before, 0).(map[string]any)
	if w.r.IntN(5) == 0 {
		after = relabel(w.r, after)
	}
	sent := after
	if !w.keep {
		sent = strip(after)
	}
	if err := w.api.Update(ctx, at, encode(sent)); err != nil {
		return fmt.Errorf("update at %s: %w\n%s", at, err, encode(sent))
	}
	w.edits++
	said := fmt.Sprintf("edit at %s of\n%s\nto\n%s", at, encode(before), encode(sent))
	for _, v := range w.versions {
		if v == at {
			continue
		}
		b, err := w.plain(ctx, after, v)
		if err != nil {
			return err
		}
		if !w.keep {
			shown[v] = b
			continue
		}
		a, err := w.plain(ctx, w.base, v)
		if err != nil {
			return err
		}
		shown[v] = merge(w.shown[v], a, b, w.d.schemas[v])
	}
	// What the server made of it: defaults of the version, pruning.
	now, err := w.get(ctx, at, name)
	if err != nil {
		return fmt.Errorf("get at %s: %w after %s", at, err, said)
	}
	if d := differs(body(after), body(now), at); d != "" {
		return fmt.Errorf("%s after %s", d, said)
	}
	shown[at] = body(now)
	return w.check(ctx, name, shown, said)
}

func relabel(r *rand.Rand, m map[string]any) map[string]any {
	out := map[string]any{}
	for k, v := range m {
		out[k] = v
	}
	meta := map[string]any{}
	if old, ok := m["metadata"].(map[string]any); ok {
		for k, v := range old {
			meta[k] = v
		}
	}
	meta["labels"] = map[string]any{"app": []string{"a", "b", "c"}[r.IntN(3)]}
	out["metadata"] = meta
	return out
}

// check reads the object at every version, and remembers what was open.
func (w *walk) check(ctx context.Context, name string, shown map[string]any, said string) error {
	for _, v := range w.versions {
		m, err := w.get(ctx, v, name)
		if err != nil {
			return fmt.Errorf("get at %s: %w after %s", v, err, said)
		}
		got := body(m)
		if d := differs(shown[v], got, v); d != "" {
			return fmt.Errorf("%s after %s\nshown %s", d, said, encode(m))
		}
		shown[v] = got
	}
	return nil
}
