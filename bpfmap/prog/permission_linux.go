// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package prog

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/ashlar-go/ashlar/bpfmap"
)

// needs are the capabilities without which a type of program is refused; each is implied by CAP_SYS_ADMIN.
func needs(t ebpf.ProgramType) []uint {
	switch t {
	case ebpf.XDP, ebpf.SchedCLS, ebpf.CGroupSKB, ebpf.CGroupSock, ebpf.CGroupSockAddr, ebpf.SkLookup:
		return []uint{unix.CAP_BPF, unix.CAP_NET_ADMIN}
	case ebpf.TracePoint, ebpf.RawTracepoint, ebpf.Kprobe, ebpf.PerfEvent, ebpf.Tracing, ebpf.LSM:
		return []uint{unix.CAP_BPF, unix.CAP_PERFMON}
	}
	return []uint{unix.CAP_BPF}
}

var capNames = map[uint]string{unix.CAP_BPF: "CAP_BPF", unix.CAP_NET_ADMIN: "CAP_NET_ADMIN", unix.CAP_PERFMON: "CAP_PERFMON"}

// permission turns an EPERM into the capability that is missing. Libraries blame RLIMIT_MEMLOCK, which no kernel since
// 5.11 uses for this. https://github.com/cilium/ebpf/issues/1617
func permission(err error, t ebpf.ProgramType) error {
	if err == nil || !errors.Is(err, unix.EPERM) {
		return err
	}
	err = unix.EPERM // the library's advice about RLIMIT_MEMLOCK would contradict ours
	data := [2]unix.CapUserData{}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	if unix.Capget(&header, &data[0]) != nil {
		return err
	}
	has := func(c uint) bool { return data[c/32].Effective&(1<<(c%32)) != 0 }
	if has(unix.CAP_SYS_ADMIN) {
		return &bpfmap.PermissionError{Err: err, Advice: "no capability is missing: this kernel was built without it, or a security module or the lockdown mode forbids it"}
	}
	var missing []string
	for _, c := range needs(t) {
		if !has(c) {
			missing = append(missing, capNames[c])
		}
	}
	advice := "the capabilities are there: a security module or the lockdown mode may forbid it"
	if len(missing) > 0 {
		advice = fmt.Sprintf("a %s program needs %s, which this thread does not have", t, strings.Join(missing, " and "))
	}
	return &bpfmap.PermissionError{Missing: missing, Advice: advice, Err: err}
}
