// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package prog

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
)

var now = time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)

// digests of three generations, and of an object that is not there yet.
var digests = []string{"", strings.Repeat("a", 64), strings.Repeat("b", 64), strings.Repeat("c", 64), strings.Repeat("d", 64)}

const foreign = ebpf.ProgramID(99)

func gen(n uint64) version {
	return version{gen: n, digest: digests[n], program: "count", id: ebpf.ProgramID(10 + n)}
}

// keyOf is the release of the n-th digest, "" for none.
func keyOf(n int) string {
	if n == 0 {
		return ""
	}
	return key(digests[n], "count")
}

func TestDecide(t *testing.T) {
	t.Parallel()
	both := []version{gen(1), gen(2)}
	for name, tt := range map[string]struct {
		reason  string
		seen    seen
		release int
		again   bool
		want    string
	}{
		"empty":        {"a new slot", seen{target: true}, 1, false, "Install: nothing is in force"},
		"nothing":      {"nobody wants anything", seen{target: true}, 0, false, "Nothing: nothing is in force, and nothing is wanted"},
		"no interface": {"it may come", seen{}, 1, false, "Await: the target is not there"},
		"same":         {"converged", seen{versions: both[:1], inForce: 11, target: true}, 1, false, "Nothing: it is in force"},
		"other":        {"an upgrade", seen{versions: both[:1], inForce: 11, target: true}, 2, false, "Upgrade: another program is in force"},
		"not swapped": {"killed after the new one was pinned", seen{versions: both, inForce: 11, target: true, journal: journal{From: 1, To: 2}}, 0, false,
			"Nothing: it is in force; removes v2-" + digests[2]},
		"swapped": {"killed right after the swap", seen{versions: both, inForce: 12, target: true, journal: journal{From: 1, To: 2}}, 0, false,
			"Finish: a swap to this version was cut off"},
		"swapped back": {"killed right after the swap back", seen{versions: both, inForce: 11, target: true, journal: journal{From: 2, To: 1, Current: 2, Previous: 1}}, 0, false,
			"Finish: a swap to this version was cut off"},
		"not swapped back": {"the rollback is asked for again, or not", seen{versions: both, inForce: 12, target: true,
			journal: journal{From: 2, To: 1, Current: 2, Previous: 1, Until: now.Add(1)}}, 2, false, "Nothing: it is in force"},
		"draining": {"one second left", seen{versions: both, inForce: 12, target: true, journal: journal{Current: 2, Previous: 1, Until: now.Add(time.Second)}}, 2, false,
			"Nothing: it is in force"},
		"drained": {"the window is exclusive", seen{versions: both, inForce: 12, target: true, journal: journal{Current: 2, Previous: 1, Until: now}}, 2, false,
			"Retire: the drain window is over; removes v1-" + digests[1]},
		"foreign": {"somebody swapped behind our back", seen{versions: both, inForce: foreign, target: true}, 2, false,
			"Refuse: program 99 is in force, and no version of this slot"},
		"failed": {"no swapping back and forth", seen{versions: both[:1], inForce: 11, target: true, journal: journal{Current: 1, Failed: keyOf(2), Reason: "no hits"}}, 2, false,
			"Refuse: it was rolled back before: no hits"},
		"failed, again": {"on request", seen{versions: both[:1], inForce: 11, target: true, journal: journal{Current: 1, Failed: keyOf(2)}}, 2, true,
			"Upgrade: another program is in force"},
		"gone":           {"the interface was removed", seen{versions: both[:1], inForce: 11, detached: true}, 1, false, "Await: the target is not there"},
		"back":           {"and made again", seen{versions: both[:1], inForce: 11, detached: true, target: true}, 1, false, "Reattach: the target has come back"},
		"back and other": {"one step", seen{versions: both[:1], inForce: 11, detached: true, target: true}, 2, false, "Upgrade: another program is in force"},
		"lost journal": {"what is in force stays, the rest is unknown", seen{versions: both, inForce: 12, target: true}, 2, false,
			"Nothing: it is in force; removes v1-" + digests[1]},
		"half loaded": {"killed while loading", seen{versions: []version{gen(1), {gen: 2, digest: digests[2]}}, inForce: 11, target: true}, 1, false,
			"Nothing: it is in force; removes v2-" + digests[2]},
		"other program": {"of the same object", seen{versions: []version{{gen: 1, digest: digests[1], program: "drop", id: 11}}, inForce: 11, target: true}, 1, false,
			"Upgrade: another program is in force"},
		"back, nobody asks": {"what was in force is to be", seen{versions: both[:1], inForce: 11, detached: true, target: true}, 0, false, "Reattach: the target has come back"},
		"gap": {"killed between detaching the old one and attaching the new one", seen{versions: both, target: true, journal: journal{From: 1, To: 2, Current: 1}}, 0, false,
			"Reattach: it was in force, and nothing holds it at the hook any more; removes v2-" + digests[2]},
		"gap, back": {"the same on the way back", seen{versions: both, target: true, journal: journal{From: 2, To: 1, Current: 2, Previous: 1}}, 2, false,
			"Reattach: it was in force, and nothing holds it at the hook any more"},
		"gap, other": {"its counters are not thrown away", seen{versions: both, target: true, journal: journal{From: 1, To: 2, Current: 1}}, 3, false,
			"Install: nothing is in force; the maps of the last one are kept; removes v2-" + digests[2]},
		"gap, gone": {"nowhere to attach it", seen{versions: both[:1], journal: journal{Current: 1}}, 1, false, "Await: the target is not there"},
		"no link":   {"killed before the first link was pinned", seen{versions: both[:1], target: true}, 1, false, "Install: nothing is in force; removes v1-" + digests[1]},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := decide(tt.seen, keyOf(tt.release), tt.again, now).String(); got != tt.want {
				t.Errorf("%s:\n got %s\nwant %s", tt.reason, got, tt.want)
			}
		})
	}
}

