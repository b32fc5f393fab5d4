// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package reconcilelimit

import "github.com/ashlar-go/ashlar/ratelimit"

// Option configures [Wrap]. Later options win, except that gates add up.
type Option[K comparable] interface{ apply(*limited[K]) }

type option[K comparable] func(*limited[K])

func (o option[K]) apply(w *limited[K]) { o(w) }

// WithGates adds gates, which are asked in this order. One that has Refund(K) gets its charge back when a later one says
// no; one that has Report(K, error), as those of ratelimit.PerRemote, is told how each run ended: with a nil error also
// where Result.Requeue is set. What is given back may have no taker at that moment, so put the gate first that says no most
// often. A nil gate is left out.
func WithGates[K comparable](gates ...ratelimit.Gate[K]) Option[K] {
	return option[K](func(w *limited[K]) {
		for _, gate := range gates {
			if gate != nil {
				w.gates = append(w.gates, gate)
			}
		}
	})
}

// WithGeneration tells the metadata.generation of the object a key names, false if it does not exist. When it changes,
// what is remembered about the key is cleared, so that a changed spec and a deletion (which raises the generation as
// well) run at once. A kind that has no generation, such as ConfigMap, shows 0 from beginning to end: return something
// else when there is a deletion timestamp, or nothing but the end is noticed. It is called before every run and should read
// the cache.
func WithGeneration[K comparable](generation func(K) (int64, bool)) Option[K] {
	return option[K](func(w *limited[K]) { w.generation = generation })
}

// WithClassify replaces [Classify] as what finds the class of an error; a reconcile.TerminalError stays Terminal. A nil
// function is ignored.
func WithClassify[K comparable](classify func(error) ratelimit.Error) Option[K] {
	return option[K](func(w *limited[K]) {
		if classify != nil {
			w.classify = classify
		}
	})
}
