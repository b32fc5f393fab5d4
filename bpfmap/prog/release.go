// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package prog

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/cilium/ebpf"
)

// Release is what should run at a hook.
type Release struct {
	Object  []byte          // the ELF file, see [ReadObject]
	Program string          // name of the program in it
	Verify  Verify          // required; see [Unsigned]
	Maps    map[string]Keep // how maps of the program before are taken over; see [Keep] for the default
	Probes  []Probe         // run on the new program before it sees traffic
	// Health says whether the new program does its work: called right after the swap and by every Sync until the drain
	// window is over. An error rolls back. Nil: it does. The slot is locked meanwhile: of its methods only Plan, Map, Pin
	// and Guard may be called.
	Health func(context.Context, Running) error
	// Again tries a release that was rolled back before. Without it that is [ErrFailedBefore], so that a reconciler does
	// not swap back and forth.
	Again bool
}

// Running is a program in force.
type Running struct {
	Program *ebpf.Program        // open until the call returns
	Maps    map[string]*ebpf.Map // by their pins, open until the call returns
	Digest  string               // SHA-256 of the object
	Since   time.Time            // when it was put in force
}

// Probe is a golden packet: an input, and what the program must answer. It is put to an instance that has maps of its own,
// as the object declares them, so it leaves no trace. For hooks of packets; the kernel runs no tracepoints on request.
type Probe struct {
	Name   string // for errors
	Data   []byte // the packet; hooks of packets need at least 14 bytes
	Return uint32 // what the program must return
	Out    []byte // what the packet must be afterwards; nil: whatever
}

// Keep is how one map of the program before is taken over by the new one.
//
// A [Slot.Rollback] adds to the old map what the new one has counted, for [Counters]; from the other ones it returns to
// the old map as it was left.
//
// The default is [Same] for ordinary maps and [Fresh] for those that belong to the code: the variables of the program
// (.data, .bss, .rodata), and the programs that it jumps to.
type Keep struct {
	how   keepKind
	words []Word
	merge func(key, before, after, now []byte) []byte
}

type keepKind uint8

const (
	keepDefault keepKind = iota
	keepSame
	keepFresh
	keepCounters
	keepMerged
)

// Same makes both programs use one map, which stays filled as it is. A new declaration that differs from it is [ErrMap].
func Same() Keep { return Keep{how: keepSame} }

// Fresh gives the new program a map of its own, filled as the object says. What the old one holds is dropped with it.
func Fresh() Keep { return Keep{how: keepFresh} }

// Word is a counter of 64 bits in the values of two maps.
type Word struct {
	From, To uint32 // offsets in bytes in the old and in the new value
}

// Counters gives the new program a map of its own that goes on counting where the old one stopped, exactly: what the old
// program still counts after the first copy is added after the swap, by a program in the kernel, atomically against the
// new program's own additions. The datapath must add atomically (__sync_fetch_and_add) unless the map is per-CPU; if it is, this
// process must be allowed to run on every CPU, and what a CPU counted that is off line is left behind. Keys are unchanged; without words every 8 bytes of the value are a
// counter at the same place. Hash tables and arrays. What the old program removes after it was copied stays in the new map;
// keys that have no room there after the swap are counted in an [ErrMap], once, and the swap stands. Until the drain window
// is over the kernel holds two more maps, which can get as large as the old and the new one together.
func Counters(words ...Word) Keep { return Keep{how: keepCounters, words: words} }

// Merged gives the new program a map of its own and fills it by merge, for values that are no counters. It is called for
// every key with its old value as after, and before and now nil; then, for keys that the old program changed until the
// swap, with before as seen at the first call, after as it was left, and now as in the new map. Nil leaves the new map as
// it is. A key that the new program writes between now being read and the answer being written loses what it wrote; only
// keys that the old program changed after the first call are at risk. After a crash merge may be called again for the same
// key, by a Sync that has the function or not at all by a Rollback. What is said about removed keys and room at [Counters]
// holds here, too. Values have the sizes of their maps. Hash tables and arrays, not per-CPU.
func Merged(merge func(key, before, after, now []byte) []byte) Keep {
	return Keep{how: keepMerged, merge: merge}
}

// Phase is where an upgrade stands.
type Phase string

// The phases, in order. The first three are passed within one call: see Result.Reached.
const (
	PhaseVerified   Phase = "Verified"   // the object may be used here
	PhaseLoaded     Phase = "Loaded"     // it is in the kernel, and nowhere in force
	PhaseProbed     Phase = "Probed"     // the golden packets were answered well
	PhaseActive     Phase = "Active"     // it is in force, and nothing else is kept
	PhaseDraining   Phase = "Draining"   // it is in force, and the one before is kept
	PhaseRolledBack Phase = "RolledBack" // the one before is in force again
	PhaseWaiting    Phase = "Waiting"    // the target is gone; it will be attached when it returns
	PhaseEmpty      Phase = "Empty"      // nothing is in force
)

// Result is where a slot stands after a call.
type Result struct {
	Phase Phase // where the slot stands
	// Reached is how far the release of this call got: PhaseVerified, PhaseLoaded, PhaseProbed, PhaseActive or
	// PhaseRolledBack; "" when it was not verified, or there was none.
	Reached      Phase
	Digest       string         // of the object in force, "" when there is none
	Program      ebpf.ProgramID // in force
	Previous     string         // digest of the object that is kept, while draining
	Changed      bool           // this call put another program in force, or attached it again
	Verdict      Verdict        // of a program that was loaded by this call
	Plan         Plan           // what was decided
	Switch       time.Duration  // from the first to the last system call of the activation, with its pins
	RequeueAfter time.Duration  // when Sync has something to do; 0: nothing is due
}

// Event is what a [Slot] is about to do. Every change in the kernel has one.
type Event struct {
	Slot   string // name of the slot
	Step   Step   // kind of change
	Detail string // pin, digest or map
}

// Step is one kind of change.
type Step string

// The steps, in the order of an upgrade.
const (
	StepLock    Step = "lock"    // hold the slot
	StepUndo    Step = "undo"    // remove what a crash left before the swap
	StepFinish  Step = "finish"  // go on where a crash left off after the swap
	StepLoad    Step = "load"    // maps and program into the kernel
	StepProbe   Step = "probe"   // run golden packets
	StepPin     Step = "pin"     // one map or program of the new version, or all of it under its name
	StepCopy    Step = "copy"    // first pass of a migration
	StepRecord  Step = "record"  // write down what is about to happen, or has
	StepAttach  Step = "attach"  // make the link
	StepSwap    Step = "swap"    // the one call that changes what is in force
	StepMerge   Step = "merge"   // second pass of a migration
	StepPublish Step = "publish" // exchange the public pin of a map
	StepHealth  Step = "health"  // ask the health function
	StepRetire  Step = "retire"  // remove a version, or a pin in it, that is no longer needed
)

// LogValue is the event as attributes.
func (e Event) LogValue() slog.Value {
	return slog.GroupValue(slog.String("slot", e.Slot), slog.String("step", string(e.Step)), slog.String("detail", e.Detail))
}

// String is one line.
func (e Event) String() string { return fmt.Sprintf("%s: %s %s", e.Slot, e.Step, e.Detail) }
