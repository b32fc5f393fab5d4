// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package prog

import (
	"fmt"
	"log/slog"
	"regexp"
	"strconv"
	"strings"
)

// Class is what a rejection is about, for counting and for advice. New kernels bring new texts: what is not recognised is
// [ClassOther], with the kernel's sentence in Reason as always.
type Class string

// The classes.
const (
	ClassPacket        Class = "packet access"    // beyond what was checked against data_end
	ClassMemory        Class = "memory access"    // through a pointer that may be null or out of bounds
	ClassStack         Class = "stack"            // outside the 512 bytes, or read before written
	ClassContext       Class = "context access"   // a field that this hook does not have
	ClassUninitialised Class = "uninitialised"    // a register that holds nothing
	ClassType          Class = "type"             // the wrong kind of value for a helper or a register
	ClassHelper        Class = "helper"           // unknown, or not for this type of program
	ClassReturn        Class = "return value"     // outside what the hook accepts
	ClassLoop          Class = "loop"             // not proven to end
	ClassUnreachable   Class = "unreachable"      // instructions that nothing jumps to, or a jump out of the program
	ClassComplexity    Class = "complexity"       // more than the verifier is willing to follow
	ClassReference     Class = "leaked reference" // taken and not given back
	ClassPrivilege     Class = "privilege"        // allowed only with more capabilities
	ClassOther         Class = "other"
)

// Verdict is what the kernel's verifier said about a program.
type Verdict struct {
	Accepted bool // the program was loaded

	// Of a rejection: the instruction that failed, where the log names one.
	Instruction int    // its number, -1 when unknown
	Opcode      string // as text: "r0 = *(u64 *)(r0 +64)"
	Source      string // line of the source that it comes from, "" without line information
	File        string // file and line of it: "count.c:21"
	Registers   string // what the verifier knew in front of it
	Reason      string // the kernel's own words
	Class       Class  // "" when accepted

	Processed  int // instructions that the verifier followed, over all branches
	Limit      int // how many it follows at most
	PeakStates int // states that it kept at once

	Log       string // the end of the raw log, at most 64 KiB
	Truncated bool   // the log was longer
}

// maxLog is how much of a log is kept. The end is what matters; the rest is megabytes of branches.
const maxLog = 64 << 10

// String is one line.
func (v Verdict) String() string {
	if v.Accepted {
		return fmt.Sprintf("accepted after %d of %d instructions", v.Processed, v.Limit)
	}
	s := v.Reason
	if v.Instruction >= 0 {
		s += fmt.Sprintf(", at instruction %d: %s", v.Instruction, v.Opcode)
	}
	if v.Source != "" {
		s += fmt.Sprintf(", from %q", v.Source)
		if v.File != "" {
			s += " in " + v.File
		}
	}
	return s
}

// LogValue is the verdict without the raw log.
func (v Verdict) LogValue() slog.Value {
	return slog.GroupValue(slog.Bool("accepted", v.Accepted), slog.String("class", string(v.Class)),
		slog.String("reason", v.Reason), slog.Int("instruction", v.Instruction), slog.String("opcode", v.Opcode),
		slog.String("source", v.Source), slog.Int("processed", v.Processed))
}

// VerifierError is an [ErrRejected] with everything the verifier said. It survives being wrapped.
type VerifierError struct {
	Verdict Verdict // Accepted is false
	Err     error   // the errno
}

// Error is the verdict in one line.
func (e *VerifierError) Error() string { return fmt.Sprintf("%v: %v", ErrRejected, e.Verdict) }

// Is matches ErrRejected.
func (e *VerifierError) Is(target error) bool { return target == ErrRejected }

// Unwrap is the errno.
func (e *VerifierError) Unwrap() error { return e.Err }

// The shapes of lines in a log. Registers are in a line of their own before the instruction, or, since Linux 6, behind a
// semicolon after it.
var logLine = struct{ insn, state, source, processed *regexp.Regexp }{
	insn:      regexp.MustCompile(`^\s*(\d+): \([0-9a-f]{2}\) (.*)$`),
	state:     regexp.MustCompile(`^\s*(?:\d+: |from \d+ to \d+: |frame\d+: |; )*((?:R\d+|fp)\S*=.*)$`),
	source:    regexp.MustCompile(`^; (.*?)(?: @ (\S+:\d+))?$`),
	processed: regexp.MustCompile(`^processed (\d+) insns \(limit (\d+)\).* peak_states (\d+)`),
}

func accepted(log string) Verdict {
	v := Verdict{Accepted: true, Instruction: -1}
	lines := strings.Split(log, "\n")
	for _, line := range lines {
		v.statistics(line)
	}
	v.keep(lines)
	return v
}

