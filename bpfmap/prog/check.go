// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package prog

import (
	"iter"

	"github.com/cilium/ebpf"
)

// Support says whether a kind of hook can be used here.
type Support struct {
	Kind     Kind   // which one
	Loads    bool   // the kernel takes programs of this kind from this process
	Attaches bool   // and there is something to attach them to
	Here     bool   // this package has a constructor for it
	Slot     bool   // and can replace them exactly, in a [Slot]
	Why      string // one sentence for what is missing, "" when nothing is
}

// String is one line.
func (s Support) String() string {
	if s.Why == "" {
		return string(s.Kind) + ": yes"
	}
	return string(s.Kind) + ": " + s.Why
}

// Check tells for every kind whether this process can use it on this kernel, and why not. It loads a program of two
// instructions for each and looks for what it would be attached to; nothing is attached. About 1 ms.
func Check() []Support {
	var out []Support
	for _, k := range Kinds() {
		s := Support{Kind: k}
		switch k {
		case KindXDP, KindTCX, KindCgroup, KindTracepoint, KindRawTracepoint:
			s.Here, s.Slot = true, true
		case KindSocketFilter:
			s.Here = true
		}
		s.probe()
		if s.Why == "" && !s.Here {
			s.Why = "this package has no constructor for it: attach it with cilium/ebpf's link package"
		}
		out = append(out, s)
	}
	return out
}

// Occupant is a slot that was found under a root, or a link outside of it.
type Occupant struct {
	Slot     string         // name of the folder, "" for a link that is no slot's
	Hook     string         // as far as the link says: "tcx/ingress ifindex 3", "tracepoint sched_switch", …
	Program  ebpf.ProgramID // in force, 0 for none
	Name     string         // of the program, "" where that needs CAP_SYS_ADMIN
	Digest   string         // of its object, "" when it is none of the slot's versions
	Previous string         // digest of the version that is kept
	Maps     []string       // names of its maps; ids where the names need CAP_SYS_ADMIN
	Holder   string         // process that changed the slot last; of other links the user that loaded the program
	Problem  string         // what is wrong, "" for nothing: "target is gone", "another program is in force", …
}

// Inventory lists what is attached: every slot under root, then every other link of this machine. What is attached by
// others can only be listed with CAP_SYS_ADMIN; without it the last element is an error that says so, after the slots.
// What was attached without a link, as tc filters and older tools do, is not in it.
func Inventory(root string) iter.Seq2[Occupant, error] {
	return func(yield func(Occupant, error) bool) { inventory(root, yield) }
}

// Sweep lists the slots under root that are not among the names, which are those that something still wants: what a
// controller left that is gone or no longer knows them. It removes them, programs detached, only when remove is true.
// A slot that is locked is at work, and skipped. A missing root holds none.
func Sweep(root string, wanted []string, remove bool) iter.Seq2[Occupant, error] {
	return func(yield func(Occupant, error) bool) { sweep(root, wanted, remove, yield) }
}
