// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/ashlar-go/ashlar/bpfmap"
	"github.com/ashlar-go/ashlar/bpfmap/bpfmaptest"
)

type v1 struct{ Count uint32 }
type v2 struct {
	Extra uint32
	Count uint64
}

var table = bpfmap.Spec{Name: "table", MaxEntries: 512}

// cilium/cilium#32387: remove and pin again left a moment without a pin.
func TestReport_cilium_32387(t *testing.T) {
	pin := pins(t) + "/table"
	first, err := bpfmap.Open[uint32, uint32](table, bpfmap.WithPin(pin))
	ok(t, err)
	defer first.Close()
	ok(t, first.Put(1, 1))
	var stop atomic.Bool
	defer stop.Store(true)
	var opened, failed atomic.Int64
	done := make(chan struct{})
	go func() {
		defer close(done)
		for !stop.Load() {
			m, err := ebpf.LoadPinnedMap(pin, nil)
			if err != nil {
				failed.Add(1)
				continue
			}
			opened.Add(1)
			_ = m.Close()
		}
	}()
	for i := range 300 {
		s := table
		s.MaxEntries += uint32(i)
		g, err := bpfmap.Migrate[uint32, uint32](s, bpfmap.WithPin(pin))
		ok(t, err)
		_, err = g.Copy(t.Context())
		ok(t, err)
		ok(t, g.Commit())
		ok(t, g.Map().Close())
	}
	stop.Store(true)
	<-done
	if failed.Load() > 0 || opened.Load() < 300 {
		t.Errorf("%d of %d opens failed during 300 swaps", failed.Load(), opened.Load()+failed.Load())
	}
	t.Logf("%d opens during 300 swaps, %d failed", opened.Load(), failed.Load())
	last, err := ebpf.LoadPinnedMap(pin, nil)
	ok(t, err)
	defer last.Close()
	var v uint32
	ok(t, last.Lookup(uint32(1), &v))
	if v != 1 || last.MaxEntries() != table.MaxEntries+299 {
		t.Errorf("at the end: value %d, %d entries", v, last.MaxEntries())
	}
}

const (
	jobEnv  = "ASHLAR_KERNEL_JOB"
	stepEnv = "ASHLAR_KERNEL_STEP"
	pinEnv  = "ASHLAR_KERNEL_PIN"
)

// child is what this binary does when a test has started it as a process of its own.
func child(job string) int {
	var err error
	switch job {
	case "migrate":
		err = childMigrate()
	case "capabilities":
		err = childCapabilities()
	case "unprivileged":
		err = childUnprivileged()
	default:
		err = fmt.Errorf("no job %q", job)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// childMigrate migrates and kills itself before one of the calls.
func childMigrate() error {
	step, err := strconv.Atoi(os.Getenv(stepEnv))
	if err != nil {
		return err
	}
	faults := bpfmaptest.Inject(bpfmap.Kernel())
	faults.Before(func(n int, _ string) {
		if n == step {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	})
	m, err := bpfmap.Open[uint32, v2](table, bpfmap.WithSystem(faults), bpfmap.WithPin(os.Getenv(pinEnv)), bpfmap.WithMigration[uint32, v2](nil))
	if err != nil {
		return err
	}
	fmt.Println(strings.Join(faults.Calls(), " "))
	return m.Close()
}

// start runs this binary as a child with a job.
func start(t *testing.T, job string, env ...string) (string, error) {
	t.Helper()
	self, err := os.Executable()
	ok(t, err)
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(append(os.Environ(), jobEnv+"="+job), env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// TestKillDuringMigration kills a migrating process with -9 before each of its calls. The next start must find every
// entry, finish, and leave nothing half done.
func TestKillDuringMigration(t *testing.T) {
	dir := pins(t)
	const entries = 200
	var calls string
	step := 1
	for ; ; step++ {
		pin := filepath.Join(dir, fmt.Sprintf("table%d", step))
		old, err := bpfmap.Open[uint32, v1](table, bpfmap.WithPin(pin))
		ok(t, err)
		for i := range uint32(entries) {
			ok(t, old.Put(i, v1{i}))
		}
		ok(t, old.Close())
		out, err := start(t, "migrate", pinEnv+"="+pin, stepEnv+"="+strconv.Itoa(step))
		if err == nil {
			calls = out
			break
		}
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			t.Fatalf("step %d: the child was not killed: %v\n%s", step, err, out)
		}
		m, err := bpfmap.Open[uint32, v2](table, bpfmap.WithPin(pin), bpfmap.WithMigration[uint32, v2](nil))
		if err != nil {
			t.Fatalf("killed before call %d: the next start says %v", step, err)
		}
		n := 0
		for e, err := range m.All(t.Context()) {
			ok(t, err)
			if n++; e.Value.Count != uint64(e.Key) {
				t.Fatalf("killed before call %d: entry %d is %+v", step, e.Key, e.Value)
			}
		}
		if n != entries {
			t.Fatalf("killed before call %d: %d entries, want %d", step, n, entries)
		}
		stat, err := m.Stat()
		ok(t, err)
		if stat.Layout != bpfmap.LayoutBTF {
			t.Errorf("killed before call %d: the layout is known from %s", step, stat.Layout)
		}
		ok(t, m.Close())
		if left, err := filepath.Glob(pin + "-next*"); err != nil || len(left) > 0 {
			t.Fatalf("killed before call %d: left are %v, %v", step, left, err)
		}
	}
	if step < 15 {
		t.Errorf("only %d steps", step-1)
	}
	t.Logf("killed before each of %d calls: %s", step-1, calls)
}

// TestClosed holds a map that was closed: its descriptor's number is another map's by now, which no call may reach.
func TestClosed(t *testing.T) {
	pins(t)
	first, err := bpfmap.Open[uint32, uint32](table)
	ok(t, err)
	number := first.Backend().FD()
	ok(t, first.Close())
	second, err := bpfmap.Open[uint32, uint32](table)
	ok(t, err)
	defer second.Close()
	if second.Backend().FD() != number {
		t.Fatalf("the descriptors are %d and %d: the test shows nothing", number, second.Backend().FD())
	}
	if err := first.Put(1, 1); !errors.Is(err, syscall.EBADF) {
		t.Errorf("put into a closed map: %v", err)
	}
	if _, there, err := second.Get(1); there || err != nil {
		t.Errorf("a put into a closed map reached another one: %v, %v", there, err)
	}
}
