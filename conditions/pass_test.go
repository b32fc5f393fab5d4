// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conditions_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ashlar-go/ashlar/conditions"
)

// databaseSet is the set of the examples: a chain, a sibling, a negative type.
func databaseSet() *conditions.Set {
	return conditions.MustNew("Ready",
		conditions.Type{Name: "ConfigReady"},
		conditions.Type{Name: "StorageReady", Needs: []string{"ConfigReady"}},
		conditions.Type{Name: "Serving", Needs: []string{"StorageReady"}},
		conditions.Type{Name: "BackupReady"},
		conditions.Type{Name: "VersionSkew", Negative: true},
	)
}

// brief is one condition in one line, without time.
func brief(c metav1.Condition) string {
	s := c.Type + " " + string(c.Status) + " " + c.Reason
	if c.Message != "" {
		s += " | " + c.Message
	}
	return s
}

func briefs(conds []metav1.Condition) (out []string) {
	for _, c := range conds {
		out = append(out, brief(c))
	}
	return out
}

func done(t *testing.T, p *conditions.Pass, now time.Time) conditions.Result {
	t.Helper()
	r, err := p.Done(now)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func get(t *testing.T, conds []metav1.Condition, typ string) metav1.Condition {
	t.Helper()
	i := slices.IndexFunc(conds, func(c metav1.Condition) bool { return c.Type == typ })
	if i < 0 {
		t.Fatalf("no condition %s in %v", typ, briefs(conds))
	}
	return conds[i]
}

func TestDone(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		reason string
		say    func(*conditions.Pass)
		want   []string
		cause  string
	}{
		"all good": {
			reason: "an absent negative type is good and stays absent",
			say: func(p *conditions.Pass) {
				for _, typ := range []string{"ConfigReady", "StorageReady", "Serving", "BackupReady"} {
					p.True(typ, "Applied", "")
				}
			},
			want: []string{
				"Ready True Healthy", "ConfigReady True Applied", "StorageReady True Applied", "Serving True Applied",
				"BackupReady True Applied",
			},
		},
		"nothing said": {
			reason: "not observed is Unknown, never good; only what needs nothing is asked for",
			say:    func(*conditions.Pass) {},
			want: []string{
				"Ready Unknown NotReported | ConfigReady: no verdict was reported",
				"ConfigReady Unknown NotReported | no verdict was reported",
				"StorageReady Unknown BlockedByConfigReady | waits for ConfigReady: no verdict was reported",
				"Serving Unknown BlockedByStorageReady | waits for StorageReady, blocked by ConfigReady: no verdict was reported",
				"BackupReady Unknown NotReported | no verdict was reported",
				"Reconciling True NotReported | ConfigReady: no verdict was reported",
			},
			cause: "ConfigReady",
		},
		"one fault": {
			reason: "what depends on it is Unknown, keeps its own text, and is not a second False",
			say: func(p *conditions.Pass) {
				p.True("ConfigReady", "Applied", "")
				p.False("StorageReady", "DiskFull", "volume data-0 is full\nof logs")
				p.False("Serving", "NoEndpoint", "0 of 3 replicas answer")
				p.True("BackupReady", "Done", "")
			},
			want: []string{
				"Ready False DiskFull | StorageReady: volume data-0 is full\nof logs",
				"ConfigReady True Applied",
				"StorageReady False DiskFull | volume data-0 is full\nof logs",
				"Serving Unknown BlockedByStorageReady | waits for StorageReady: volume data-0 is full of logs\n0 of 3 replicas answer",
				"BackupReady True Done",
				"Reconciling True DiskFull | StorageReady: volume data-0 is full\nof logs",
			},
			cause: "StorageReady",
		},
		"bad before Unknown": {
			reason: "a fault says more than a gap, wherever it is",
			say: func(p *conditions.Pass) {
				p.Unknown("ConfigReady", "NoContact", "")
				p.False("BackupReady", "NoTarget", "")
			},
			want: []string{
				"Ready False NoTarget | BackupReady is False",
				"ConfigReady Unknown NoContact",
				"StorageReady Unknown BlockedByConfigReady | waits for ConfigReady: NoContact",
				"Serving Unknown BlockedByStorageReady | waits for StorageReady, blocked by ConfigReady: NoContact",
				"BackupReady False NoTarget",
				"Reconciling True NoTarget | BackupReady is False",
			},
			cause: "BackupReady",
		},
		"negative": {
			reason: "True is bad for a negative type; a stall is shown as kstatus wants it",
			say: func(p *conditions.Pass) {
				p.Stall("VersionSkew") // before the verdict: the order is free
				p.True("ConfigReady", "Applied", "")
				p.True("StorageReady", "Applied", "")
				p.True("Serving", "Applied", "")
				p.True("BackupReady", "Done", "")
				p.True("VersionSkew", "TooOld", "v1 cannot follow v3")
			},
			want: []string{
				"Ready False TooOld | VersionSkew: v1 cannot follow v3",
				"ConfigReady True Applied", "StorageReady True Applied", "Serving True Applied", "BackupReady True Done",
				"VersionSkew True TooOld | v1 cannot follow v3",
				"Stalled True TooOld | VersionSkew: v1 cannot follow v3",
			},
			cause: "VersionSkew",
		},
		"stall without effect": {
			reason: "a mark on a verdict that is not bad in the end says nothing",
			say: func(p *conditions.Pass) {
				p.Unknown("ConfigReady", "NoContact", "")
				p.False("StorageReady", "DiskFull", "")
				p.Stall("StorageReady") // blocked, so Unknown
				p.True("BackupReady", "Done", "")
				p.Stall("BackupReady")
				p.True("Serving", "Applied", "")
			},
			want: []string{
				"Ready Unknown NoContact | ConfigReady is Unknown",
				"ConfigReady Unknown NoContact",
				"StorageReady Unknown BlockedByConfigReady | waits for ConfigReady: NoContact",
				"Serving Unknown BlockedByStorageReady | waits for StorageReady, blocked by ConfigReady: NoContact",
				"BackupReady True Done",
				"Reconciling True NoContact | ConfigReady is Unknown",
			},
			cause: "ConfigReady",
		},
		"last word": {
			reason: "of two verdicts on a type the later counts; Clear takes verdict and mark back",
			say: func(p *conditions.Pass) {
				p.False("ConfigReady", "First", "")
				p.True("ConfigReady", "Second", "")
				p.True("StorageReady", "Applied", "")
				p.True("Serving", "Applied", "")
				p.True("BackupReady", "Done", "")
				p.True("VersionSkew", "TooOld", "")
				p.Stall("VersionSkew")
				p.Clear("VersionSkew")
			},
			want: []string{
				"Ready True Healthy", "ConfigReady True Second", "StorageReady True Applied", "Serving True Applied",
				"BackupReady True Done",
			},
		},
		"neither True nor False": {
			reason: "a status that the API server would refuse is Unknown, also for a negative type",
			say: func(p *conditions.Pass) {
				p.True("ConfigReady", "Applied", "")
				p.True("StorageReady", "Applied", "")
				p.True("Serving", "Applied", "")
				p.Put(metav1.Condition{Type: "BackupReady"})
				p.Put(metav1.Condition{Type: "VersionSkew", Status: "true", Reason: "Guess"})
			},
			want: []string{
				"Ready Unknown Unspecified | BackupReady is Unknown",
				"ConfigReady True Applied", "StorageReady True Applied", "Serving True Applied",
				"BackupReady Unknown Unspecified", "VersionSkew Unknown Guess",
				"Reconciling True Unspecified | BackupReady is Unknown",
			},
			cause: "BackupReady",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := databaseSet().Begin(nil, 7, nil)
			tc.say(p)
			r := done(t, p, epoch)
			if diff := cmp.Diff(tc.want, briefs(r.Conditions)); diff != "" {
				t.Errorf("%s:\n%s", tc.reason, diff)
			}
			if r.Cause != tc.cause || !r.Changed || r.RequeueAfter != 0 {
				t.Errorf("cause %q changed %t requeue %v", r.Cause, r.Changed, r.RequeueAfter)
			}
			for _, c := range r.Conditions {
				if c.ObservedGeneration != 7 || !c.LastTransitionTime.Time.Equal(epoch) {
					t.Errorf("%s: generation %d, time %v", c.Type, c.ObservedGeneration, c.LastTransitionTime)
				}
			}
		})
	}
}

