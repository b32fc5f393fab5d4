// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package statussync

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// sync decides on the object passed in; only a decision that needs the server starts a pass.
func (c *core) sync(ctx context.Context, obj client.Object, w *want) (Result, error) {
	v, err := c.view(obj, w.payload)
	if err == nil {
		w.uid = v.uid
		err = c.owned.check(w, &v)
	}
	if err != nil {
		err = fmt.Errorf("sync status of %s: %w", c.describe(obj), err)
		c.observe(obj, w, Result{}, 0, err)
		return Result{}, err
	}
	m := c.memory.get(v.uid)
	s := &c.group.settings
	d := c.owned.decide(&v, w, &m, false, s.now(), s)
	if d.verb != write && d.verb != look {
		r := c.unwritten(&d)
		c.observe(obj, w, r, 0, nil)
		return r, nil
	}
	p := &pass{core: c, want: w, memo: m, obj: obj, key: client.ObjectKeyFromObject(obj)}
	r, err := p.run(ctx, v, d)
	if err != nil {
		r, err = Result{}, fmt.Errorf("sync status of %s: %w", c.describe(obj), err)
	}
	c.observe(obj, w, r, p.requests, err)
	return r, err
}

// unwritten turns a decision not to write into a result.
func (c *core) unwritten(d *decision) Result {
	r := Result{Why: d.why, RequeueAfter: d.wait}
	switch d.verb {
	case stale:
		r.Outcome = Stale
	case gone:
		r.Outcome = Gone
	case hold:
		r.Outcome = Deferred
		r.Findings = c.findings(d)
	case keep:
		if d.altered != 0 || d.echo != "" {
			r.Findings = c.findings(d)
		}
	}
	return r
}

func (c *core) observe(obj client.Object, w *want, r Result, requests int, err error) {
	f := c.group.settings.observe
	if f == nil {
		return
	}
	e := Event{
		Writer: c.manager, Kind: c.gvk.Kind, Generation: w.generation, Outcome: r.Outcome, Why: r.Why,
		Requests: requests, Findings: r.Findings, RequeueAfter: r.RequeueAfter, Err: err,
	}
	if obj != nil && c.source.holds(obj) {
		e.Namespace, e.Name, e.UID = obj.GetNamespace(), obj.GetName(), obj.GetUID()
	}
	f(e)
}

// pass is one Sync that needs the server.
type pass struct {
	core     *core
	want     *want
	memo     memo
	obj      client.Object // newest version read; the caller's is never changed
	key      types.NamespacedName
	requests int
	patched  bool // a JSON Patch removed something in this pass
}

// errContended says that the version the decision was made on is not the live one any more.
var errContended = errors.New("another version is live")

func (p *pass) run(ctx context.Context, v view, d decision) (Result, error) {
	c := p.core
	s := &c.group.settings
	for try := 1; ; try++ {
		if d.verb == write {
			r, err := p.write(ctx, &v, &d)
			switch {
			case err == nil:
				return r, nil
			case apierrors.IsNotFound(err):
				return p.missing(ctx, err)
			case apierrors.IsTooManyRequests(err):
				if after, ok := apierrors.SuggestsClientDelay(err); ok && after > 0 {
					return Result{Outcome: Deferred, Why: "the server is busy", RequeueAfter: time.Duration(after) * time.Second}, nil
				}
				return Result{}, err
			case !errors.Is(err, errContended):
				return Result{}, err
			}
			if try == tries || !pause(ctx, try) {
				if err := ctx.Err(); err != nil && try < tries {
					return Result{}, err
				}
				return p.deferred(), nil
			}
		}
		live := c.source.empty()
		p.requests++
		if err := c.group.live.Get(ctx, p.key, live); apierrors.IsNotFound(err) {
			return p.gone(whyMissing), nil
		} else if err != nil {
			return Result{}, fmt.Errorf("read it live: %w", err)
		}
		var err error
		if v, err = c.view(live, p.want.payload); err != nil {
			return Result{}, fmt.Errorf("read it live: %w", err)
		}
		p.obj = live
		if d.verb == look {
			try-- // it was no try
		}
		now := s.now()
		if d = c.owned.decide(&v, p.want, &p.memo, true, now, s); d.verb != write {
			r := c.unwritten(&d)
			switch d.verb {
			case keep: // a lost reply or a slow cache: from now on it costs nothing
				c.memory.put(v.uid, p.memo.after(&c.owned, &d, &v, p.want, now))
				if p.patched {
					r.Outcome, r.Object = Written, live
				}
			case gone:
				return p.gone(d.why), nil
			}
			return r, nil
		}
	}
}

