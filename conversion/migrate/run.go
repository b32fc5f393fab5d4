// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Result is what a run did.
type Result struct {
	CRD        string // its name
	Storage    string // the version everything is stored at
	Generation int64  // of the CRD
	Delegated  bool   // the server did it
	Objects    int    // looked at by this run
	Written    int    // of them, by this run itself
	Failed     int
	Failures   []Failure // the first 100
	Complete   bool      // everything that existed is stored at the storage version
	Resume     string    // for Run, after an error

	uid     types.UID
	skipped int // that a run before this one has looked at
}

const maxFailures = 100

// Run writes every object once, unchanged, so that the server stores it at the storage version, and removes managedFields
// of versions that are not served. Where the server serves storagemigration.k8s.io/v1 and nothing is resumed it does the
// writing. resume is "" or what a run that was interrupted said: Result.Resume or Progress.Resume.
//
// Objects that cannot be written are named in the result and do not stop the run; a kind that is gone or forbidden does.
// An error comes with a result whose Resume says where to go on.
func (m *Migrator) Run(ctx context.Context, resume string) (Result, error) {
	d, err := m.read(ctx)
	if err != nil {
		return Result{}, err
	}
	r := Result{CRD: d.name, Storage: d.storage, Generation: d.generation, Resume: resume, uid: d.uid}
	settled := d.settled()
	if !settled && !m.alone && resume == "" {
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
		if !after(o, r.Resume) {
			r.skipped++
			continue
		}
		r.Objects++
		if _, dead := d.living(o.ManagedFields); settled && !dead {
			continue
		}
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			err := m.write(ctx, d, o, settled)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				r.Written++
			case ctx.Err() != nil || apierrors.IsForbidden(err):
				fatal = errors.Join(fatal, Failure{o.Namespace, o.Name, err})
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
	if n := len(items); n > 0 && after(&items[n-1], r.Resume) {
		r.Resume = mark(&items[n-1])
	}
	return nil
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
func mark(o *metav1.PartialObjectMetadata) string { return o.Namespace + "/" + o.Name }

func after(o *metav1.PartialObjectMetadata, resume string) bool {
	return resume == "" || strings.Compare(mark(o), resume) > 0
}
