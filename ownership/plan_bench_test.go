// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ownership_test

import (
	"fmt"
	"testing"

	"github.com/ashlar-go/ashlar/ownership"
	"k8s.io/apimachinery/pkg/types"
)

// BenchmarkPlan shows that a pass is linear: time and allocations per member stay the same from 100 to 3000 of them.
func BenchmarkPlan(b *testing.B) {
	s, owner := newSet(b), database()
	for _, n := range []int{100, 1000, 3000} {
		desired, live := make([]ownership.Object, n), make([]ownership.Object, n)
		known := make(map[types.UID]ownership.Evidence, n)
		for i := range n {
			c := configMap(fmt.Sprintf("x%05d", i))
			l := stored(b, s, owner, c)
			desired[i], live[i] = c, l
			known[l.GetUID()] = ownership.Evidence{ResourceVersion: "100", Hash: l.GetAnnotations()[ownership.AppliedAnnotation]}
		}
		recall := ownership.Remembering(func(id types.UID) (ownership.Evidence, bool) { e, ok := known[id]; return e, ok })
		for name, opts := range map[string][]ownership.PlanOption{"compared": nil, "remembered": {recall}} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if p, err := s.Plan(owner, desired, live, ownership.Policy{}, opts...); err != nil || !p.Empty() {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/member")
			})
		}
	}
}
