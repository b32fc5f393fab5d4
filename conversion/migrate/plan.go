// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Plan says what stands in the way of dropping a version.
type Plan struct {
	CRD        string   // its name
	Version    string   // that is to go
	Storage    string   // that objects are stored at now
	Generation int64    // of the CRD
	Stored     []string // status.storedVersions
	Objects    int
	Managers   []Manager // whose managedFields name the version, or any that is not served
	Blocks     []string  // one sentence each, in the order they are to be dealt with
}

// Manager is a field manager that wrote at the version: a client that still uses it, or did.
type Manager struct {
	Name, Operation, Subresource, Version string // as in managedFields; the version without its group

	Objects int       // whose managedFields name it
	Last    time.Time // newest of its writes
	Example string    // one of the objects
}

// Empty reports whether nothing stands in the way.
func (p Plan) Empty() bool { return len(p.Blocks) == 0 }

// String prints the plan, a line for each block.
func (p Plan) String() string {
	head := fmt.Sprintf("%s %s: %d objects, stored %s, storage version %s", p.CRD, p.Version, p.Objects, strings.Join(p.Stored, ", "), p.Storage)
	if p.Empty() {
		return head + "\n  nothing blocks dropping it"
	}
	return head + "\n  " + strings.Join(p.Blocks, "\n  ")
}

// Plan looks at the CRD and at the metadata of every object, and says what blocks dropping a version. The version may be
// one that the spec does not hold any more. It writes nothing.
func (m *Migrator) Plan(ctx context.Context, version string) (Plan, error) {
	d, err := m.read(ctx)
	if err != nil {
		return Plan{}, err
	}
	p := Plan{CRD: d.name, Version: version, Storage: d.storage, Generation: d.generation, Stored: d.stored}
	found := map[Manager]*Manager{}
	progress, seen := Progress{CRD: d.name}, ""
	for list, err := range pages(ctx, m, d.metadata, &progress) {
		if err != nil {
			return Plan{}, err
		}
		for i := range list.Items {
			if o := &list.Items[i]; after(o, seen) {
				d.managers(o, version, found)
				p.Objects++
			}
		}
		if n := len(list.Items); n > 0 {
			seen = max(seen, mark(&list.Items[n-1]))
		}
	}
	for _, at := range slices.SortedFunc(maps.Keys(found), func(a, b Manager) int {
		return cmp.Or(cmp.Compare(a.Version, b.Version), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Operation, b.Operation), cmp.Compare(a.Subresource, b.Subresource))
	}) {
		p.Managers = append(p.Managers, *found[at])
	}
	p.Blocks = d.blocks(&p)
	return p, nil
}

// managers counts the entries of one object that name the version, or one that nobody can read.
func (d *definition) managers(o *metav1.PartialObjectMetadata, version string, found map[Manager]*Manager) {
	seen := map[Manager]bool{}
	for _, e := range o.ManagedFields {
		v := strings.TrimPrefix(e.APIVersion, d.group+"/")
		if v != version && !d.dead(e.APIVersion) {
			continue
		}
		at := Manager{Name: e.Manager, Operation: string(e.Operation), Subresource: e.Subresource, Version: v}
		f := found[at]
		if f == nil {
			first := at
			first.Example = key(o.Namespace, o.Name)
			f = &first
			found[at] = f
		}
		if !seen[at] {
			seen[at] = true
			f.Objects++
		}
		if e.Time != nil && e.Time.After(f.Last) {
			f.Last = e.Time.Time
		}
	}
}

func (d *definition) blocks(p *Plan) (out []string) {
	if p.Version == d.storage {
		out = append(out, fmt.Sprintf("%s is the storage version: set storage: true on another version first", p.Version))
	}
	if slices.Contains(d.stored, p.Version) && p.Version != d.storage {
		out = append(out, fmt.Sprintf("status.storedVersions holds %s: objects may be stored at it; Run, then Prune", p.Version))
	}
	for _, m := range p.Managers {
		what := "Run removes the entries"
		if slices.Contains(d.served, m.Version) {
			what = "it may still write at this version; once the version is not served, Run removes the entries"
		}
		through := ""
		if m.Subresource != "" {
			through = " of " + m.Subresource
		}
		out = append(out, fmt.Sprintf("managedFields of %d objects name %s, written by %s (%s%s), last %s, such as %s: %s", m.Objects, m.Version,
			m.Name, m.Operation, through, m.Last.UTC().Format(time.RFC3339), m.Example, what))
	}
	if slices.Contains(d.served, p.Version) {
		out = append(out, fmt.Sprintf("%s is served: clients may use it; set served: false and wait before it is removed", p.Version))
	}
	return out
}

// metadata is an empty list to read objects' metadata into, at the storage version.
func (d *definition) metadata() *metav1.PartialObjectMetadataList {
	list := &metav1.PartialObjectMetadataList{}
	gvk := d.gvk()
	gvk.Kind += "List"
	list.SetGroupVersionKind(gvk)
	return list
}