// violation holds a plan to what must be true of every plan, whatever was seen.
func violation(s seen, want string, again bool, p Plan) string {
	cur, ours := s.current()
	was, fallen := s.version(s.journal.Current)
	fallen = fallen && s.inForce == 0
	prev, kept := s.version(s.journal.Previous)
	removed := func(v version) bool { return slices.Contains(p.Remove, v.String()) }
	_, from := s.version(s.journal.From)
	_, to := s.version(s.journal.To)
	swapped := ours && to && s.journal.To == cur.gen
	for _, name := range p.Remove {
		if !slices.ContainsFunc(s.versions, func(v version) bool { return v.String() == name }) {
			return "removes what is not there"
		}
	}
	switch {
	case ours && removed(cur):
		return "removes what is in force"
	case s.inForce != 0 && !ours && (p.Verb != Refuse || len(p.Remove) > 0):
		return "touches a slot that somebody else has taken"
	case swapped && p.Verb != Finish:
		return "forgets a swap that has happened"
	case !swapped && p.Verb == Finish:
		return "finishes a swap that has not happened"
	case swapped && from && removed(version{gen: s.journal.From, digest: digests[s.journal.From]}):
		return "removes the version that the rest of the swap needs"
	case p.Verb == Install && s.inForce != 0:
		return "installs next to a program"
	case fallen && removed(was):
		return "throws the maps of the last program away"
	case kept && removed(prev) && !swapped && (fallen || ours && s.journal.Current == cur.gen) && s.journal.Until.After(now):
		return "takes the way back before the window is over"
	case kept && !removed(prev) && ours && !swapped && prev.gen != cur.gen && s.journal.Current == cur.gen && !s.journal.Until.After(now):
		return "keeps the version before for ever"
	case (p.Verb == Upgrade || p.Verb == Install) && (want == "" || !again && want == s.journal.Failed):
		return "puts in force what nobody wants, or what failed"
	case p.Verb == Upgrade && !ours || p.Verb == Reattach && !ours && !fallen:
		return "upgrades nothing"
	case p.Verb == Upgrade && want == cur.key():
		return "replaces a program by itself"
	case (p.Verb == Nothing || p.Verb == Retire || p.Verb == Reattach) && ours && want != "" && want != cur.key():
		return "leaves another program in force than the one that is wanted"
	case (p.Verb == Nothing || p.Verb == Retire) && ours && (s.detached || s.moved):
		return "leaves the program detached"
	case p.Verb == Nothing && !ours && (fallen || want != ""):
		return "leaves nothing in force"
	case p.Verb == Reattach && ours && !(s.detached || s.moved):
		return "attaches a second time"
	case !s.target && (p.Verb == Install || p.Verb == Reattach):
		return "attaches to nothing"
	case s.target && p.Verb == Await:
		return "waits for what is there"
	case p.Verb == Refuse && ours && (want == "" || again || want != s.journal.Failed):
		return "refuses for no reason"
	}
	// After the steps of this plan, nothing but what is in force and what it can be rolled back to is there.
	left := 0
	for _, v := range s.versions {
		if !removed(v) {
			left++
		}
	}
	if p.Verb != Refuse && left > 2 {
		return "leaks versions"
	}
	return ""
}

