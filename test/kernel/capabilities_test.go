// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ashlar-go/ashlar/bpfmap"
)

// The capability sets that are tested, as bits.
var capabilities = map[string]uint64{
	"full":    1<<unix.CAP_SYS_ADMIN | 1<<unix.CAP_BPF | 1<<unix.CAP_NET_ADMIN | 1<<unix.CAP_PERFMON | 1<<unix.CAP_DAC_OVERRIDE,
	"limited": 1<<unix.CAP_BPF | 1<<unix.CAP_NET_ADMIN | 1<<unix.CAP_PERFMON,
	"none":    0,
}

// TestCapabilities runs the same steps under each set in a process of its own.
func TestCapabilities(t *testing.T) {
	for name, want := range map[string]struct {
		reason string
		lines  []string
	}{
		"full": {"everything works", []string{
			"create: ok", "layout of a new map: btf", "layout after another open: btf", "order of fields: incompatible",
			"sync: ok", "migrate: ok", "inner map of others: ok", "inner map of ours: ok", "nested sync writes: 0", "pin: ok",
		}},
		"limited": {"what needs ids degrades", []string{
			"create: ok", "layout of a new map: sizes", "layout after another open: sidecar", "order of fields: incompatible",
			"sync: ok", "migrate: in use, needs CAP_SYS_ADMIN", "inner map of others: needs CAP_SYS_ADMIN", "inner map of ours: ok", "nested sync writes: 1", "pin: ok",
		}},
		"none": {"the error names what is missing", []string{"create: needs CAP_BPF"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := pins(t)
			out, err := start(t, "capabilities", pinEnv+"="+dir, stepEnv+"="+strconv.FormatUint(capabilities[name], 10))
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			got := strings.Split(strings.TrimSpace(out), "\n")
			for i, line := range want.lines {
				if i >= len(got) || got[i] != line {
					t.Errorf("%s: step %d is %q, want %q\nall:\n%s", want.reason, i, append(got, make([]string, len(want.lines))...)[i], line, out)
				}
			}
		})
	}
}

// KumKeeHyun/perisco#3, cilium/ebpf#1617: EPERM was blamed on locked memory, which has nothing to do with it since 5.11.
func TestReport_perisco_3(t *testing.T) {
	pins(t)
	var u unix.Utsname
	ok(t, unix.Uname(&u))
	if major, _ := strconv.Atoi(strings.SplitN(unix.ByteSliceToString(u.Release[:]), ".", 2)[0]); major < 6 {
		t.Skip("locked memory may be the reason on kernels before 5.11")
	}
	out, err := start(t, "unprivileged")
	ok(t, err)
	if !strings.Contains(out, "operation not permitted: this needs CAP_BPF") || strings.Contains(strings.ToLower(out), "memlock") {
		t.Errorf("without capabilities a map is refused with %q", out)
	}
}

// childUnprivileged prints the error of making a map without capabilities.
func childUnprivileged() error {
	if err := drop(0); err != nil {
		return err
	}
	_, err := bpfmap.Open[uint32, forward](table)
	fmt.Println(err)
	return nil
}

// drop leaves this thread so many capabilities, for good.
func drop(caps uint64) error {
	runtime.LockOSThread() // capabilities are those of the thread
	set := [2]unix.CapUserData{
		{Effective: uint32(caps), Permitted: uint32(caps)}, {Effective: uint32(caps >> 32), Permitted: uint32(caps >> 32)},
	}
	return unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &set[0])
}

type forward struct{ A, B uint64 }
type backward struct{ B, A uint64 }

// childCapabilities drops capabilities for good and says what still works, one line a step.
func childCapabilities() error {
	caps, err := strconv.ParseUint(os.Getenv(stepEnv), 10, 64)
	if err != nil {
		return err
	}
	dir := os.Getenv(pinEnv)
	// A map that another process, with all capabilities, has put into an outer map.
	outer, inner := bpfmap.Spec{Name: "outer", MaxEntries: 4}, bpfmap.Spec{Name: "inner", MaxEntries: 4}
	others, err := bpfmap.OpenNested[uint32, uint32, uint32](outer, inner, bpfmap.WithPin(dir+"/outer"))
	if err != nil {
		return err
	}
	one := func(yield func(uint32, uint32) bool) { yield(1, 1) }
	if _, err := others.Replace(background(), 1, one); err != nil {
		return err
	}
	if err := others.Close(); err != nil {
		return err
	}

	if err := drop(caps); err != nil {
		return err
	}
	pin := bpfmap.WithPin(dir + "/table")
	m, err := bpfmap.Open[uint32, forward](table, pin)
	say("create", err)
	if err != nil {
		return nil
	}
	stat, err := m.Stat()
	if err != nil {
		return err
	}
	fmt.Println("layout of a new map:", stat.Layout)
	again, err := bpfmap.Open[uint32, forward](table, pin)
	if err != nil {
		return err
	}
	if stat, err = again.Stat(); err != nil {
		return err
	}
	fmt.Println("layout after another open:", stat.Layout)
	_, err = bpfmap.Open[uint32, backward](table, pin)
	say("order of fields", err)
	_, err = m.Sync(background(), func(yield func(uint32, forward) bool) { yield(1, forward{1, 2}) })
	say("sync", err)
	_, err = bpfmap.Open[uint32, backward](table, pin, bpfmap.WithMigration[uint32, backward](nil))
	say("migrate", err)
	nested, err := bpfmap.OpenNested[uint32, uint32, uint32](outer, inner, bpfmap.WithPin(dir+"/outer"))
	if err != nil {
		return err
	}
	_, _, err = nested.Inner(1)
	say("inner map of others", err)
	if _, err = nested.Replace(background(), 2, one); err != nil {
		return err
	}
	_, _, err = nested.Inner(2)
	say("inner map of ours", err)
	rep, err := nested.Sync(background(), func(yield func(uint32, seq) bool) { _ = yield(1, one) && yield(2, one) })
	if err != nil {
		return err
	}
	fmt.Println("nested sync writes:", rep.Written)
	other, err := bpfmap.Open[uint32, uint32](table, bpfmap.WithPin(dir+"/more"))
	say("pin", err)
	if err != nil {
		return nil
	}
	return errors.Join(m.Close(), again.Close(), nested.Close(), other.Close())
}

// say prints what a step came to.
func say(step string, err error) {
	var denied *bpfmap.PermissionError
	switch {
	case err == nil:
		fmt.Println(step + ": ok")
	case errors.Is(err, bpfmap.ErrInUse) && strings.Contains(err.Error(), "CAP_SYS_ADMIN"):
		fmt.Println(step + ": in use, needs CAP_SYS_ADMIN")
	case errors.As(err, &denied):
		fmt.Println(step + ": needs " + strings.Join(denied.Missing, " "))
	case errors.Is(err, bpfmap.ErrIncompatible):
		fmt.Println(step + ": incompatible")
	default:
		fmt.Println(step+":", err)
	}
}

type seq = iter.Seq2[uint32, uint32]

func background() context.Context { return context.Background() }
