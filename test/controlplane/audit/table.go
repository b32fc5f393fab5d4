// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
)

// Table prints how often each verb, resource and answer occurred, and the total, aligned for reading:
//
//	VERB   RESOURCE                  CODE   COUNT
//	patch  databases.example/status  200        2
//	get    configmaps                404        1
//	                                 total      3
//
// Rows are ordered by count, highest first, then by name.
func (rs Requests) Table() string {
	type row struct {
		verb, what string
		code       int
	}
	counts := map[row]int{}
	for _, r := range rs {
		counts[row{r.Verb, r.what(), r.Code}]++
	}
	rows := make([]row, 0, len(counts))
	for r := range counts {
		rows = append(rows, r)
	}
	slices.SortFunc(rows, func(a, b row) int {
		return cmp.Or(
			cmp.Compare(counts[b], counts[a]),
			strings.Compare(a.what, b.what), strings.Compare(a.verb, b.verb), cmp.Compare(a.code, b.code),
		)
	})
	width := len(fmt.Sprint(len(rs)))
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	line := func(verb, what, code, count string) {
		fmt.Fprintf(w, "%s\t%s\t%s\t%*s\n", verb, what, code, max(width, len("COUNT")), count)
	}
	line("VERB", "RESOURCE", "CODE", "COUNT")
	for _, r := range rows {
		line(r.verb, r.what, fmt.Sprint(r.code), fmt.Sprint(counts[r]))
	}
	line("", "", "total", fmt.Sprint(len(rs)))
	w.Flush() // a strings.Builder never fails
	return b.String()
}