// explore visits every state of three generations, or each step-th, and returns how many there are and the first violation.
func explore(step int, plan func(seen, string, bool) Plan) (states int, bad string) {
	for set := range 8 {
		var versions []version
		for n := uint64(1); n <= 3; n++ {
			if set&(1<<(n-1)) != 0 {
				versions = append(versions, gen(n))
			}
		}
		for _, inForce := range []ebpf.ProgramID{0, 11, 12, 13, foreign} {
			for flags := range 8 {
				s := seen{versions: versions, inForce: inForce, detached: flags&1 != 0, moved: flags&2 != 0, target: flags&4 != 0}
				for n := 0; n < 4*4*4*4; n += step {
					s.journal = journal{From: uint64(n % 4), To: uint64(n / 4 % 4), Current: uint64(n / 16 % 4), Previous: uint64(n / 64 % 4)}
					for _, until := range []time.Time{{}, now.Add(time.Hour)} {
						s.journal.Until = until
						for _, r := range []struct {
							want, failed string
							again        bool
						}{{}, {want: keyOf(1)}, {want: key(digests[1], "drop")}, {want: keyOf(3)}, {want: keyOf(4)}, {keyOf(4), keyOf(4), false}, {keyOf(4), keyOf(4), true}} {
							s.journal.Failed = r.failed
							states++
							if v := violation(s, r.want, r.again, plan(s, r.want, r.again)); v != "" {
								return states, fmt.Sprintf("%s: %+v, wanted %.4s, again %v", v, s, r.want, r.again)
							}
						}
					}
				}
			}
		}
	}
	return states, ""
}

