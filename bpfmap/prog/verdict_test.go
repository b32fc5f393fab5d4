// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package prog

import (
	"strings"
	"testing"
)

// Logs as kernels wrote them. https://github.com/cilium/ebpf/issues/1554, https://github.com/cilium/cilium/issues/20738
func TestReport_cilium_ebpf_1554RejectionIsData(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		reason, log string
		want        Verdict
	}{
		"packet": {"Linux 6.18, with source", `0: R1=ctx() R10=fp0
; __u8 *data = (void *)(long)skb->data; @ progs.c:167
0: (61) r1 = *(u32 *)(r1 +76)         ; R1_w=pkt(r=0)
; return data[99]; // never checked against data_end @ progs.c:169
1: (71) r0 = *(u8 *)(r1 +99)
invalid access to packet, off=99 size=1, R1(id=0,off=99,r=0)
R1 offset is outside of the packet
processed 2 insns (limit 1000000) max_states_per_insn 0 total_states 0 peak_states 0 mark_read 0`, Verdict{
			Instruction: 1, Opcode: "r0 = *(u8 *)(r1 +99)", Source: "return data[99]; // never checked against data_end", File: "progs.c:169",
			Registers: "R1_w=pkt(r=0)", Class: ClassPacket, Processed: 2, Limit: 1000000,
			Reason: "invalid access to packet, off=99 size=1, R1(id=0,off=99,r=0); R1 offset is outside of the packet",
		}},
		"no line information": {"registers in front, as before Linux 6", `0: R1=ctx(id=0,off=0,imm=0) R10=fp0
0: (b7) r1 = 0
1: R1_w=invP0 R10=fp0
1: (95) exit
R0 !read_ok
processed 2 insns (limit 1000000) max_states_per_insn 0 total_states 0 peak_states 0 mark_read 0`, Verdict{
			Instruction: 1, Opcode: "exit", Registers: "R1_w=invP0 R10=fp0", Class: ClassUninitialised, Reason: "R0 !read_ok", Processed: 2, Limit: 1000000,
		}},
		"helper": {"a call", `0: (85) call bpf_probe_write_user#36
program of this type cannot use helper bpf_probe_write_user#36
processed 1 insns (limit 1000000) max_states_per_insn 0 total_states 0 peak_states 0 mark_read 0`, Verdict{
			Instruction: 0, Opcode: "call bpf_probe_write_user#36", Class: ClassHelper, Reason: "program of this type cannot use helper bpf_probe_write_user#36", Processed: 1, Limit: 1000000,
		}},
		"return": {"6.8 and newer", `0: (b7) r0 = 9                        ; R0_w=9
1: (95) exit
At program exit the register R0 has smin=9 smax=9 should have been in [0, 3]
processed 2 insns (limit 1000000) max_states_per_insn 0 total_states 0 peak_states 0 mark_read 0`, Verdict{
			Instruction: 1, Opcode: "exit", Registers: "R0_w=9", Class: ClassReturn, Reason: "At program exit the register R0 has smin=9 smax=9 should have been in [0, 3]", Processed: 2, Limit: 1000000,
		}},
		"named": {"the block that 7.3 is to write", `3: (79) r0 = *(u64 *)(r0 +64)
Verification failed: invalid access
Reason: R0 invalid mem access 'map_value_or_null'
At: insn 3
Suggestion: check for NULL
processed 4 insns (limit 1000000) max_states_per_insn 0 total_states 0 peak_states 1 mark_read 0`, Verdict{
			Instruction: 3, Opcode: "r0 = *(u64 *)(r0 +64)", Class: ClassMemory, Reason: "R0 invalid mem access 'map_value_or_null'", Processed: 4, Limit: 1000000, PeakStates: 1,
		}},
		"before any instruction": {"the flow graph is checked first", `unreachable insn 2
processed 0 insns (limit 1000000) max_states_per_insn 0 total_states 0 peak_states 0 mark_read 0`, Verdict{
			Instruction: -1, Class: ClassUnreachable, Reason: "unreachable insn 2", Limit: 1000000,
		}},
		"unknown": {"kernels learn new sentences", "7: (07) r1 += 1\nthe moon is in the wrong house", Verdict{
			Instruction: 7, Opcode: "r1 += 1", Class: ClassOther, Reason: "the moon is in the wrong house",
		}},
		"empty": {"nothing at all", "", Verdict{Instruction: -1, Class: ClassOther, Reason: "the log gives no reason"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := rejectedBy(strings.Split(tt.log, "\n"))
			if got.Log != strings.TrimSpace(tt.log) || got.Truncated {
				t.Errorf("%s: log %q", tt.reason, got.Log)
			}
			got.Log = ""
			if got != tt.want {
				t.Errorf("%s:\n got %+v\nwant %+v", tt.reason, got, tt.want)
			}
		})
	}
}

func TestAcceptedVerdict(t *testing.T) {
	t.Parallel()
	v := accepted("processed 99 insns (limit 1000000) max_states_per_insn 1 total_states 8 peak_states 7 mark_read 1")
	if !v.Accepted || v.Processed != 99 || v.Limit != 1000000 || v.PeakStates != 7 || v.Class != "" || v.Instruction != -1 {
		t.Errorf("got %+v", v)
	}
}

func TestLongLogsAreCut(t *testing.T) {
	t.Parallel()
	lines := strings.Split(strings.Repeat("1: (07) r1 += 1\n", 20_000)+"infinite loop detected at insn 1", "\n")
	v := rejectedBy(lines)
	if !v.Truncated || len(v.Log) > maxLog || !strings.HasPrefix(v.Log, "1: (07)") || v.Class != ClassLoop {
		t.Errorf("%d bytes, truncated %v, class %s, begins with %.20q", len(v.Log), v.Truncated, v.Class, v.Log)
	}
}

// No log makes it panic or lose the reason.
func FuzzVerdict(f *testing.F) {
	f.Add("0: R1=ctx() R10=fp0\n; x @ a.c:1\n0: (61) r1 = *(u32 *)(r1 +76) ; R1=1\nbad\nprocessed 1 insns (limit 2) x peak_states 3")
	f.Add(";\n; @ :\n: ()\n99999999999999999999: (00) x")
	f.Fuzz(func(t *testing.T, log string) {
		v := rejectedBy(strings.Split(log, "\n"))
		if v.Reason == "" || v.Class == "" || len(v.Log) > maxLog || v.Instruction < -1 {
			t.Errorf("%q became %+v", log, v)
		}
		accepted(log)
	})
}