// pause waits before the live read that follows a lost try: full jitter, so that two writers part. It says false when
// there is no time left for it.
func pause(ctx context.Context, try int) bool {
	d := rand.N(jitter << (try - 1))
	if at, ok := ctx.Deadline(); ok && time.Until(at) <= d {
		return false
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// deferred gives way to whoever keeps writing.
func (p *pass) deferred() Result {
	why := "the object changed under every try"
	if m := contender(p.obj.GetManagedFields(), p.core.manager); m != "" {
		why += "; the last known other writer is " + m
	}
	return Result{Outcome: Deferred, Why: why, RequeueAfter: deferMin + rand.N(deferMax-deferMin)}
}

// write carries out a decision made on v. errContended and NotFound are for run to handle.
func (p *pass) write(ctx context.Context, v *view, d *decision) (Result, error) {
	c := p.core
	if err := c.owned.checkConditions(p.want); err != nil {
		return Result{}, err
	}
	if d.taken { // managedFields of this version name whom it was taken by; a forced apply erases that
		if rival := c.owned.taker(p.obj.GetManagedFields(), c.manager); rival != "" {
			d.rival = rival
		}
	}
	drops := c.owned.drops(v, p.want)
	if !drops.empty() && c.owned.shared(p.obj.GetManagedFields(), c.manager, drops) {
		if err := p.remove(ctx, v, drops); err != nil {
			return Result{}, err
		}
		drops = dropSet{} // so that a refusal of the apply is not taken for a stub
	}
	now := c.group.settings.now()
	if c.owned.differs(v, p.want) {
		err := p.apply(ctx, v, now)
		if !drops.empty() && c.owned.stubRefused(err) {
			// Without managedFields nobody told that another manager holds the key: the apply left a bare {type}.
			if err := p.remove(ctx, v, drops); err != nil {
				return Result{}, err
			}
			if err = nil; c.owned.differs(v, p.want) {
				err = p.apply(ctx, v, now)
			}
		}
		if err != nil {
			return Result{}, p.explain(err)
		}
	}
	if drops = c.owned.drops(v, p.want); !drops.empty() && !p.patched {
		// The apply went through and the value is still there: it belongs to nobody, or to another manager as well.
		if err := p.remove(ctx, v, drops); err != nil {
			return Result{}, err
		}
	}
	c.memory.put(v.uid, p.memo.after(&c.owned, d, v, p.want, now))
	d.altered = v.differs | v.extra
	var left decision
	if c.owned.compare(v, p.want, &left); left.changed&^(changedPayload|removedPayload) != 0 {
		d.echo = left.field
	}
	return Result{Outcome: Written, Object: p.obj, Why: d.explain(), Findings: c.findings(d)}, nil
}

// missing handles a write that was answered with NotFound. A kind without status subresource is answered the same, and
// is no reason to be quiet, so until a write has gone through the object is looked for.
func (p *pass) missing(ctx context.Context, answer error) (Result, error) {
	c := p.core
	if c.served.Load() {
		return p.gone(whyMissing), nil
	}
	live := c.source.empty()
	p.requests++
	switch err := c.group.live.Get(ctx, p.key, live); {
	case apierrors.IsNotFound(err):
		return p.gone(whyMissing), nil
	case err != nil:
		return Result{}, fmt.Errorf("read it live: %w", err)
	case live.GetUID() != p.want.uid:
		return p.gone(whyOther), nil
	}
	return Result{}, fmt.Errorf("apply (the object exists, so its kind has no status subresource): %w", answer)
}

func (p *pass) gone(why string) Result {
	p.core.memory.drop(p.want.uid)
	return Result{Outcome: Gone, Why: why}
}

// apply sends the one request. v and p.obj become what the server stored.
func (p *pass) apply(ctx context.Context, v *view, now time.Time) error {
	c := p.core
	status, err := c.owned.status(c.owned.outgoing(p.want, v, now), p.want)
	if err != nil {
		return err
	}
	version := v.resourceVersion
	body := &document{
		ResourceVersion: &version, apiVersion: c.version, kind: c.gvk.Kind,
		namespace: p.key.Namespace, name: p.key.Name, status: status, source: c.source,
	}
	p.requests++
	err = c.group.client.Status().Apply(ctx, body, client.FieldOwner(c.manager), client.ForceOwnership)
	if apierrors.IsConflict(err) {
		return errContended
	}
	if err != nil {
		return err
	}
	if body.stored == nil {
		if body.stored, err = c.source.decode(body.reply); err != nil {
			return fmt.Errorf("decode the server's reply: %w", err)
		}
	}
	return p.adopt(body.stored, v)
}

func (p *pass) adopt(stored client.Object, v *view) error {
	n, err := p.core.view(stored, p.want.payload)
	if err != nil {
		return fmt.Errorf("decode the server's reply: %w", err)
	}
	p.core.served.Store(true)
	p.obj, *v = stored, n
	return nil
}

// explain adds what a caller can do about an error.
func (p *pass) explain(err error) error {
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("apply (needs the verb patch on the kind's status subresource): %w", err)
	}
	return err
}

// findings tells what is worth telling about a decision.
func (c *core) findings(d *decision) []Finding {
	var out []Finding
	if d.contested() {
		out = append(out, Finding{Kind: Contested, Manager: d.rival, Field: d.field})
	}
	if d.repaired != "" {
		out = append(out, Finding{Kind: Repaired, Field: d.repaired})
	}
	if d.echo != "" {
		out = append(out, Finding{Kind: Altered, Field: d.echo})
	}
	for i, name := range c.owned.fields {
		if d.altered&(1<<i) != 0 {
			out = append(out, Finding{Kind: Altered, Field: "status." + name})
		}
	}
	return out
}