func TestCauseFollowsTheGraphNotTheDeclaration(t *testing.T) {
	t.Parallel()
	s := conditions.MustNew("Ready",
		conditions.Type{Name: "Last", Needs: []string{"Middle"}},
		conditions.Type{Name: "Middle", Needs: []string{"First"}},
		conditions.Type{Name: "First"},
		conditions.Type{Name: "Other"},
	)
	p := s.Begin(nil, 1, nil)
	p.False("Other", "O", "")
	p.False("First", "F", "")
	r := done(t, p, epoch)
	if r.Cause != "First" {
		t.Errorf("cause is %s", r.Cause)
	}
	want := []string{"Ready", "Last", "Middle", "First", "Other", "Reconciling"}
	var got []string
	for _, c := range r.Conditions {
		got = append(got, c.Type)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error("written in the order of declaration:", diff)
	}
}

func TestBlockerAmongSeveral(t *testing.T) {
	t.Parallel()
	s := conditions.MustNew("Ready",
		conditions.Type{Name: "Base"},
		conditions.Type{Name: "Waiting", Needs: []string{"Base"}},
		conditions.Type{Name: "Open"},
		conditions.Type{Name: "Broken"},
		conditions.Type{Name: "App", Needs: []string{"Waiting", "Open", "Broken"}},
	)
	tests := map[string]struct {
		reason string
		say    map[string]metav1.ConditionStatus
		want   string
	}{
		"bad first":          {"a fault explains more than a gap", map[string]metav1.ConditionStatus{"Base": "Unknown", "Open": "Unknown", "Broken": "False"}, "BlockedByBroken"},
		"then not blocked":   {"a gap explains more than what waits for one", map[string]metav1.ConditionStatus{"Base": "Unknown", "Open": "Unknown", "Broken": "True"}, "BlockedByOpen"},
		"then whatever":      {"there is nothing better to name", map[string]metav1.ConditionStatus{"Base": "Unknown", "Open": "True", "Broken": "True"}, "BlockedByWaiting"},
		"bad behind a block": {"the edge is named, the text names the origin", map[string]metav1.ConditionStatus{"Base": "False", "Open": "True", "Broken": "True"}, "BlockedByWaiting"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := s.Begin(nil, 1, nil)
			for typ, status := range tc.say {
				p.Put(metav1.Condition{Type: typ, Status: status, Reason: "R"})
			}
			p.True("App", "Up", "")
			c := get(t, done(t, p, epoch).Conditions, "App")
			if c.Status != metav1.ConditionUnknown || c.Reason != tc.want {
				t.Errorf("%s, although %s", brief(c), tc.reason)
			}
		})
	}
}