func (v *Verdict) statistics(line string) bool {
	m := logLine.processed.FindStringSubmatch(line)
	if m == nil {
		return false
	}
	v.Processed, v.Limit, v.PeakStates = atoi(m[1]), atoi(m[2]), atoi(m[3])
	return true
}

func atoi(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		return -1
	}
	return n
}

// keep stores the end of the log.
func (v *Verdict) keep(lines []string) {
	v.Log = strings.TrimSpace(strings.Join(lines, "\n"))
	if len(v.Log) > maxLog {
		v.Log, v.Truncated = v.Log[len(v.Log)-maxLog:], true
		if i := strings.IndexByte(v.Log, '\n'); i >= 0 {
			v.Log = v.Log[i+1:] // a line cut in half reads like another one
		}
	}
}

// rejectedBy reads a log from its end: what stands after the last instruction is the reason.
func rejectedBy(lines []string) Verdict {
	v := Verdict{Instruction: -1}
	v.keep(lines)
	var reason []string
	registers, source, file := "", "", ""
	for _, line := range lines {
		line = strings.TrimRight(line, " \t\r")
		switch m := logLine.insn.FindStringSubmatch(line); {
		case line == "" || v.statistics(line):
		case m != nil:
			text, behind, _ := strings.Cut(m[2], " ; ")
			v.Instruction, v.Opcode, v.Registers = atoi(m[1]), strings.TrimSpace(text), registers
			v.Source, v.File = source, file
			if s := logLine.state.FindStringSubmatch(strings.TrimSpace(behind)); s != nil {
				registers = strings.TrimSpace(s[1])
			}
			reason = nil
		case logLine.state.MatchString(line):
			registers = strings.TrimSpace(logLine.state.FindStringSubmatch(line)[1])
		case strings.HasPrefix(line, "; "):
			m := logLine.source.FindStringSubmatch(line)
			source, file = strings.TrimSpace(m[1]), m[2]
		default:
			reason = append(reason, strings.TrimSpace(line))
		}
	}
	v.reason(reason)
	return v
}

// reason joins the lines after the last instruction. New kernels write a block with names instead.
func (v *Verdict) reason(lines []string) {
	v.Class = ClassOther
	var plain []string
	for _, line := range lines {
		switch key, value, _ := strings.Cut(line, ": "); key {
		case "Reason":
			v.Reason = value
		case "Verification failed", "Suggestion", "At":
		default:
			if !strings.HasPrefix(line, "mark_precise") && !strings.HasPrefix(line, "verification time") &&
				!strings.HasPrefix(line, "stack depth") && !strings.HasPrefix(line, "func#") {
				plain = append(plain, line)
			}
		}
	}
	if v.Reason == "" {
		v.Reason = strings.Join(plain, "; ")
	}
	if v.Reason == "" {
		v.Reason = "the log gives no reason"
	}
	lower := strings.ToLower(v.Reason)
	for _, rule := range classes {
		for _, word := range rule.words {
			if strings.Contains(lower, word) {
				v.Class = rule.class
				return
			}
		}
	}
}

// classes are tried in this order: the more special text comes first.
var classes = []struct {
	class Class
	words []string
}{
	{ClassPacket, []string{"access to packet", "invalid access to pkt"}},
	{ClassUninitialised, []string{"!read_ok"}},
	{ClassReference, []string{"unreleased reference", "reference leak", "reference has not been"}},
	{ClassLoop, []string{"infinite loop", "back-edge", "loop detected", "the loop is not"}},
	{ClassComplexity, []string{"program is too large", "too many", "is too complex", "sequence of", "processed 1000001"}},
	{ClassUnreachable, []string{"unreachable insn", "jump out of range", "last insn is not", "fall-through"}},
	{ClassReturn, []string{"at program exit", "r0 must be", "returned value"}},
	{ClassHelper, []string{"unknown func", "cannot use helper", "invalid func", "helper call is not allowed", "calling kernel function", "not allowed in"}},
	{ClassContext, []string{"invalid bpf_context access", "dereference of modified ctx"}},
	{ClassStack, []string{"stack"}},
	{ClassType, []string{"pointer arithmetic"}},
	{ClassPrivilege, []string{"prohibited", "pointer comparison", "leaks addr", "leaking pointer", "root", "cap_"}},
	{ClassMemory, []string{"invalid mem access", "invalid access to", "out of bounds", "outside of the allowed memory", "unbounded memory", "min value is negative", "misaligned", "invalid access"}},
	{ClassType, []string{"type=", "expected=", "not a scalar", "pointer arithmetic", "invalid argument", "must be a known"}},
}
