// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package prog

import (
	"fmt"
	"os"
	"runtime"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// onEachCPU runs f on every CPU of this process's set in turn, so that a per-CPU addition meets the value of that CPU and
// cannot interrupt a program that is changing it.
func onEachCPU(f func() error) error {
	runtime.LockOSThread()
	var home unix.CPUSet
	if err := unix.SchedGetaffinity(0, &home); err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer func() {
		if unix.SchedSetaffinity(0, &home) == nil {
			runtime.UnlockOSThread() // else the thread ends with its goroutine
		}
	}()
	online, err := onlineCPUs()
	if err != nil {
		return err
	}
	for _, cpu := range online {
		var one unix.CPUSet
		one.Set(cpu)
		if err := unix.SchedSetaffinity(0, &one); err != nil {
			return fmt.Errorf("run on CPU %d, where counters are: %w", cpu, err)
		}
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}

func onlineCPUs() (cpus []int, err error) {
	text, err := os.ReadFile("/sys/devices/system/cpu/online")
	if err != nil {
		return nil, err
	}
	for part := range strings.SplitSeq(strings.TrimSpace(string(text)), ",") {
		var from, to int
		if n, _ := fmt.Sscanf(part, "%d-%d", &from, &to); n == 1 {
			to = from
		} else if n != 2 {
			return nil, fmt.Errorf("/sys/devices/system/cpu/online: %.80q", text)
		}
		for cpu := from; cpu <= to; cpu++ {
			cpus = append(cpus, cpu)
		}
	}
	return cpus, nil
}

// quiesce waits until no program that was in force before is still running anywhere: the kernel waits a grace period
// before it returns from an update of a map of maps.
func quiesce() error {
	inner, err := ebpf.NewMap(&ebpf.MapSpec{Name: "ashlar_wait", Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err != nil {
		return err
	}
	defer inner.Close()
	outer, err := ebpf.NewMap(&ebpf.MapSpec{
		Name: "ashlar_wait", Type: ebpf.ArrayOfMaps, KeySize: 4, ValueSize: 4, MaxEntries: 1,
		InnerMap: &ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1},
	})
	if err != nil {
		return err
	}
	defer outer.Close()
	return outer.Put(uint32(0), inner)
}