func TestFirstBlockerFollowsTheGraphNotTheListOfNeeds(t *testing.T) {
	t.Parallel()
	s := conditions.MustNew("Ready", conditions.Type{Name: "A"}, conditions.Type{Name: "B"},
		conditions.Type{Name: "App", Needs: []string{"B", "A"}})
	r := put(t, s, nil, 1, epoch, "A False Down", "B False Down", "App True Up")
	if c := get(t, r.Conditions, "App"); c.Reason != "BlockedByA" || r.Cause != "A" {
		t.Error(brief(c), r.Cause)
	}
}

func TestBlockedReasonIsLegalForAnyName(t *testing.T) {
	t.Parallel()
	s := conditions.MustNew("Ready", conditions.Type{Name: "a-b.example.com/C.d-e_f"},
		conditions.Type{Name: "App", Needs: []string{"a-b.example.com/C.d-e_f"}})
	c := get(t, done(t, s.Begin(nil, 1, nil), epoch).Conditions, "App")
	if c.Reason != "BlockedBya_b_example_com_C_d_e_f" {
		t.Error(c.Reason)
	}
}

func TestRefusedVerdictsAreNamedAndNothingElseIsLost(t *testing.T) {
	t.Parallel()
	s := conditions.MustNew("Ready", conditions.Type{Name: "A"}, conditions.Type{Name: "Old", Retired: true})
	say := []func(*conditions.Pass){
		func(p *conditions.Pass) { p.True("A", "Applied", "") },
		func(p *conditions.Pass) { p.True("Bee", "Applied", "") },
		func(p *conditions.Pass) { p.True("Bee", "Again", "") },
		func(p *conditions.Pass) { p.False("Ready", "Mine", "") },
		func(p *conditions.Pass) { p.Stall("Old") },
		func(p *conditions.Pass) { p.Clear("Reconciling") },
	}
	want := `clear condition type "Reconciling": derived by the set
put condition type "Bee": not declared
put condition type "Ready": the root is decided by the set
stall condition type "Old": retired`
	for _, order := range [][]int{{0, 1, 2, 3, 4, 5}, {5, 4, 3, 2, 1, 0}} {
		p := s.Begin(nil, 1, nil)
		for _, i := range order {
			say[i](p)
		}
		r, err := p.Done(epoch)
		if err == nil || err.Error() != want {
			t.Errorf("got error\n%v\nwant\n%s", err, want)
		}
		if !errors.Is(err, conditions.ErrUndeclared) || !errors.Is(err, conditions.ErrReserved) {
			t.Error("kinds are lost")
		}
		if diff := cmp.Diff([]string{"Ready True Healthy", "A True Applied"}, briefs(r.Conditions)); diff != "" {
			t.Error(diff)
		}
	}
}

