// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Result is what a run did.
type Result struct {
	CRD        string    // its name
	Storage    string    // the version everything is stored at
	Generation int64     // of the CRD
	Delegated  bool      // the server did it
	Objects    int       // looked at by this run
	Written    int       // of them, by this run itself
	Failed     int       // in the runs that this one goes on from, too
	Failures   []Failure // the first 100 of this run
	Complete   bool      // everything that existed is stored at the storage version
	Resume     string    // for Run, after an error

	uid     types.UID
	last    string // the object that Resume is about
	passed  string // the last object that is counted in Objects or in skipped
	skipped int    // that a run before this one has looked at
}

const maxFailures = 100

// Run writes every object once, unchanged, so that the server stores it at the storage version, and removes managedFields
// of versions that are not served. Where the server serves storagemigration.k8s.io/v1 and nothing is resumed it does the
// writing. resume is "" or what a run that was interrupted said: Result.Resume or Progress.Resume. Failures before that
// mark count in this run, too. A mark made under another generation of the CRD begins at the front again: what was written
// then proves nothing about the version that is stored now.
//
// Objects that cannot be written, or that admission denies, are named in the result and do not stop the run; a kind that is
// gone or forbidden does. An error comes with a result whose Resume says where to go on.
func (m *Migrator) Run(ctx context.Context, resume string) (Result, error) {
	d, err := m.read(ctx)
	if err != nil {
		return Result{}, err
	}
	r := Result{CRD: d.name, Storage: d.storage, Generation: d.generation, uid: d.uid}
	if err := r.goOn(resume); err != nil {
		return r, fmt.Errorf("migrate %s: %w", d.name, err)
	}
	settled := d.settled()
	if !settled && !m.alone && r.Resume == "" {
		if r.Delegated, err = m.delegate(ctx, d); err != nil {
			return r, err
		}
		settled = r.Delegated
	}
	if err := m.touch(ctx, d, &r, settled); err != nil {
		return r, fmt.Errorf("migrate %s: %w", d.name, err)
	}
	r.Resume, r.Complete = "", r.Failed == 0
	return r, nil
}

// touch goes through all objects. When they are settled only those with dead managedFields are written.
func (m *Migrator) touch(ctx context.Context, d *definition, r *Result, settled bool) error {
	progress := Progress{CRD: d.name, Resume: r.Resume}
	for list, err := range pages(ctx, m, d.metadata, &progress) {
		if err != nil {
			return err
		}
		if err := m.touchPage(ctx, d, r, list.Items, settled); err != nil {
			return err
		}
		progress.Done, progress.Failed, progress.Resume = r.skipped+r.Objects, r.Failed, r.Resume
		m.observe(progress)
	}
	return nil
}

func (m *Migrator) touchPage(ctx context.Context, d *definition, r *Result, items []metav1.PartialObjectMetadata, settled bool) error {
	var (
		mu    sync.Mutex
		fatal error
		group sync.WaitGroup
		slots = make(chan struct{}, m.parallel)
	)
	for i := range items {
		o := &items[i]
		if !after(o, r.last) {
			if after(o, r.passed) {
				r.skipped++
			}
			continue
		}
		if _, dead := d.living(o.ManagedFields); settled && !dead {
			r.Objects++
			continue
		}
		slots <- struct{}{}
		mu.Lock()
		stop := fatal != nil
		mu.Unlock()
		if stop {
			break
		}
		r.Objects++
		group.Go(func() {
			defer func() { <-slots }()
			err := m.write(ctx, d, o, settled)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				r.Written++
			case ctx.Err() != nil || apierrors.IsForbidden(err) && !denied(err):
				if fatal == nil {
					fatal = Failure{o.Namespace, o.Name, err}
				}
			default:
				r.Failed++
				if len(r.Failures) < maxFailures {
					r.Failures = append(r.Failures, Failure{o.Namespace, o.Name, err})
				}
			}
		})
	}
	group.Wait()
	if fatal != nil {
		return fatal
	}
	if n := len(items); n > 0 {
		end := mark(&items[n-1])
		r.passed = max(r.passed, end)
		if end > r.last {
			r.last = end
			r.Resume = fmt.Sprintf("%s/%d/%d/%s", r.uid, r.Generation, r.Failed, r.last)
		}
	}
	return nil
}

// goOn takes the mark of a run that was interrupted: the CRD's uid and generation, how many objects have failed, and the
// last one that was looked at.
func (r *Result) goOn(resume string) error {
	if resume == "" {
		return nil
	}
	part := strings.SplitN(resume, "/", 4)
	if len(part) < 4 || !strings.Contains(part[3], "/") {
		return fmt.Errorf("%q is no mark to go on from", resume)
	}
	generation, err := strconv.ParseInt(part[1], 10, 64)
	failed, err2 := strconv.Atoi(part[2])
	if err = errors.Join(err, err2); err != nil {
		return fmt.Errorf("%q is no mark to go on from: %w", resume, err)
	}
	if types.UID(part[0]) == r.uid && generation == r.Generation {
		r.Resume, r.Failed, r.last = resume, failed, part[3]
	}
	return nil
}

// denied tells the admission of one object, by a webhook or by a policy, from an authorizer: both answer 403.
func denied(err error) bool {
	return strings.Contains(err.Error(), "denied the request") || strings.Contains(err.Error(), "denied request")
}

// write stores one object anew. An object that is gone needs no migration, and one that changed has had it, unless there are
// managedFields to clean.
func (m *Migrator) write(ctx context.Context, d *definition, o *metav1.PartialObjectMetadata, settled bool) error {
	for try := 1; ; try++ {
		entries, dead := d.living(o.ManagedFields)
		err := m.send(ctx, d, o, entries, dead)
		switch {
		case err == nil, apierrors.IsNotFound(err):
			return nil
		case !apierrors.IsConflict(err):
			return err
		case !dead:
			return nil
		case try == 3:
			return err
		}
		live := &metav1.PartialObjectMetadata{}
		live.SetGroupVersionKind(d.gvk())
		err = m.live.Get(ctx, client.ObjectKeyFromObject(o), live)
		if apierrors.IsNotFound(err) || err == nil && live.UID != o.UID {
			return nil
		}
		if err != nil {
			return err
		}
		if _, dead = d.living(live.ManagedFields); !dead {
			return nil
		}
		o = live
	}
}

func (m *Migrator) send(ctx context.Context, d *definition, o *metav1.PartialObjectMetadata, entries []metav1.ManagedFieldsEntry, dead bool) error {
	meta := map[string]any{"uid": o.UID, "resourceVersion": o.ResourceVersion}
	if dead {
		meta["managedFields"] = entries
	}
	body, err := json.Marshal(map[string]any{"apiVersion": d.group + "/" + d.storage, "kind": d.kind, "metadata": meta})
	if err != nil {
		return err
	}
	patch := client.RawPatch(types.MergePatchType, body)
	return m.retry(ctx, func() error {
		target := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name}}
		target.SetGroupVersionKind(d.gvk())
		if m.status && d.subresource && !dead { // managedFields sent to a subresource are ignored
			return m.c.Status().Patch(ctx, target, patch)
		}
		return m.c.Patch(ctx, target, patch)
	})
}

// mark names an object in the server's order: namespace and name, compared as bytes.
func mark(o metav1.Object) string { return o.GetNamespace() + "/" + o.GetName() }

func after(o metav1.Object, last string) bool { return last == "" || mark(o) > last }
