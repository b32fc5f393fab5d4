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
	Upgrade  Verb = "Upgrade"  // another object is in force: swap
	Reattach Verb = "Reattach" // the target went away and has come back, maybe under another number
	Await    Verb = "Await"    // the target is not there
	Finish   Verb = "Finish"   // a swap was cut off after it had happened: do the rest
	Retire   Verb = "Retire"   // the drain window is over: drop the one before
	Nothing  Verb = "Nothing"  // it is in force
	Refuse   Verb = "Refuse"   // somebody else's program is in force, or the object failed before
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
	gen    uint64
	digest string
	id     ebpf.ProgramID // 0: it has no program, so its loading was cut off
}

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
// only adds what pins cannot tell: since when, and what is not finished.
func decide(s seen, digest string, again bool, now time.Time) Plan {
	cur, ours := s.current()
	if s.inForce != 0 && !ours {
		return Plan{Verb: Refuse, Why: fmt.Sprintf("program %d is in force, and no version of this slot", s.inForce)}
	}
	p := Plan{Current: cur.digest}
	keep := map[uint64]bool{cur.gen: ours}
	unfinished := false
	if ours {
		j := s.journal
		_, from := s.version(j.From)
		_, to := s.version(j.To)
		switch {
		case j.To == cur.gen && to: // the swap has happened
			keep[j.From], unfinished = from, true
		case j.Previous != 0 && j.Current == cur.gen:
			keep[j.Previous] = true
		}
	}
	_, kept := s.version(s.journal.Previous)
	drained := ours && kept && !unfinished && s.journal.Current == cur.gen && !now.Before(s.journal.Until)
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
	case ours && digest == cur.digest && (s.detached || s.moved):
		p.Verb, p.Why = Reattach, "the target has come back"
	case ours && (digest == "" || digest == cur.digest):
		p.Verb, p.Why = Nothing, "it is in force"
		if drained {
			p.Verb, p.Why = Retire, "the drain window is over"
		}
	case digest == "":
		p.Verb, p.Why = Nothing, "nothing is in force, and nothing is wanted"
	case digest == s.journal.Failed && !again:
		p.Verb, p.Why = Refuse, "the object was rolled back before: "+s.journal.Reason
	case ours:
		p.Verb, p.Why = Upgrade, "another object is in force"
	default:
		p.Verb, p.Why = Install, "nothing is in force"
	}
	return p
}
