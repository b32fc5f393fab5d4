// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conversion

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// graph is the versions of a kind and the steps between them.
type graph struct {
	versions []string // the oldest first
	edges    []*edge
	class    map[string]string // of versions with the same schema, the first of them
}

func newGraph(b *Builder) *graph {
	g := &graph{class: map[string]string{}, edges: slices.Clone(b.edges)}
	add := func(v string) {
		if _, ok := g.class[v]; !ok {
			g.class[v] = v
			g.versions = append(g.versions, v)
		}
	}
	for _, e := range b.edges {
		add(e.from)
		add(e.to)
	}
	for _, same := range b.same {
		for _, v := range same {
			add(v)
		}
	}
	slices.SortFunc(g.versions, compareVersions)
	for _, same := range b.same {
		for _, v := range same[1:] {
			old, first := g.class[v], g.class[same[0]]
			for w, c := range g.class {
				if c == old {
					g.class[w] = first
				}
			}
		}
	}
	for _, v := range g.versions {
		for _, w := range g.versions {
			if v != w && g.class[v] == g.class[w] {
				g.edges = append(g.edges, &edge{from: v, to: w})
			}
		}
	}
	return g
}

// cost orders paths: loss before steps; an identity is no step.
type cost struct{ loss, steps, all int }

func (c cost) compare(d cost) int {
	return cmp.Or(cmp.Compare(c.loss, d.loss), cmp.Compare(c.steps, d.steps), cmp.Compare(c.all, d.all))
}

// paths finds the best way between every two versions, and names those without one.
func (g *graph) paths() (map[string]map[string][]*edge, []string) {
	type way struct {
		cost
		edges []*edge
	}
	out := map[string]map[string][]*edge{}
	var missing []string
	for _, from := range g.versions {
		best := map[string]way{from: {}}
		done := map[string]bool{}
		for {
			at, found := "", false
			for _, v := range g.versions { // in order, so that ties are decided the same way every time
				if w, ok := best[v]; ok && !done[v] && (!found || w.compare(best[at].cost) < 0) {
					at, found = v, true
				}
			}
			if !found {
				break
			}
			done[at] = true
			for _, e := range g.edges {
				if e.from != at || done[e.to] {
					continue
				}
				w := best[at]
				next := way{cost{w.loss + boolInt(len(e.loses) > 0), w.steps + boolInt(!e.identity()), w.all + 1}, append(slices.Clip(w.edges), e)}
				if have, ok := best[e.to]; !ok || next.compare(have.cost) < 0 {
					best[e.to] = next
				}
			}
		}
		out[from] = map[string][]*edge{}
		for _, to := range g.versions {
			w, ok := best[to]
			if !ok {
				missing = append(missing, fmt.Sprintf("%s to %s", from, to))
				continue
			}
			out[from][to] = w.edges
		}
	}
	return out, missing
}

// hub is the version that no pair leads up from; the newest of several.
func (g *graph) hub() string {
	left := map[string]bool{}
	for _, e := range g.edges {
		if e.up {
			left[g.class[e.from]] = true
		}
	}
	for _, v := range slices.Backward(g.versions) {
		if !left[g.class[v]] {
			return v
		}
	}
	if len(g.versions) == 0 {
		return ""
	}
	return g.versions[len(g.versions)-1]
}

// compareVersions orders versions as Kubernetes does: v1alpha1, v1beta1, v1, v2; names of another form come first.
func compareVersions(a, b string) int {
	am, as, an, aok := splitVersion(a)
	bm, bs, bn, bok := splitVersion(b)
	if !aok || !bok {
		return cmp.Or(cmp.Compare(boolInt(aok), boolInt(bok)), cmp.Compare(a, b))
	}
	return cmp.Or(cmp.Compare(as, bs), cmp.Compare(am, bm), cmp.Compare(an, bn))
}

// splitVersion reads v<major>[alpha|beta<minor>]; stability is 0, 1 or 2.
func splitVersion(v string) (major, stability, minor int, ok bool) {
	rest, ok := strings.CutPrefix(v, "v")
	if !ok {
		return 0, 0, 0, false
	}
	stability = 2
	for i, word := range []string{"alpha", "beta"} {
		if m, n, found := strings.Cut(rest, word); found {
			stability, rest = i, m
			var err error
			if minor, err = strconv.Atoi(n); err != nil {
				return 0, 0, 0, false
			}
		}
	}
	major, err := strconv.Atoi(rest)
	return major, stability, minor, err == nil
}
