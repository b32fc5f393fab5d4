// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conditions_test

import (
	"fmt"
	"iter"
	"math/rand"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"

	"github.com/ashlar-go/ashlar/conditions"
)

// fleetOf writes members down as "name status reason message"; a status of "-" is no condition.
func fleetOf(lines ...string) iter.Seq2[string, []metav1.Condition] {
	return func(yield func(string, []metav1.Condition) bool) {
		for _, line := range lines {
			f := strings.SplitN(line, " ", 4)
			for len(f) < 4 {
				f = append(f, "")
			}
			conds := []metav1.Condition{{Type: "Other", Status: "False", Reason: "Noise", Message: "noise"}}
			if f[1] != "-" {
				conds = append(conds, metav1.Condition{Type: "Up", Status: metav1.ConditionStatus(f[1]), Reason: f[2], Message: f[3]})
			}
			if !yield(f[0], conds) {
				return
			}
		}
	}
}

func TestSummarize(t *testing.T) {
	t.Parallel()
	type T = conditions.Type
	tests := map[string]struct {
		reason  string
		as      T
		members []string
		want    string
	}{
		"none":      {"nothing to complain about", T{Name: "AllUp"}, nil, "AllUp True NoMembers | no members"},
		"none, bad": {"likewise", T{Name: "AnyUp", Negative: true}, nil, "AnyUp False NoMembers | no members"},
		"good":      {"one reason, no message", T{Name: "AllUp"}, []string{"a True Up", "b True Up"}, "AllUp True Up | 2 of 2 True"},
		"healthy info": {"what healthy members say is not lost when all are healthy", T{Name: "AllUp"},
			[]string{"a True Up", "b True Up v1.2 serves", "c True Up"}, "AllUp True Up | 3 of 3 True: Up: v1.2 serves (b)"},
		"no info noise": {"but it is noise beside a fault", T{Name: "AllUp"},
			[]string{"a True Up v1.2 serves", "b False Down no route"}, "AllUp False Down | 1 of 2 False: Down: no route (b)"},
		"unknown": {"Unknown outranks good, a missing condition is Unknown", T{Name: "AllUp"},
			[]string{"a True Up", "b -", "c Maybe Odd"}, "AllUp Unknown Mixed | 2 of 3 Unknown: NotReported (b); Odd (c)"},
		"bad and unknown": {"bad outranks Unknown; both are told", T{Name: "AllUp"},
			[]string{"a True Up", "b -", "c False Down gone"}, "AllUp False Down | 1 of 3 False, 1 Unknown: Down: gone (c); NotReported (b)"},
		"budget": {"three messages, three names, the rest counted", T{Name: "AllUp"},
			[]string{"e False Down gone", "a False Down gone", "d False Down gone", "c False Down gone", "b False Full disk", "f False Slow", "g False Old 1", "h False Old 2"},
			"AllUp False Mixed | 8 of 8 False: Down: gone (a, c, d +1 more); Slow (f); Old: 1 (g); +2 more messages"},
		"negative": {"True is bad, absent is good", T{Name: "AnySkew", Negative: true},
			[]string{"a -", "b True Skew v1", "c False Same"}, "AnySkew True Skew | 1 of 3 True: Skew: v1 (b)"},
		"negative, all absent":  {"no reason is known", T{Name: "AnySkew", Negative: true}, []string{"a -", "b -"}, "AnySkew False Healthy | 2 of 2 False"},
		"negative and required": {"absent is Unknown", T{Name: "AnySkew", Negative: true, Required: true}, []string{"a -"}, "AnySkew Unknown NotReported | 1 of 1 Unknown: NotReported (a)"},
		"redacted": {"texts equal under the redactor are one", T{Name: "AllUp", Redact: digits},
			[]string{"a False Down pid 17", "b False Down pid 42"}, "AllUp False Down | 2 of 2 False: Down: pid 00 (a, b)"},
		"lines": {"each message is one line; markup is nobody's business", T{Name: "AllUp"},
			[]string{"a False Down 5 * 3\n* not a list"}, "AllUp False Down | 1 of 1 False: Down: 5 * 3 * not a list (a)"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := conditions.Summarize(tc.as, "Up", fleetOf(tc.members...))
			if got := brief(c); got != tc.want {
				t.Errorf("%s:\ngot  %s\nwant %s", tc.reason, got, tc.want)
			}
		})
	}
}

