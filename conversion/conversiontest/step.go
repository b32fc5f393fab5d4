// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conversiontest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
)

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
			if v, ok := meta[k].(map[string]any); ok && len(v) > 0 {
				out["metadata."+k] = v
			}
		}
	}
	return out
}

// step is one write, and what it should have done.
func (w *walk) step(ctx context.Context, name string, shown map[string]any) error {
	switch n := w.r.IntN(6); {
	case n > 3 && w.managers != nil:
		return w.apply(ctx, name, shown, w.managers[w.r.IntN(2)])
	case n == 3:
		return w.patch(ctx, name, shown)
	}
	return w.update(ctx, name, shown)
}

// edited is an object with a change, as it reads after it was written.
func (w *walk) edited(before map[string]any, at string) (map[string]any, error) {
	after, _ := w.d.schemas[at].edit(w.r, before, 0).(map[string]any)
	if w.r.IntN(5) == 0 {
		after = relabel(w.r, after)
	}
	return decode(encode(after))
}

func (w *walk) update(ctx context.Context, name string, shown map[string]any) error {
	at := w.version()
	before, err := w.get(ctx, at, name)
	if err != nil {
		return err
	}
	after, err := w.edited(before, at)
	if err != nil {
		return err
	}
	sent := after
	if !w.keep {
		sent = strip(after)
	}
	w.rebase(at, before, shown)
	if err := w.api.Update(ctx, at, encode(sent)); err != nil {
		return fmt.Errorf("update at %s: %w\n%s", at, err, encode(sent))
	}
	said := fmt.Sprintf("update at %s of\n%s\nto\n%s", at, encode(before), encode(sent))
	w.trace("update at " + at + ": " + string(encode(body(sent))))
	w.did("update", at)
	if w.keep {
		return w.expect(ctx, name, shown, at, after, said)
	}
	w.last, w.bases = "", nil // nothing is kept any more
	for _, v := range w.versions {
		if shown[v], err = w.plain(ctx, after, v); err != nil {
			return err
		}
	}
	shown[at] = body(after)
	return w.check(ctx, name, shown, said)
}

func (w *walk) patch(ctx context.Context, name string, shown map[string]any) error {
	at := w.version()
	before, err := w.get(ctx, at, name)
	if err != nil {
		return err
	}
	after, err := w.edited(before, at)
	if err != nil {
		return err
	}
	patch := mergePatch(before, after)
	after = applyMerge(before, patch).(map[string]any)
	w.rebase(at, before, shown)
	if err := w.api.Patch(ctx, at, name, encode(patch)); err != nil {
		return fmt.Errorf("patch at %s: %w\n%s", at, err, encode(patch))
	}
	w.trace("patch at " + at + ": " + string(encode(patch)))
	w.did("patch", at)
	said := fmt.Sprintf("patch at %s of\n%s\nwith\n%s", at, encode(before), encode(patch))
	return w.expect(ctx, name, shown, at, after, said)
}

// apply lets a manager apply at its version.
func (w *walk) apply(ctx context.Context, name string, shown map[string]any, m *manager) error {
	at, s := m.version, w.d.schemas[m.version]
	before, err := w.get(ctx, at, name)
	if err != nil {
		return err
	}
	after, err := w.edited(before, at)
	if err != nil {
		return err
	}
	config := m.choose(w.r, before, after, s)
	last, bases := w.last, w.bases
	w.rebase(at, before, shown)
	if err := w.api.(Applier).Apply(ctx, at, m.name, encode(config)); errors.Is(err, ErrInvalid) {
		w.trace("apply at " + at + " by " + m.name + " is refused: " + string(encode(config)))
		w.did("refused", at)
		w.last, w.bases = last, bases
		return w.check(ctx, name, shown, fmt.Sprintf("an apply by the %s manager at %s that was refused", m.name, at))
	} else if err != nil {
		return fmt.Errorf("apply at %s: %w\n%s", at, err, encode(config))
	}
	w.trace("apply at " + at + " by " + m.name + ": " + string(encode(config)))
	w.did("apply", at)
	said := fmt.Sprintf("apply by the %s manager at %s of\n%s\nto\n%s\nafter\n%s", m.name, at, encode(config), encode(before), encode(m.config))
	now, err := w.get(ctx, at, name)
	if err != nil {
		return fmt.Errorf("%w after %s", err, said)
	}
	prev := m.config
	m.config = config
	if d := applied(body(before), body(now), body(config), body(prev), s, at); d != "" {
		return fmt.Errorf("%s after %s\nshown %s", d, said, encode(now))
	}
	if len(prev) == 0 || !shrinks(body(prev), body(config), s) {
		return w.expect(ctx, name, shown, at, now, said)
	}
	// A manager that lets go of fields: the server takes them away, but for what others own, at whatever version, and
	// on the way the object goes through all of those. What is kept may be of now or of before, and what nobody owns may
	// be gone.
	full := withBody(before, overlaid(body(before), body(config), s).(map[string]any))
	for _, v := range w.versions {
		if v == at {
			continue
		}
		less, err := w.predict(ctx, v, now)
		if err != nil {
			return err
		}
		more, err := w.predict(ctx, v, full)
		if err != nil {
			return err
		}
		least, err := w.plain(ctx, now, v)
		if err != nil {
			return err
		}
		shown[v] = loosen(join(less, more), least, ownedAt(now, w.d.group+"/"+v), w.d.schemas[v])
	}
	shown[at] = body(now)
	if err := w.check(ctx, name, shown, said); err != nil {
		return err
	}
	w.bases = append(w.bases, base{now, maps.Clone(shown)})
	return nil
}

// rebase says what is kept when the object is about to be written at a version.
func (w *walk) rebase(at string, before, shown map[string]any) {
	if w.last != at || w.stored() != at {
		w.bases = []base{{before, maps.Clone(shown)}}
	}
	w.last = at
}

// predict is what a version shows once the object is x at the version of the last edit.
func (w *walk) predict(ctx context.Context, v string, x map[string]any) (map[string]any, error) {
	b, err := w.plain(ctx, x, v)
	if err != nil {
		return nil, err
	}
	var out map[string]any
	for i, base := range w.bases {
		a, err := w.plain(ctx, base.object, v)
		if err != nil {
			return nil, err
		}
		was, _ := base.shown[v].(map[string]any)
		if p := mergeBody(was, a, b, w.d.schemas[v]); i == 0 {
			out = p
		} else {
			out, _ = join(out, p).(map[string]any)
		}
	}
	return out, nil
}

// expect checks what every version shows after an edit that kept the annotations.
func (w *walk) expect(ctx context.Context, name string, shown map[string]any, at string, after map[string]any, said string) error {
	for _, v := range w.versions {
		if v == at {
			continue
		}
		p, err := w.predict(ctx, v, after)
		if err != nil {
			return err
		}
		shown[v] = p
	}
	shown[at] = body(after)
	return w.check(ctx, name, shown, said)
}

func relabel(r *rand.Rand, m map[string]any) map[string]any {
	out := maps.Clone(m)
	meta := map[string]any{}
	if old, ok := m["metadata"].(map[string]any); ok {
		maps.Copy(meta, old)
	}
	meta["labels"] = map[string]any{"app": []string{"a", "b", "c"}[r.IntN(3)]}
	out["metadata"] = meta
	return out
}
