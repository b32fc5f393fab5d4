// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conversion_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/conversion"
)

var listEdits = flag.Int("lists", 3000, "random edits of lists")

// item is an item of the model: what both versions see, what only the new one sees, and who it is.
type item struct {
	id         int
	port       int
	cidr       string
	named      bool
	new, moved bool // inserted or edited, or moved, at the old version
}

func (i item) rule(old bool) string {
	s := fmt.Sprintf(`{"port":%d`, i.port)
	if i.named {
		s += fmt.Sprintf(`,"name":"n%d"`, i.id)
	}
	if !old && i.cidr != "" {
		s += `,"cidr":"` + i.cidr + `"`
	}
	return s + "}"
}

func rules(list []item, old bool) string {
	var out []string
	for _, i := range list {
		out = append(out, i.rule(old))
	}
	return `{"rules":[` + strings.Join(out, ",") + `]}`
}

// TestListsNeverMixUpItems re-orders, inserts, removes and edits items at the old version. The model knows who is who: no
// item may come back with a value of another one, one that looks like no other and was not edited comes back whole, and
// with keys an edited one does, too.
func TestListsNeverMixUpItems(t *testing.T) {
	t.Parallel()
	plain := build(t)
	keyed := build(t, conversion.WithListKeys("v1", "spec.rules", "name"), conversion.WithListKeys("v1alpha1", "spec.rules", "name"))
	whole, lost, ambiguous := 0, 0, 0
	for n := range *listEdits {
		r := rand.New(rand.NewPCG(7, uint64(n)))
		named := n%2 == 0
		c := plain
		if named {
			c = keyed
		}
		var list []item
		for id := range 1 + r.IntN(6) {
			i := item{id: id, port: 1 + r.IntN(4), named: named}
			if r.IntN(3) > 0 {
				i.cidr = fmt.Sprintf("c%d", id)
			}
			list = append(list, i)
		}
		before := slices.Clone(list)
		read := convert(t, c, newWidget(rules(list, false)), "v1alpha1")
		for range 1 + r.IntN(3) {
			list = editItems(r, list, named)
		}
		var doc map[string]json.RawMessage
		if err := json.Unmarshal([]byte(read), &doc); err != nil {
			t.Fatal(err)
		}
		doc["spec"] = json.RawMessage(rules(list, true))
		written, err := json.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		back := convert(t, c, string(written), "v1")
		var got struct {
			Spec struct{ Rules []struct{ CIDR string } }
		}
		if err := json.Unmarshal([]byte(back), &got); err != nil || len(got.Spec.Rules) != len(list) {
			t.Fatalf("edit %d: %v: %s", n, err, back)
		}
		twins := func(l []item, i item) (k int) {
			for _, j := range l {
				if i.rule(true) == j.rule(true) {
					k++
				}
			}
			return k
		}
		unchanged := rules(before, true) == rules(list, true)
		for k, i := range list {
			cidr := got.Spec.Rules[k].CIDR
			alone := twins(before, i) <= 1 && twins(list, i) <= 1
			switch {
			case unchanged:
				// To an old client nothing has happened, whatever its editor did in between.
				if cidr != before[k].cidr {
					t.Fatalf("edit %d: item %d has %q, want %q\n%s\n%s", n, k, cidr, before[k].cidr, written, back)
				}
			case cidr != "" && (i.new && !named || cidr != fmt.Sprintf("c%d", i.id)) && alone && !looksOld(before, i, cidr):
				t.Fatalf("edit %d: item %d (%+v) has %q of somebody else\n%s\n%s", n, k, i, cidr, written, back)
			case !alone && cidr != "" && cidr != i.cidr && cidr != twin(before, list, k):
				t.Fatalf("edit %d: item %d (%+v), one of several that look the same, has %q\nbefore %s\n%s\n%s", n, k, i, cidr, rules(before, false), written, back)
			case named && cidr != i.cidr || !named && alone && !i.new && twins(before, i) == 1 && cidr != i.cidr:
				t.Fatalf("edit %d: item %d (%+v) has %q\nbefore %s\n%s\n%s", n, k, i, cidr, rules(before, false), written, back)
			}
			switch {
			case !alone:
				ambiguous++
			case cidr == i.cidr:
				whole++
			default:
				lost++
			}
		}
	}
	t.Logf("%d items whole, %d edited beyond recognition, %d among equals", whole, lost, ambiguous)
	if *listEdits >= 3000 && (whole < 1000 || lost < 50 || ambiguous < 500) {
		t.Errorf("the edits are too tame: %d whole, %d lost, %d among equals", whole, lost, ambiguous)
	}
}

// twin is the value of the old item that item k of the list is when equal items that changed places with each other look
// as if they had not: the same one in order, of as many as before. Otherwise none may have a value.
func twin(before, list []item, k int) string {
	var olds []item
	nth, now := 0, 0
	for _, b := range before {
		if b.rule(true) == list[k].rule(true) {
			olds = append(olds, b)
		}
	}
	for j, i := range list {
		if i.rule(true) == list[k].rule(true) {
			now++
			if j < k {
				nth++
			}
		}
	}
	if now != len(olds) {
		return "(none)"
	}
	return olds[nth].cidr
}

// looksOld reports whether an item that is new looks like an old one that is gone, to which the value belonged: an old
// client that deletes an item and writes the same one again has done nothing.
func looksOld(before []item, i item, cidr string) bool {
	return slices.ContainsFunc(before, func(b item) bool { return b.rule(true) == i.rule(true) && b.cidr == cidr })
}

func editItems(r *rand.Rand, list []item, named bool) []item {
	list = slices.Clone(list)
	switch op := r.IntN(4); {
	case op == 0 || len(list) == 0:
		return slices.Insert(list, r.IntN(len(list)+1), item{id: 100 + r.IntN(1000), port: 1 + r.IntN(5), named: named, new: true})
	case op == 1:
		k := r.IntN(len(list))
		return slices.Delete(list, k, k+1)
	case op == 2:
		k := r.IntN(len(list))
		i := list[k]
		i.moved = true
		return slices.Insert(slices.Delete(list, k, k+1), r.IntN(len(list)), i)
	default:
		k := r.IntN(len(list))
		list[k].port = 10 + r.IntN(3)
		list[k].new = true
		return list
	}
}
