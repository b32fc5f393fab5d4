// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package prog_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/ashlar-go/ashlar/bpfmap/prog"
)

//go:generate testdata/build.sh

func object(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name+".o"))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// The objects are those that the source makes: by the sums that were written with them, and where the same compiler is
// installed by making them again.
func TestObjectsMatchTheirSource(t *testing.T) {
	t.Parallel()
	sums, err := os.ReadFile("testdata/SHA256SUMS")
	if err != nil {
		t.Fatal(err)
	}
	objects := 0
	for line := range strings.Lines(string(sums)) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		data, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		if fmt.Sprintf("%x", sha256.Sum256(data)) != sum {
			t.Errorf("%s changed after the objects were made: run go generate", name)
		}
		if strings.HasSuffix(name, ".o") {
			objects++
		}
	}
	if objects != 8 {
		t.Errorf("%d objects", objects)
	}

	version, err := exec.Command("clang", "--version").Output()
	_, missing := exec.LookPath("llvm-strip")
	if err != nil || missing != nil || !bytes.Contains(version, []byte("clang version 14.")) {
		t.Log("not made again: clang 14 and llvm-strip are not installed")
		return
	}
	dir := t.TempDir()
	if out, err := exec.Command("testdata/build.sh", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	made, err := os.ReadFile(filepath.Join(dir, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(made, sums) {
		t.Errorf("the source makes other objects: run go generate\n%s\n%s", sums, made)
	}
}

// Everything here is refused before the kernel is asked for anything, so it needs no privileges.
func TestLoadRefuses(t *testing.T) {
	t.Parallel()
	one := object(t, "one")
	tcx := prog.TCX("eth0", prog.Ingress)
	denied := errors.New("denied")
	for name, tt := range map[string]struct {
		reason  string
		object  []byte
		verify  prog.Verify
		want    prog.Want
		limits  prog.Limits
		refused error
	}{
		"no check":       {"fail closed", one, nil, prog.Want{Program: "on_tcx", Hook: tcx}, prog.Limits{}, prog.ErrUnverified},
		"denied":         {"the check's word is final", one, func([]byte, string, string, string) error { return denied }, prog.Want{Program: "on_tcx", Hook: tcx}, prog.Limits{}, denied},
		"no hook":        {"the zero value", one, prog.Unsigned, prog.Want{Program: "on_tcx"}, prog.Limits{}, prog.ErrHook},
		"other program":  {"it has none of that name", one, prog.Unsigned, prog.Want{Program: "on_fire", Hook: tcx}, prog.Limits{}, prog.ErrObject},
		"other type":     {"an XDP program at a TCX hook", one, prog.Unsigned, prog.Want{Program: "on_xdp", Hook: tcx}, prog.Limits{}, prog.ErrHook},
		"other cgroup":   {"for egress, at ingress", one, prog.Unsigned, prog.Want{Program: "on_cgroup", Hook: prog.Cgroup("/sys/fs/cgroup", prog.CgroupIngress())}, prog.Limits{}, prog.ErrHook},
		"empty":          {"no ELF", nil, prog.Unsigned, prog.Want{Program: "on_tcx", Hook: tcx}, prog.Limits{}, prog.ErrObject},
		"text":           {"no ELF", []byte("hello"), prog.Unsigned, prog.Want{Program: "on_tcx", Hook: tcx}, prog.Limits{}, prog.ErrObject},
		"cut":            {"half an ELF", one[:len(one)/2], prog.Unsigned, prog.Want{Program: "on_tcx", Hook: tcx}, prog.Limits{}, prog.ErrObject},
		"large":          {"before it is copied", one, prog.Unsigned, prog.Want{Program: "on_tcx", Hook: tcx}, prog.Limits{Object: 1000}, prog.ErrLimit},
		"map memory":     {"a map bomb", one, prog.Unsigned, prog.Want{Program: "on_tcx", Hook: tcx}, prog.Limits{MapMemory: 1000}, prog.ErrLimit},
		"maps":           {"too many", one, prog.Unsigned, prog.Want{Program: "on_tcx", Hook: tcx}, prog.Limits{Maps: 3}, prog.ErrLimit},
		"instructions":   {"too many", one, prog.Unsigned, prog.Want{Program: "on_tcx", Hook: tcx}, prog.Limits{Instructions: 10}, prog.ErrLimit},
		"type":           {"not allowed here", one, prog.Unsigned, prog.Want{Program: "on_tcx", Hook: tcx}, prog.Limits{Types: []ebpf.ProgramType{ebpf.XDP}}, prog.ErrLimit},
		"denied helper":  {"by name", one, prog.Unsigned, prog.Want{Program: "on_tcx", Hook: tcx}, prog.Limits{Deny: []asm.BuiltinFunc{asm.FnMapUpdateElem}}, prog.ErrLimit},
		"missing helper": {"not among the allowed", one, prog.Unsigned, prog.Want{Program: "on_tcx", Hook: tcx}, prog.Limits{Allow: []asm.BuiltinFunc{asm.FnMapLookupElem}}, prog.ErrLimit},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			loaded, err := prog.Load(tt.object, tt.verify, tt.want, prog.WithLimits(tt.limits))
			if loaded != nil || !errors.Is(err, tt.refused) {
				t.Errorf("%s: got %v, want %v", tt.reason, err, tt.refused)
			}
		})
	}
}

