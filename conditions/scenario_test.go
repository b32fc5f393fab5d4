// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conditions_test

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ashlar-go/ashlar/conditions"
)

// tape turns bytes into choices, so that the same generator serves random tests and the fuzzer. It reads zeros when it
// is used up.
type tape struct {
	data []byte
	pos  int
}

func (t *tape) next() byte {
	if t.pos >= len(t.data) {
		return 0
	}
	t.pos++
	return t.data[t.pos-1]
}

func (t *tape) below(n int) int { return int(t.next()) % n }
func (t *tape) one(of int) bool { return t.below(of) == of-1 }
func (t *tape) text() string    { return texts[t.below(len(texts))] }
func (t *tape) raw(n int) string { // bytes of the fuzzer's own choosing
	end := min(t.pos+n, len(t.data))
	s := string(t.data[t.pos:end])
	t.pos = end
	return s
}

// texts are reasons and messages that real controllers have produced, and the ones that broke something.
var texts = []string{
	"", "Ready", "disk full", "All:good,so_far", "5 * 3", "a-b.c/d", "404", "trailing:", "_x", "BlockedBy", "BlockedByA",
	"NotReported", "no verdict was reported", "waits for A: x\ny", "line one\nline two\r\n", "\xff\xfe bytes", "日本語の理由",
	strings.Repeat("x", 1025), strings.Repeat("é", 700), strings.Repeat("日本", 8000), strings.Repeat("a\xffb", 15000),
	strings.Repeat("y", 32768), strings.Repeat("z", 32769), "… (+12 more bytes)", strings.Repeat("w", 40000) + "… (+7 more bytes)",
	"<@", "@@@", "Reason @ Kind/Name", "BlockedByexample_com_B_b", "\n", "\nown", "x\x00y",
}

var statuses = []metav1.ConditionStatus{"True", "False", "Unknown", "", "Maybe", "true"}

// typeNames holds what becomes ambiguous when a reason is made of it.
var typeNames = []string{"A", "example.com/B.b", "C-c", "C.c", "D", "E", "F", "G"}

type call struct {
	stall, clear bool
	c            metav1.Condition
}

// scenario is one pass: a set, an object, and what the caller says.
type scenario struct {
	set        *conditions.Set
	live       []metav1.Condition
	generation int64
	now        time.Time
	calls      []call
}

func (t *tape) scenario() scenario {
	sc := scenario{set: t.set(), generation: int64(t.below(4)) - 1, now: epoch.Add(time.Duration(t.next()) * 700 * time.Millisecond)}
	if t.one(20) {
		sc.now = time.Time{}
	}
	names := append(sc.set.Owned(), append(sc.set.Retired(), "Foreign", "other.io/X")...)
	for n := t.below(12); n > 0; n-- {
		sc.live = append(sc.live, t.condition(names[t.below(len(names))]))
	}
	for _, typ := range sc.set.Types() {
		if t.one(4) {
			continue
		}
		sc.calls = append(sc.calls, call{c: t.condition(typ.Name)})
		if t.one(3) {
			sc.calls = append(sc.calls, call{stall: true, c: metav1.Condition{Type: typ.Name}})
		}
		if t.one(8) {
			sc.calls = append(sc.calls, call{clear: true, c: metav1.Condition{Type: typ.Name}})
		}
	}
	return sc
}

func (t *tape) set() *conditions.Set {
	types := make([]conditions.Type, 1+t.below(len(typeNames)))
	for i := range types {
		bits := t.next()
		types[i] = conditions.Type{
			Name: typeNames[i], Negative: bits&1 != 0, Required: bits&2 != 0, Retired: bits&12 == 12 && i > 0,
			Advisory: bits&192 == 192,
		}
		if bits&48 == 48 {
			types[i].Redact = digits
		}
		if types[i].Retired {
			continue
		}
		for j := range i {
			if !types[j].Retired && !types[j].Advisory && t.one(3) {
				types[i].Needs = append(types[i].Needs, types[j].Name)
			}
		}
	}
	if t.next()&1 != 0 { // then needs are declared after what needs them
		for i, j := 0, len(types)-1; i < j; i, j = i+1, j-1 {
			types[i], types[j] = types[j], types[i]
		}
	}
	return conditions.MustNew("Ready", types...)
}

// digits is a redactor: numbers do not matter.
func digits(s string) string {
	return strings.Map(func(r rune) rune {
		if '0' <= r && r <= '9' {
			return '0'
		}
		return r
	}, s)
}

func (t *tape) condition(typ string) metav1.Condition {
	c := metav1.Condition{
		Type: typ, Status: statuses[t.below(len(statuses))], Reason: t.text(), Message: t.text(),
		ObservedGeneration: int64(t.below(4)) - 1,
	}
	if t.one(3) {
		c.Status = statuses[t.below(2)]
	}
	if t.one(8) {
		c.Message = t.raw(t.below(64))
	}
	if !t.one(4) {
		c.LastTransitionTime = metav1.NewTime(epoch.Add(time.Duration(t.below(600)) * time.Second))
	}
	return c
}

// run carries the scenario out.
func (sc scenario) run() (conditions.Result, error) {
	p := sc.set.Begin(sc.live, sc.generation, nil)
	for _, c := range sc.calls {
		switch {
		case c.stall:
			p.Stall(c.c.Type)
		case c.clear:
			p.Clear(c.c.Type)
		default:
			p.Put(c.c)
		}
	}
	return p.Done(sc.now)
}

func (sc scenario) String() string {
	var b strings.Builder
	for _, t := range sc.set.Types() {
		fmt.Fprintf(&b, "type %s needs %v negative %t required %t advisory %t\n", t.Name, t.Needs, t.Negative, t.Required, t.Advisory)
	}
	for _, c := range sc.live {
		fmt.Fprintf(&b, "live %.300q\n", fmt.Sprint(c))
	}
	for _, c := range sc.calls {
		fmt.Fprintf(&b, "call stall=%t clear=%t %.300q\n", c.stall, c.clear, fmt.Sprint(c.c))
	}
	fmt.Fprintf(&b, "generation %d now %v", sc.generation, sc.now)
	return b.String()
}