func TestEveryStateIsRecovered(t *testing.T) {
	t.Parallel()
	step := 1
	if testing.Short() {
		step = 17 // nothing here runs at the same time
	}
	states, bad := explore(step, func(s seen, want string, again bool) Plan { return decide(s, want, again, now) })
	if bad != "" {
		t.Error(bad)
	}
	t.Logf("%d states", states)

	// The exploration can fail: each of these mistakes is found.
	for name, mutant := range map[string]func(s seen, want string, p Plan) Plan{
		"keeps everything": func(_ seen, _ string, p Plan) Plan { p.Remove = nil; return p },
		"removes all others": func(s seen, _ string, p Plan) Plan {
			p.Remove = nil
			for _, v := range s.versions {
				if cur, _ := s.current(); v.gen != cur.gen {
					p.Remove = append(p.Remove, v.String())
				}
			}
			return p
		},
		"removes the current one": func(s seen, _ string, p Plan) Plan {
			if cur, ok := s.current(); ok {
				p.Remove = append(p.Remove, cur.String())
			}
			return p
		},
		"trusts the journal alone": func(s seen, _ string, p Plan) Plan {
			if s.journal.From != 0 && s.journal.To != 0 {
				p.Verb = Finish
			}
			return p
		},
		"forgets the journal": func(s seen, want string, p Plan) Plan {
			if p.Verb == Finish {
				p.Verb = Nothing
			}
			return p
		},
		"swaps back and forth": func(s seen, want string, p Plan) Plan {
			if p.Verb == Refuse && want == s.journal.Failed {
				p.Verb = Upgrade
			}
			return p
		},
		"fights": func(_ seen, _ string, p Plan) Plan {
			if p.Verb == Refuse {
				p.Verb = Upgrade
			}
			return p
		},
		"drops what has fallen": func(s seen, _ string, p Plan) Plan {
			if v, ok := s.fallen(); ok {
				p.Remove = append(p.Remove, v.String())
			}
			return p
		},
		"leaves a gap open": func(s seen, _ string, p Plan) Plan {
			if _, ok := s.fallen(); ok && p.Verb == Reattach {
				p.Verb = Nothing
			}
			return p
		},
		"tells programs apart by their object": func(s seen, want string, p Plan) Plan {
			if cur, ok := s.current(); ok && p.Verb == Upgrade && strings.HasPrefix(want, cur.digest) {
				p.Verb = Nothing
			}
			return p
		},
		"drains for ever": func(s seen, _ string, p Plan) Plan {
			if p.Verb == Retire {
				p.Verb, p.Remove = Nothing, nil
			}
			return p
		},
		"drains not at all": func(s seen, _ string, p Plan) Plan {
			if v, ok := s.version(s.journal.Previous); ok && p.Verb == Nothing && !slices.Contains(p.Remove, v.String()) {
				p.Remove = append(p.Remove, v.String())
			}
			return p
		},
		"finishes without the version before": func(s seen, _ string, p Plan) Plan {
			if v, ok := s.version(s.journal.From); ok && p.Verb == Finish {
				p.Remove = append(p.Remove, v.String())
			}
			return p
		},
		"attaches where nothing is": func(s seen, want string, p Plan) Plan {
			if p.Verb == Await && want != "" {
				p.Verb = Install
			}
			return p
		},
		"waits for ever": func(s seen, _ string, p Plan) Plan {
			if p.Verb == Install {
				p.Verb = Await
			}
			return p
		},
		"tries what failed": func(s seen, want string, p Plan) Plan {
			if p.Verb == Refuse && s.inForce == 0 {
				p.Verb = Install
			}
			return p
		},
		"never reattaches": func(_ seen, _ string, p Plan) Plan {
			if p.Verb == Reattach {
				p.Verb = Nothing
			}
			return p
		},
	} {
		if _, bad := explore(1, func(s seen, want string, again bool) Plan { return mutant(s, want, decide(s, want, again, now)) }); bad == "" {
			t.Errorf("the mutant that %s was not noticed", name)
		}
	}
}

func TestVersionNames(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		gen(1).String():                       true,
		"v1-" + digests[1][:63]:               false,
		"v01-" + digests[1]:                   false,
		"1-" + digests[1]:                     false,
		"v1-../" + digests[1]:                 false,
		"next":                                false,
		"v-1-" + digests[1]:                   false,
		"v18446744073709551616-" + digests[1]: false,
	} {
		if _, ok := parseVersion(name); ok != want {
			t.Errorf("parseVersion(%q) = %v", name, ok)
		}
	}
}

func TestJournal(t *testing.T) {
	t.Parallel()
	j := journal{Holder: "me", From: 1, To: 2, Current: 1, Previous: 3, Until: now, Since: now, Failed: digests[1], Reason: "a reason"}
	if got := parseJournal(j.encode()); got != j {
		t.Errorf("got %+v, want %+v", got, j)
	}
	j.Reason, j.Holder = strings.Repeat("é\x00", 5000), strings.Repeat("x", 5000)
	if n := len(j.encode()); n > 4000 {
		t.Errorf("%d bytes do not fit into a symbolic link", n)
	}
	if got := parseJournal(j.encode()); got.To != 2 {
		t.Errorf("a long reason lost the rest: %+v", got)
	}
	if got := parseJournal("not a journal"); got != (journal{}) {
		t.Errorf("got %+v", got)
	}
}

func FuzzJournal(f *testing.F) {
	f.Add(journal{From: 1, To: 2}.encode())
	f.Add("{")
	f.Fuzz(func(t *testing.T, text string) {
		j := parseJournal(text)
		if n := len(j.encode()); n > 4000 {
			t.Errorf("%q became %d bytes", text, n)
		}
	})
}