// What is verified is what is loaded, and the caller's bytes are not kept.
func TestTheVerifiedBytesAreACopy(t *testing.T) {
	t.Parallel()
	mine := object(t, "one")
	before := bytes.Clone(mine)
	_, err := prog.Load(mine, func(object []byte, program, hook, target string) error {
		if program != "on_tcx" || hook != "tcx/egress" || target != "eth0" {
			t.Errorf("asked about %s at %s %s", program, hook, target)
		}
		clear(mine) // the file is swapped while it is checked
		if !bytes.Equal(object, before) {
			t.Error("the bytes under verification changed")
		}
		return nil
	}, prog.Want{Program: "on_tcx", Hook: prog.TCX("eth0", prog.Egress)}, prog.WithLimits(prog.Limits{Maps: 1}))
	if !errors.Is(err, prog.ErrLimit) { // which it can only say of an object that was parsed
		t.Errorf("got %v", err)
	}
}

func TestReadObject(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a.o")
	if err := os.WriteFile(path, make([]byte, 100), 0o600); err != nil {
		t.Fatal(err)
	}
	if data, err := prog.ReadObject(path, 0); len(data) != 100 || err != nil {
		t.Errorf("%d bytes, %v", len(data), err)
	}
	if _, err := prog.ReadObject(path, 99); !errors.Is(err, prog.ErrLimit) {
		t.Errorf("too large: %v", err)
	}
	if _, err := prog.ReadObject(filepath.Dir(path), 0); !errors.Is(err, prog.ErrObject) {
		t.Errorf("a folder: %v", err)
	}
	if _, err := prog.ReadObject("/dev/zero", math.MaxInt64-1); !errors.Is(err, prog.ErrObject) {
		t.Errorf("a device: %v", err)
	}
	if _, err := prog.ReadObject(path+"x", 0); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("nothing: %v", err)
	}
	for _, most := range []uint64{math.MaxInt64 - 1, math.MaxInt64, math.MaxUint64} {
		if data, err := prog.ReadObject(path, most); len(data) != 100 || err != nil {
			t.Errorf("at most %d: %d bytes, %v", most, len(data), err)
		}
	}
	if err := exec.Command("mkfifo", path+".pipe").Run(); err != nil {
		t.Skip("no mkfifo")
	}
	if _, err := prog.ReadObject(path+".pipe", 0); !errors.Is(err, prog.ErrObject) {
		t.Errorf("a pipe that nobody writes to: %v", err)
	}
	if err := os.Symlink(path, path+".link"); err != nil {
		t.Fatal(err)
	}
	if data, err := prog.ReadObject(path+".link", 0); len(data) != 100 || err != nil {
		t.Errorf("a link, which is as good as what it points to: %d bytes, %v", len(data), err)
	}
}

