// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package bpfmap

import (
	"fmt"
	"iter"
	"path"
	"slices"
	"strings"
)

// Leftover is a pin that nobody claims.
type Leftover struct {
	Pinned
	// Why says what it looks like: "orphan", "backup of a migration" or "unfinished migration".
	Why string
}

// WithDelete makes [Sweep] remove what it finds.
func WithDelete() Option { return option{"WithDelete", func(c *config) { c.remove = true }} }

// Sweep finds what is pinned below root, our pin root, and claimed by no path of claimed: programs, links and maps of an
// earlier version, which may still run and use dead maps. Layouts beside a claimed map belong to it; a migration's
// backup and its unfinished part do not, and are reported as such. Nothing is removed unless [WithDelete] says so:
// removing the pin of a link detaches its program, if nothing else holds it.
//
// Paths in claimed are absolute, and below root as root is spelled; a directory among them claims everything below it. An
// error of one pin is yielded with it and the sweep goes on.
func Sweep(root string, claimed []string, opts ...Option) iter.Seq2[Leftover, error] {
	return func(yield func(Leftover, error) bool) {
		c, err := configure(opts, sweepTakes)
		claimed := slices.Clone(claimed)
		for i, p := range claimed {
			if !path.IsAbs(p) && err == nil { // it would claim nothing, and what it means would go
				err = fmt.Errorf("the claimed path %q must be absolute", p)
			}
			claimed[i] = path.Clean(p)
		}
		var pins []Pinned
		if err == nil {
			pins, err = c.sys.Pins(path.Clean(root))
		}
		if err != nil {
			yield(Leftover{}, &Error{Op: "sweep", Map: root, Err: permission(err, needPin)})
			return
		}
		for _, p := range pins {
			why, ok := leftover(p.Path, claimed)
			if !ok {
				continue
			}
			var err error
			if c.remove {
				if err = gone(c.sys.Remove(p.Path)); err != nil {
					err = &Error{Op: "sweep", Map: p.Path, Err: permission(err, needPin)}
				}
			}
			if !yield(Leftover{p, why}, err) {
				return
			}
		}
	}
}

func leftover(pin string, claimed []string) (why string, ok bool) {
	is := func(p string) bool {
		return slices.ContainsFunc(claimed, func(c string) bool { return p == c || strings.HasPrefix(p, strings.TrimSuffix(c, "/")+"/") })
	}
	base := strings.TrimSuffix(pin, "-layout")
	if is(pin) || is(base) {
		return "", false
	}
	if main, cut := strings.CutSuffix(base, "-prev"); cut && is(main) {
		return "backup of a migration", true
	}
	if main, cut := strings.CutSuffix(base, "-next"); cut && is(main) {
		return "unfinished migration", true
	}
	return "orphan", true
}
