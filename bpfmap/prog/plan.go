// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package prog

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/cilium/ebpf"
)

// Verb is what a [Plan] decides for a slot.
type Verb string

// The verbs.
const (
	Install  Verb = "Install"  // nothing is in force: attach
	Upgrade  Verb = "Upgrade"  // another program is in force: swap
	Reattach Verb = "Reattach" // what was in force is not any more: its target came back, or a gap was cut off
	Await    Verb = "Await"    // the target is not there
	Finish   Verb = "Finish"   // a swap was cut off after it had happened: do the rest
	Retire   Verb = "Retire"   // the drain window is over: drop the one before
	Nothing  Verb = "Nothing"  // it is in force
	Refuse   Verb = "Refuse"   // somebody else's program is in force, or the release failed before
)

// Plan is what Sync would do for a slot, decided from the pins alone.
type Plan struct {
	Verb    Verb     // what is due
	Why     string   // one sentence
	Remove  []string // versions that go first: what a crash left, or what is over
	Current string   // digest of the object in force
}

// Empty reports whether nothing is due.
func (p Plan) Empty() bool { return p.Verb == Nothing && len(p.Remove) == 0 }

// String is the decision with its reason.
func (p Plan) String() string {
	s := string(p.Verb) + ": " + p.Why
	if len(p.Remove) > 0 {
		s += "; removes " + strings.Join(p.Remove, ", ")
	}
	return s
}

// version is one generation of a slot, named on disk by its generation and digest.
type version struct {
	gen     uint64
	digest  string
	program string         // its name in the object
	id      ebpf.ProgramID // 0: it has no program, so its loading was cut off
}

// key tells releases apart: one object may have several programs for a hook.
func key(digest, program string) string { return digest + " " + program }

func (v version) key() string { return key(v.digest, v.program) }

func (v version) String() string { return fmt.Sprintf("v%d-%s", v.gen, v.digest) }

// parseVersion reads the name of a version's folder.
func parseVersion(name string) (version, bool) {
	gen, digest, ok := strings.Cut(strings.TrimPrefix(name, "v"), "-")
	n, err := strconv.ParseUint(gen, 10, 64)
	v := version{gen: n, digest: digest}
	return v, ok && err == nil && len(digest) == 64 && v.String() == name
}

// seen is a slot as its pins show it.
type seen struct {
	versions []version      // by generation
	inForce  ebpf.ProgramID // by the link or the trampoline; 0: nothing
	detached bool           // there is a link whose target is gone
	moved    bool           // the target has another number than the link
	target   bool           // the target is there
	journal  journal
}

// current is the version in force, and whether there is one of ours.
func (s seen) current() (version, bool) {
	for _, v := range s.versions {
		if v.id == s.inForce && s.inForce != 0 {
			return v, true
		}
	}
	return version{}, false
}

// fallen is the version that was in force until something took the link away: a gap that was cut off, somebody who removed
// the pin. It still has its maps.
func (s seen) fallen() (version, bool) {
	if v, ok := s.version(s.journal.Current); ok && s.inForce == 0 && v.id != 0 {
		return v, true
	}
	return version{}, false
}

// last is the version whose maps the next one goes on with.
func (s seen) last() (version, bool) {
	if v, ok := s.current(); ok {
		return v, true
	}
	return s.fallen()
}

// version finds a generation.
func (s seen) version(gen uint64) (version, bool) {
	for _, v := range s.versions {
		if v.gen == gen && gen != 0 {
			return v, true
		}
	}
	return version{}, false
}

// decide is the whole of recovery and upgrade as one pure function. What is in force is what the kernel says; the journal
// only adds what pins cannot tell: since when, and what is not finished. What is wanted is a key, "" for whatever is there.
func decide(s seen, want string, again bool, now time.Time) Plan {
	cur, ours := s.current()
	if s.inForce != 0 && !ours {
		return Plan{Verb: Refuse, Why: fmt.Sprintf("program %d is in force, and no version of this slot", s.inForce)}
	}
	was, fallen := s.fallen()
	p := Plan{Current: cur.digest}
	keep := map[uint64]bool{cur.gen: ours, was.gen: fallen}
	unfinished := false
	j := s.journal
	_, from := s.version(j.From)
	_, to := s.version(j.To)
	switch {
	case ours && j.To == cur.gen && to: // the swap has happened
		keep[j.From], unfinished = from, true
	case j.Previous != 0 && (fallen || ours && j.Current == cur.gen):
		keep[j.Previous] = true
	}
	_, kept := s.version(j.Previous)
	drained := ours && kept && !unfinished && j.Current == cur.gen && !now.Before(j.Until)
	for _, v := range s.versions {
		if !keep[v.gen] || drained && v.gen != cur.gen {
			p.Remove = append(p.Remove, v.String())
		}
	}
	switch {
	case unfinished:
		p.Verb, p.Why = Finish, "a swap to this version was cut off"
	case ours && (s.detached || s.moved) && !s.target || !ours && !s.target:
		p.Verb, p.Why = Await, "the target is not there"
	case ours && (want == "" || want == cur.key()) && (s.detached || s.moved):
		p.Verb, p.Why = Reattach, "the target has come back"
	case ours && (want == "" || want == cur.key()):
		p.Verb, p.Why = Nothing, "it is in force"
		if drained {
			p.Verb, p.Why = Retire, "the drain window is over"
		}
	case fallen && (want == "" || want == was.key()):
		p.Verb, p.Why = Reattach, "it was in force, and nothing holds it at the hook any more"
	case want == "":
		p.Verb, p.Why = Nothing, "nothing is in force, and nothing is wanted"
	case want == j.Failed && !again:
		p.Verb, p.Why = Refuse, "it was rolled back before: "+j.Reason
	case ours:
		p.Verb, p.Why = Upgrade, "another program is in force"
	case fallen:
		p.Verb, p.Why = Install, "nothing is in force; the maps of the last one are kept"
	default:
		p.Verb, p.Why = Install, "nothing is in force"
	}
	return p
}