func TestPassIsOverAfterDone(t *testing.T) {
	t.Parallel()
	s := databaseSet()
	live := []metav1.Condition{{Type: "Foreign"}}
	p := s.Begin(live, 1, nil)
	done(t, p, epoch)
	p.True("ConfigReady", "Late", "")
	r, err := p.Done(epoch)
	if !errors.Is(err, conditions.ErrFinished) || !strings.Contains(err.Error(), "ConfigReady") {
		t.Error(err)
	}
	if r.Changed || !identical(r.Conditions, live) {
		t.Error("a pass that is over changes nothing")
	}

	var zero conditions.Set
	if _, err := zero.Begin(nil, 1, nil).Done(epoch); !errors.Is(err, conditions.ErrFinished) {
		t.Error("zero Set:", err)
	}
}

func TestTimes(t *testing.T) {
	t.Parallel()
	s := conditions.MustNew("Ready", conditions.Type{Name: "A"})
	at := func(d time.Duration) metav1.Time { return metav1.NewTime(epoch.Add(d)) }
	live := func(status metav1.ConditionStatus, since metav1.Time) []metav1.Condition {
		return []metav1.Condition{{Type: "A", Status: status, Reason: "R", ObservedGeneration: 1, LastTransitionTime: since}}
	}
	tests := map[string]struct {
		reason string
		live   []metav1.Condition
		now    time.Time
		want   metav1.Time
	}{
		"new":              {"whole seconds", nil, epoch.Add(900 * time.Millisecond), at(0)},
		"same status":      {"kept, although the pass is later", live("True", at(-time.Hour)), epoch, at(-time.Hour)},
		"other status":     {"moved", live("False", at(-time.Hour)), epoch, at(0)},
		"clock set back":   {"never back", live("False", at(time.Hour)), epoch, at(time.Hour)},
		"live without one": {"a time that is missing is filled in, as the API server insists", live("True", metav1.Time{}), epoch, at(0)},
		"clock not set":    {"the zero time would be refused", nil, time.Time{}, metav1.Unix(0, 0)},
		"clock far off":    {"RFC 3339 has four digits for the year", nil, time.Date(12000, 1, 1, 0, 0, 0, 0, time.UTC), metav1.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := s.Begin(tc.live, 1, nil)
			// The time a caller puts is not the time of a transition it cannot know of.
			p.Put(metav1.Condition{Type: "A", Status: "True", Reason: "R", LastTransitionTime: at(-2 * time.Hour), ObservedGeneration: 99})
			c := get(t, done(t, p, tc.now).Conditions, "A")
			if !c.LastTransitionTime.Equal(&tc.want) || c.ObservedGeneration != 1 {
				t.Errorf("time %v generation %d, want %v and 1: %s", c.LastTransitionTime, c.ObservedGeneration, tc.want, tc.reason)
			}
		})
	}
}

