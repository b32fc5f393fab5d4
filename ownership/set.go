// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
)

const (
	// Prefix starts every key this package writes, except the ApplySet label that KEP-3659 names.
	Prefix = "ashlar-go.github.io/"
	// AppliedAnnotation holds the hash of the document that was applied last.
	AppliedAnnotation = Prefix + "applied"

	ownerLabel   = Prefix + "owner."
	ownerRefNote = Prefix + "owner-ref."
	maxManager   = 128 // apimachinery meta/v1/validation.FieldManagerMaxLength
	maxNamePart  = 63  // name part of a qualified name
	orphanGC     = metav1.FinalizerOrphanDependents
	foregroundGC = metav1.FinalizerDeleteDependents
)

// Set is a declaration: which kinds of children one kind of owner has and how they are claimed. It is made by New, is
// immutable and may be shared by any number of goroutines.
type Set struct {
	name         string
	owner        schema.GroupVersionKind
	kinds        []Kind
	byKind       map[schema.GroupKind]int
	finalizer    string
	manager      string
	clusterOwner bool
	seed         maphash.Seed // of quick
	labelKey     string
	noteKey      string
}

// New validates a declaration. name becomes part of a label key, so it is a lower-case DNS label of at most 53 bytes,
// different for every set that one owner kind has. owner is the owner's kind at the version the code speaks.
//
// Errors match ErrIllegalReference for a Native kind that can never be native, and ErrNoFinalizer for a kind whose
// claims the garbage collector does not know when WithFinalizer is missing.
func New(name string, owner schema.GroupVersionKind, kinds []Kind, opts ...Option) (*Set, error) {
	s := &Set{name: name, owner: owner, kinds: slices.Clone(kinds), byKind: make(map[schema.GroupKind]int, len(kinds)),
		seed: maphash.MakeSeed()}
	for _, o := range opts {
		if o != nil {
			o.applySet(s)
		}
	}
	var errs []error
	if msgs := validation.IsDNS1123Label(name); len(msgs) > 0 || len("owner-ref.")+len(name) > maxNamePart {
		errs = append(errs, fmt.Errorf("declare set %q: name: must be a DNS label of at most %d bytes",
			name, maxNamePart-len("owner-ref.")))
	}
	if owner.Version == "" || owner.Kind == "" {
		errs = append(errs, fmt.Errorf("declare set %q: owner: version and kind are required, got %q", name, owner))
	}
	if s.finalizer != "" && len(validation.IsQualifiedName(s.finalizer)) > 0 {
		errs = append(errs, fmt.Errorf("declare set %q: finalizer %q: must be a qualified name", name, s.finalizer))
	}
	if s.manager == "" {
		s.manager = strings.TrimSuffix(name+"."+strings.ToLower(owner.Kind)+"."+owner.Group, ".")
	}
	longest := s.manager
	if s.usesApplySet() {
		longest = s.RecordManager()
	}
	if len(longest) > maxManager || strings.ContainsFunc(s.manager, func(r rune) bool { return !unicode.IsPrint(r) }) {
		errs = append(errs, fmt.Errorf("declare set %q: field manager %q: must be printable and at most %d bytes",
			name, longest, maxManager))
	}
	if len(kinds) == 0 {
		errs = append(errs, fmt.Errorf("declare set %q: kinds: at least one is required", name))
	}
	for i, k := range s.kinds {
		if err := s.checkKind(k); err != nil {
			errs = append(errs, fmt.Errorf("declare set %q: kind %s: %w", name, k.GroupKind(), err))
		}
		if _, dup := s.byKind[k.GroupKind()]; dup {
			errs = append(errs, fmt.Errorf("declare set %q: kind %s: declared twice", name, k.GroupKind()))
			continue
		}
		s.byKind[k.GroupKind()] = i
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	s.labelKey, s.noteKey = ownerLabel+name, ownerRefNote+name
	return s, nil
}

func (s *Set) checkKind(k Kind) error {
	switch {
	case k.Version == "" || k.GroupVersionKind.Kind == "":
		return errors.New("version and kind are required")
	case k.Carrier < Auto || k.Carrier > ApplySet:
		return fmt.Errorf("carrier %d: unknown", k.Carrier)
	case k.NeededByCleanup && k.Carrier == Native:
		return fmt.Errorf("%w: the garbage collector deletes native children before cleanup ran (foreground deletion)",
			ErrIllegalReference)
	case k.Found && k.Retired:
		return errors.New("found and retired: what others create is not pruned")
	case k.Found && k.Carrier == Native:
		return fmt.Errorf("%w: others create the objects, and the claim travels in their labels", ErrIllegalReference)
	case k.Carrier == Native && k.Cluster && !s.clusterOwner:
		return fmt.Errorf("%w: a cluster-scoped child cannot name a namespaced owner", ErrIllegalReference)
	}
	if s.finalizer == "" && s.neverNative(k) {
		return fmt.Errorf("%w: declare it with WithFinalizer", ErrNoFinalizer)
	}
	return nil
}

// neverNative says that no child of the kind can be claimed natively, whatever its namespace.
func (s *Set) neverNative(k Kind) bool {
	return k.Carrier == Label || k.Carrier == ApplySet || k.NeededByCleanup || k.Found || (k.Cluster && !s.clusterOwner)
}

// sometimesLabel says that children of the kind may be claimed by label.
func (s *Set) sometimesLabel(k Kind) bool {
	return s.neverNative(k) || (k.Carrier == Auto && !k.Cluster && !s.clusterOwner && s.finalizer != "")
}

// Name is the name given to New.
func (s *Set) Name() string { return s.name }

// Owner is the owner kind given to New.
func (s *Set) Owner() schema.GroupVersionKind { return s.owner }

// ClusterOwner reports WithClusterOwner.
func (s *Set) ClusterOwner() bool { return s.clusterOwner }

// Kinds are the declared kinds in order; the slice is the caller's.
func (s *Set) Kinds() []Kind { return slices.Clone(s.kinds) }

// Manager is the field manager of the set's applies.
func (s *Set) Manager() string { return s.manager }

// Finalizer is the name given to WithFinalizer, or "".
func (s *Set) Finalizer() string { return s.finalizer }

// LabelKey is the key of the label that carries the owner's uid.
func (s *Set) LabelKey() string { return s.labelKey }

// Carriers says how children of the kind may be claimed, for executors that have to find them: by a native reference,
// by the label, or, for Auto kinds that may cross namespaces, by either.
func (s *Set) Carriers(k Kind) (native, label bool) { return !s.neverNative(k), s.sometimesLabel(k) }
