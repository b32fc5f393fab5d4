// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package bpfmap

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
)

// need is what a call asks of the thread.
type need int

const (
	needAccess need = iota // read or write elements: the descriptor is enough, unless unprivileged bpf is off
	needCreate             // make a map or load BTF
	needPin                // open or make a pin
	needID                 // find objects by id, BTF among them
)

// capability numbers of include/uapi/linux/capability.h.
const (
	capSysAdmin = 21
	capBPF      = 39
)

// permission turns an EPERM or EACCES into advice: which capability is missing, or what else refuses when none is.
// Kernels before 5.11 also refuse for lack of locked memory, and only there that is worth saying.
func permission(err error, what need) error {
	if !errors.Is(err, syscall.EPERM) && !errors.Is(err, syscall.EACCES) {
		return err
	}
	var known *PermissionError
	if errors.As(err, &known) || errors.Is(err, ErrReadOnly) {
		return err
	}
	at := surroundings()
	p := &PermissionError{Err: err}
	lacks := func(n int) bool { return at.known && at.caps&(1<<n) == 0 && at.caps&(1<<capSysAdmin) == 0 }
	switch {
	case what == needID && at.known && at.caps&(1<<capSysAdmin) == 0:
		p.Missing = []string{"CAP_SYS_ADMIN"}
		p.Advice = "finding objects by id needs CAP_SYS_ADMIN: keep a descriptor or a pin instead"
	case lacks(capBPF):
		p.Missing = []string{"CAP_BPF"}
		p.Advice = "this needs CAP_BPF (or CAP_SYS_ADMIN)"
	case what == needPin:
		p.Advice = "no capability is missing: check the owner and mode of the bpf file system and of the pin"
	case at.lockdown != "" && at.lockdown != "none":
		p.Advice = fmt.Sprintf("no capability is missing: kernel lockdown is %q", at.lockdown)
	case at.known:
		p.Advice = "no capability is missing: a user namespace, a seccomp filter or a security module refuses it"
	default:
		p.Advice = "it needs CAP_BPF (or CAP_SYS_ADMIN)"
	}
	if at.oldMemlock {
		p.Advice += "; this kernel is older than 5.11, so RLIMIT_MEMLOCK may be too low as well"
	}
	return p
}

// thread is what surrounds this thread.
type thread struct {
	caps       uint64
	known      bool
	lockdown   string
	oldMemlock bool
}

// chosen picks the word in brackets, as files in /sys mark the value in force.
func chosen(text string) string {
	_, rest, ok := strings.Cut(text, "[")
	word, _, _ := strings.Cut(rest, "]")
	if !ok {
		return ""
	}
	return word
}
