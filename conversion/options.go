// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conversion

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
)

// Option configures [New]. Later options win; a bad value is an error of [Builder.Build].
type Option interface{ applyNew(*Builder) }

type option func(*Builder)

func (o option) applyNew(b *Builder) { o(b) }

// WithScheme names the versions of Go types, for [FromConvertible] and [FromSpokes]. Without it their prototypes must
// have a TypeMeta.
func WithScheme(s *runtime.Scheme) Option {
	return option(func(b *Builder) { b.scheme = s })
}

// WithListKeys declares which members tell the items of a list apart, as x-kubernetes-list-map-keys does in a schema. The
// path has no items in it: spec.rules, spec.rules.ports. Lists of built-in types know their patchMergeKey already; any
// other list without keys is aligned by the content of its items, and an item that is edited at a version which
// cannot hold all of it loses the rest.
func WithListKeys(version, path string, keys ...string) Option {
	return option(func(b *Builder) {
		if version == "" || path == "" || len(keys) == 0 || slices.Contains(keys, "") {
			b.errs = append(b.errs, fmt.Errorf("WithListKeys(%q, %q, %q): version, path and keys are needed", version, path, keys))
			return
		}
		if b.keys[version] == nil {
			b.keys[version] = listKeys{}
		}
		b.keys[version][path] = slices.Clone(keys)
	})
}

// WithKeys signs what is kept in the annotation, so that nobody who may only write an old version can put values into
// fields of a new one. The first key signs, every key verifies, so that keys can be rotated: add the new one at the end
// everywhere, then move it to the front, then drop the old one. A signature holds for one namespace and name. What is not
// signed, or not by a key of the list, is dropped and counted; of an object in quarantine only the copy is left then.
func WithKeys(keys ...[]byte) Option {
	return option(func(b *Builder) {
		for _, k := range keys {
			if len(k) < 16 {
				b.errs = append(b.errs, errors.New("WithKeys: a key has fewer than 16 bytes"))
			}
		}
		if len(keys) == 0 {
			b.errs = append(b.errs, errors.New("WithKeys: there is no key"))
		}
		b.macKeys = nil
		for _, k := range keys {
			b.macKeys = append(b.macKeys, slices.Clone(k))
		}
	})
}

// PairOption configures a [Pair].
type PairOption interface{ applyPair(*edge) }

type pairOption func(*edge)

func (o pairOption) applyPair(e *edge) { o(e) }

// Loses says what the way down cannot hold. A path with fewer such steps is preferred to a shorter one, and Explain
// prints the fields. It does not switch anything off: what is lost in truth is found for every object.
func Loses(fields ...string) PairOption {
	return pairOption(func(e *edge) {
		if e.up {
			return
		}
		e.loses = append(e.loses, strings.Join(fields, ", "))
	})
}

// Defaults lets a function complete the result of a pair, in both directions. It is not called for partial objects: an
// API server asks about single fields, and a default among them would be taken for somebody's decision. The default is no
// defaulting, because the API server has done its own at the version of the request.
func Defaults(complete func(obj any)) PairOption {
	return pairOption(func(e *edge) { e.complete = complete })
}