// TestTallyEqualsSummarize: for any history of changes the increments arrive where a fresh look arrives, and no order of
// members makes a difference.
func TestTallyEqualsSummarize(t *testing.T) {
	t.Parallel()
	for _, as := range []conditions.Type{{Name: "AllUp"}, {Name: "AnyDown", Negative: true}, {Name: "R", Negative: true, Required: true, Redact: digits}} {
		rng := rand.New(rand.NewSource(1))
		tally := conditions.NewTally(as, "Up")
		members := map[string][]metav1.Condition{}
		for i := range 4000 {
			key := fmt.Sprintf("ns/%d", rng.Intn(60))
			switch {
			case rng.Intn(4) == 0:
				tally.Drop(key)
				delete(members, key)
			default:
				conds := []metav1.Condition{{Type: "Up", Status: statuses[rng.Intn(len(statuses))],
					Reason: []string{"A", "B", ""}[rng.Intn(3)], Message: texts[rng.Intn(6)]}}
				if rng.Intn(5) == 0 {
					conds = nil
				}
				tally.Put(key, conds)
				members[key] = conds
			}
			if i%7 != 0 {
				continue
			}
			want := conditions.Summarize(as, "Up", func(yield func(string, []metav1.Condition) bool) {
				for key, conds := range members { // in any order
					if !yield(key, conds) {
						return
					}
				}
			})
			if diff := cmp.Diff(want, tally.Condition()); diff != "" || tally.Len() != len(members) {
				t.Fatalf("change %d, %d members: %s", i, tally.Len(), diff)
			}
		}
	}
}

func TestSummaryStaysInItsBudget(t *testing.T) {
	t.Parallel()
	members := func(yield func(string, []metav1.Condition) bool) {
		for i := range 500 {
			text := fmt.Sprint(i%5) + strings.Repeat("日本\xff", 4000)
			if !yield(strings.Repeat("ns-\xfe", 300)+fmt.Sprint(i), []metav1.Condition{{Type: "Up", Status: "False", Reason: strings.Repeat("r", 2000), Message: text}}) {
				return
			}
		}
	}
	c := conditions.Summarize(conditions.Type{Name: "AllUp"}, "Up", members)
	if len(c.Message) > 4096 {
		t.Errorf("%d bytes", len(c.Message))
	}
	c.LastTransitionTime = metav1.NewTime(epoch)
	if errs := validation.ValidateCondition(c, nil); len(errs) > 0 {
		t.Error(errs)
	}
	if c.Message != strings.ToValidUTF8(c.Message, "") {
		t.Error("not UTF-8")
	}
}

func TestMirror(t *testing.T) {
	t.Parallel()
	from := []metav1.Condition{
		{Type: "Ready", Status: "False", Reason: "Reason @ Kind", Message: "m\xff", ObservedGeneration: 9, LastTransitionTime: metav1.NewTime(epoch)},
		{Type: "Odd", Status: "yes"},
	}
	tests := map[string]struct {
		reason string
		typ    string
		want   metav1.Condition
	}{
		"present": {"made valid; the generation counts somebody else's changes", "Ready",
			metav1.Condition{Type: "DBReady", Status: "False", Reason: "Reason___Kind", Message: "m\uFFFD", LastTransitionTime: metav1.NewTime(epoch)}},
		"odd":    {"what is neither True nor False is Unknown", "Odd", metav1.Condition{Type: "DBReady", Status: "Unknown", Reason: "Unspecified"}},
		"absent": {"absent is Unknown", "Nope", metav1.Condition{Type: "DBReady", Status: "Unknown", Reason: "NotReported", Message: "the source has no condition Nope"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, conditions.Mirror("DBReady", from, tc.typ)); diff != "" {
				t.Error(tc.reason, diff)
			}
		})
	}
}

func TestZeroTallyWorks(t *testing.T) {
	t.Parallel()
	var tally conditions.Tally
	tally.Drop("a")
	tally.Put("a", nil)
	if c := tally.Condition(); c.Status != "Unknown" || tally.Len() != 1 {
		t.Error(brief(c))
	}
}