func TestTimeThatIsMissingIsAChange(t *testing.T) {
	t.Parallel()
	s := conditions.MustNew("Ready", conditions.Type{Name: "A"})
	live := put(t, s, nil, 1, epoch, "A True Up").Conditions
	live[1].LastTransitionTime = metav1.Time{}
	r := put(t, s, live, 1, epoch.Add(time.Hour), "A True Up")
	if !r.Changed || !r.Conditions[1].LastTransitionTime.Time.Equal(epoch.Add(time.Hour)) {
		t.Error(r)
	}
}

func TestClearTakesTheMarkBackToo(t *testing.T) {
	t.Parallel()
	p := conditions.MustNew("Ready", conditions.Type{Name: "A"}).Begin(nil, 1, nil)
	p.Stall("A")
	p.Clear("A")
	p.False("A", "Down", "")
	if got := done(t, p, epoch).Conditions[2].Type; got != conditions.Reconciling {
		t.Error(got)
	}
}

// What a pass wrote about a type nobody judged may come back as a verdict, from a controller that starts with a copy of
// the live conditions. It then is no verdict.
func TestOwnWordsAreNoVerdict(t *testing.T) {
	t.Parallel()
	s := conditions.MustNew("Ready", conditions.Type{Name: "A"}, conditions.Type{Name: "B", Needs: []string{"A"}})
	tests := map[string]struct {
		reason string
		give   []string
		want   string
	}{
		"old block":            {"it is over", []string{"A True Up", "B Unknown BlockedByA waits for A: down"}, "B Unknown NotReported | no verdict was reported"},
		"old block, own text":  {"the caller's text is kept", []string{"A True Up", "B Unknown BlockedByA waits for A: down\nmine"}, "B Unknown NotReported | mine"},
		"old block, new cause": {"what it waits for is told anew", []string{"A False Gone", "B Unknown BlockedByA waits for A: down\nmine"}, "B Unknown BlockedByA | waits for A: Gone\nmine"},
		"old gap":              {"nobody said so", []string{"A False Gone", "B Unknown NotReported no verdict was reported"}, "B Unknown BlockedByA | waits for A: Gone"},
		"a real verdict":       {"this is somebody's", []string{"A False Gone", "B Unknown NotReported asked in vain"}, "B Unknown BlockedByA | waits for A: Gone\nasked in vain"},
		"not a need of it":     {"so it is somebody's as well", []string{"A True Up", "B Unknown BlockedByC x"}, "B Unknown BlockedByC | x"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := brief(get(t, put(t, s, nil, 1, epoch, tc.give...).Conditions, "B")); got != tc.want {
				t.Errorf("got %q, want %q: %s", got, tc.want, tc.reason)
			}
		})
	}
}

