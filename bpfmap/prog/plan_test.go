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
	return version{gen: n, digest: digests[n], id: ebpf.ProgramID(10 + n)}
}

func TestDecide(t *testing.T) {
	t.Parallel()
	both := []version{gen(1), gen(2)}
	for name, tt := range map[string]struct {
		reason string
		seen   seen
		digest string
		again  bool
		want   string
	}{
		"empty":        {"a new slot", seen{target: true}, digests[1], false, "Install: nothing is in force"},
		"nothing":      {"nobody wants anything", seen{target: true}, "", false, "Nothing: nothing is in force, and nothing is wanted"},
		"no interface": {"it may come", seen{}, digests[1], false, "Await: the target is not there"},
		"same":         {"converged", seen{versions: both[:1], inForce: 11, target: true}, digests[1], false, "Nothing: it is in force"},
		"other":        {"an upgrade", seen{versions: both[:1], inForce: 11, target: true}, digests[2], false, "Upgrade: another object is in force"},
		"not swapped": {"killed after the new one was pinned", seen{versions: both, inForce: 11, target: true, journal: journal{From: 1, To: 2}}, "", false,
			"Nothing: it is in force; removes v2-" + digests[2]},
		"swapped": {"killed right after the swap", seen{versions: both, inForce: 12, target: true, journal: journal{From: 1, To: 2}}, "", false,
			"Finish: a swap to this version was cut off"},
		"swapped back": {"killed right after the swap back", seen{versions: both, inForce: 11, target: true, journal: journal{From: 2, To: 1, Current: 2, Previous: 1}}, "", false,
			"Finish: a swap to this version was cut off"},
		"not swapped back": {"the rollback is asked for again, or not", seen{versions: both, inForce: 12, target: true,
			journal: journal{From: 2, To: 1, Current: 2, Previous: 1, Until: now.Add(1)}}, digests[2], false, "Nothing: it is in force"},
		"draining": {"one second left", seen{versions: both, inForce: 12, target: true, journal: journal{Current: 2, Previous: 1, Until: now.Add(time.Second)}}, digests[2], false,
			"Nothing: it is in force"},
		"drained": {"the window is exclusive", seen{versions: both, inForce: 12, target: true, journal: journal{Current: 2, Previous: 1, Until: now}}, digests[2], false,
			"Retire: the drain window is over; removes v1-" + digests[1]},
		"foreign": {"somebody swapped behind our back", seen{versions: both, inForce: foreign, target: true}, digests[2], false,
			"Refuse: program 99 is in force, and no version of this slot"},
		"failed": {"no swapping back and forth", seen{versions: both[:1], inForce: 11, target: true, journal: journal{Current: 1, Failed: digests[2], Reason: "no hits"}}, digests[2], false,
			"Refuse: the object was rolled back before: no hits"},
		"failed, again": {"on request", seen{versions: both[:1], inForce: 11, target: true, journal: journal{Current: 1, Failed: digests[2]}}, digests[2], true,
			"Upgrade: another object is in force"},
		"gone":           {"the interface was removed", seen{versions: both[:1], inForce: 11, detached: true}, digests[1], false, "Await: the target is not there"},
		"back":           {"and made again", seen{versions: both[:1], inForce: 11, detached: true, target: true}, digests[1], false, "Reattach: the target has come back"},
		"back and other": {"one step", seen{versions: both[:1], inForce: 11, detached: true, target: true}, digests[2], false, "Upgrade: another object is in force"},
		"lost journal": {"what is in force stays, the rest is unknown", seen{versions: both, inForce: 12, target: true}, digests[2], false,
			"Nothing: it is in force; removes v1-" + digests[1]},
		"half loaded": {"killed while loading", seen{versions: []version{gen(1), {gen: 2, digest: digests[2]}}, inForce: 11, target: true}, digests[1], false,
			"Nothing: it is in force; removes v2-" + digests[2]},
		"no link": {"killed before the first link was pinned", seen{versions: both[:1], target: true}, digests[1], false, "Install: nothing is in force; removes v1-" + digests[1]},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := decide(tt.seen, tt.digest, tt.again, now).String(); got != tt.want {
				t.Errorf("%s:\n got %s\nwant %s", tt.reason, got, tt.want)
			}
		})
	}
}

// violation holds a plan to what must be true of every plan, whatever was seen.
func violation(s seen, digest string, again bool, p Plan) string {
	cur, ours := s.current()
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
	case (p.Verb == Upgrade || p.Verb == Install) && (digest == "" || !again && digest == s.journal.Failed):
		return "puts in force what nobody wants, or what failed"
	case (p.Verb == Upgrade || p.Verb == Reattach) && !ours:
		return "upgrades nothing"
	case p.Verb == Nothing && ours && digest != "" && digest != cur.digest:
		return "does nothing while something else is wanted"
	case p.Verb == Nothing && (s.detached || s.moved) && ours && digest == cur.digest:
		return "leaves the program detached"
	case p.Verb == Reattach && !(s.detached || s.moved):
		return "attaches a second time"
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
						for _, want := range []struct {
							digest, failed string
							again          bool
						}{{}, {digest: digests[1]}, {digest: digests[3]}, {digest: digests[4]}, {digests[4], digests[4], false}, {digests[4], digests[4], true}} {
							s.journal.Failed = want.failed
							states++
							if v := violation(s, want.digest, want.again, plan(s, want.digest, want.again)); v != "" {
								return states, fmt.Sprintf("%s: %+v, wanted %.4s, again %v", v, s, want.digest, want.again)
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
	states, bad := explore(step, func(s seen, digest string, again bool) Plan { return decide(s, digest, again, now) })
	if bad != "" {
		t.Error(bad)
	}
	t.Logf("%d states", states)

	// The exploration can fail: each of these mistakes is found.
	for name, mutant := range map[string]func(s seen, digest string, p Plan) Plan{
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
		"forgets the journal": func(s seen, digest string, p Plan) Plan {
			if p.Verb == Finish {
				p.Verb = Nothing
			}
			return p
		},
		"swaps back and forth": func(s seen, digest string, p Plan) Plan {
			if p.Verb == Refuse && digest == s.journal.Failed {
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
		"never reattaches": func(_ seen, _ string, p Plan) Plan {
			if p.Verb == Reattach {
				p.Verb = Nothing
			}
			return p
		},
	} {
		if _, bad := explore(1, func(s seen, digest string, again bool) Plan { return mutant(s, digest, decide(s, digest, again, now)) }); bad == "" {
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