func TestHooks(t *testing.T) {
	t.Parallel()
	for want, h := range map[string]prog.Hook{
		"xdp eth0":                      prog.XDP("eth0", prog.Best),
		"tcx/ingress eth0":              prog.TCX("eth0", prog.Ingress),
		"tcx/egress a in /run/netns/b":  prog.TCX("a", prog.Egress).In("/run/netns/b"),
		"cgroup/connect4 /a":            prog.Cgroup("/a", prog.CgroupConnect4()),
		"tracepoint/sched/sched_wakeup": prog.Tracepoint("sched", "sched_wakeup"),
		"raw_tracepoint/sys_enter":      prog.RawTracepoint("sys_enter"),
	} {
		if h.String() != want {
			t.Errorf("got %q, want %q", h, want)
		}
		if _, err := prog.New("/sys/fs/bpf", "a", h); err != nil {
			t.Errorf("%s: %v", want, err)
		}
	}
	for name, h := range map[string]prog.Hook{
		"zero":           {},
		"no interface":   prog.XDP("", prog.Best),
		"path":           prog.TCX("../eth0", prog.Ingress),
		"space":          prog.TCX("eth 0", prog.Ingress),
		"long":           prog.TCX("sixteen-is-a-lot", prog.Ingress),
		"mode":           prog.XDP("eth0", 7),
		"direction":      prog.TCX("eth0", 7),
		"no point":       prog.Cgroup("/a", prog.CgroupPoint{}),
		"relative":       prog.Cgroup("a", prog.CgroupEgress()),
		"unclean":        prog.Cgroup("/a/../b", prog.CgroupEgress()),
		"tracepoint":     prog.Tracepoint("sched", ""),
		"raw":            prog.RawTracepoint("a/b"),
		"socket":         prog.SocketFilter(nil),
		"relative netns": prog.TCX("eth0", prog.Ingress).In("blue"),
		"netns":          prog.RawTracepoint("sys_enter").In("/run/netns/blue"),
	} {
		if _, err := prog.New("/sys/fs/bpf", "a", h); !errors.Is(err, prog.ErrHook) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestPathTricksInNames(t *testing.T) {
	t.Parallel()
	h := prog.RawTracepoint("sys_enter")
	for _, name := range []string{"", ".", "..", "a/b", "../a", "a.b", "-a", "a\x00b", "a\n", "é", strings.Repeat("a", 65)} {
		if _, err := prog.New("/sys/fs/bpf", name, h); !errors.Is(err, prog.ErrName) {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, root := range []string{"", "a", "/a/../b", "/a/", "//a"} {
		if _, err := prog.New(root, "a", h); !errors.Is(err, prog.ErrName) {
			t.Errorf("root %q: %v", root, err)
		}
	}
	s, err := prog.New("/sys/fs/bpf", "a", h)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"", "../link", "a/b", "..", "-x"} {
		if _, err := s.Map(name); !errors.Is(err, prog.ErrName) {
			t.Errorf("map %q: %v", name, err)
		}
	}
}

func TestOptionsRefused(t *testing.T) {
	t.Parallel()
	for name, opt := range map[string]prog.Option{
		"drain": prog.WithDrain(-1), "clock": prog.WithClock(nil), "strategy": prog.WithStrategy(9),
		"maps": prog.WithMaps(map[string]*ebpf.Map{}),
	} {
		if _, err := prog.New("/sys/fs/bpf", "a", prog.RawTracepoint("sys_enter"), opt); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
	if _, err := prog.New("/sys/fs/bpf", "a", prog.RawTracepoint("sys_enter"), nil, prog.WithObserver(nil)); err != nil {
		t.Errorf("options that are nil: %v", err)
	}
	if _, err := prog.New("/sys/fs/bpf", "a", prog.XDP("eth0", prog.Best), prog.WithStrategy(prog.Overlap)); !errors.Is(err, prog.ErrHook) {
		t.Errorf("overlapping XDP: %v", err)
	}
}

// Whatever the file is, it is loaded or refused, and nothing panics.
func FuzzLoad(f *testing.F) {
	f.Add(object(f, "one"))
	f.Add(object(f, "wide")[:4000])
	f.Fuzz(func(t *testing.T, data []byte) {
		// The limit refuses what would get as far as the kernel.
		l, err := prog.Load(data, prog.Unsigned, prog.Want{Program: "on_tcx", Hook: prog.TCX("eth0", prog.Ingress)},
			prog.WithLimits(prog.Limits{Types: []ebpf.ProgramType{}}))
		if l != nil || err == nil {
			t.Error("loaded")
		}
	})
}