func TestRedactedTextStays(t *testing.T) {
	t.Parallel()
	s := conditions.MustNew("Ready",
		conditions.Type{Name: "A", Redact: digits},
		conditions.Type{Name: "B", Needs: []string{"A"}, Redact: digits},
	)
	pass := func(live []metav1.Condition, gen int64, status metav1.ConditionStatus, a, b string) conditions.Result {
		p := s.Begin(live, gen, nil)
		p.Put(metav1.Condition{Type: "A", Status: status, Reason: "R", Message: a})
		p.False("B", "R", b)
		return done(t, p, epoch)
	}
	first := pass(nil, 1, "False", "request 17 failed", "took 3 ms")
	second := pass(first.Conditions, 1, "False", "request 42 failed", "took 9 ms")
	if second.Changed || !identical(second.Conditions, first.Conditions) {
		t.Errorf("numbers alone made a difference: %v", briefs(second.Conditions))
	}
	other := pass(first.Conditions, 1, "False", "request 42 refused", "took 3 ms")
	if got := get(t, other.Conditions, "A").Message; got != "request 42 refused" {
		t.Errorf("another text was not stored: %q", got)
	}
	if later := pass(first.Conditions, 2, "False", "request 42 failed", "took 9 ms"); get(t, later.Conditions, "A").Message != "request 17 failed" {
		t.Error("a new generation alone must not let the number through")
	}
	if flipped := pass(first.Conditions, 1, "Unknown", "request 42 failed", ""); get(t, flipped.Conditions, "A").Message != "request 42 failed" {
		t.Error("a new verdict must not carry the numbers of the old one")
	}
}

func TestTextLimits(t *testing.T) {
	t.Parallel()
	s := conditions.MustNew("Ready", conditions.Type{Name: "A"}, conditions.Type{Name: "B", Needs: []string{"A"}})
	tests := map[string]struct {
		reason          string
		giveR, giveM    string
		wantR           string
		wantEnd         string
		wantBytesAtMost int
	}{
		"at the limit":      {"32768 bytes fit", "R", strings.Repeat("x", 32768), "R", "xxx", 32768},
		"beyond":            {"cut, with the number of bytes that are missing", "R", strings.Repeat("x", 40000), "R", "… (+7270 more bytes)", 32768},
		"runes":             {"bytes are limited, runes are not split", "R", strings.Repeat("日", 20000), "R", "more bytes)", 32768},
		"cut twice":         {"what was missing before is missing still", "R", strings.Repeat("x", 33000) + "… (+100 more bytes)", "R", "… (+370 more bytes)", 32768},
		"not UTF-8":         {"would come back as U+FFFD and differ for ever", "R", "a\xffb", "R", "a\uFFFDb", 10},
		"illegal reason":    {"mended", "Reason @ Kind/Name", "", "Reason___Kind_Name", "", 0},
		"digit first":       {"a reason starts with a letter", "404", "", "R404", "", 0},
		"colon last":        {"and does not end with one", "Why:", "", "Why", "", 0},
		"no reason":         {"required", "", "", "Unspecified", "", 0},
		"long reason":       {"1024 bytes, with the number of bytes that are missing", strings.Repeat("a", 2000), "", strings.Repeat("a", 998) + "_1002_more", "", 0},
		"non-ASCII reason":  {"one underscore for each rune", "日本", "", "R__", "", 0},
		"nothing but noise": {"still a reason", "::", "", "R", "", 0},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := s.Begin(nil, 1, nil)
			p.False("A", tc.giveR, tc.giveM)
			p.False("B", tc.giveR, tc.giveM)
			r := done(t, p, epoch)
			c := get(t, r.Conditions, "A")
			if c.Reason != tc.wantR || !strings.HasSuffix(c.Message, tc.wantEnd) || len(c.Message) > tc.wantBytesAtMost {
				t.Errorf("%s:\nreason  %.1100q\nmessage %d bytes, ends in %q", tc.reason, c.Reason, len(c.Message), c.Message[max(0, len(c.Message)-30):])
			}
			checkLawsOf(t, s, r.Conditions)
		})
	}
}
