// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ebpf

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// changes are the system calls by which anything can change in the kernel or in the folder.
var changes = []uint64{unix.SYS_BPF, unix.SYS_MKDIRAT, unix.SYS_SYMLINKAT, unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2, unix.SYS_UNLINKAT, unix.SYS_CLOSE}

// killAtCall runs a process until it enters the n-th of the calls that change something, and kills it there. It reports
// whether it came that far.
func killAtCall(cmd *exec.Cmd, n int) (killed bool, err error) {
	runtime.LockOSThread() // who traces is a thread
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return false, err
	}
	defer cmd.Process.Release()
	pid := cmd.Process.Pid
	var status unix.WaitStatus
	if _, err := unix.Wait4(pid, &status, 0, nil); err != nil {
		return false, err
	}
	if err := unix.PtraceSetOptions(pid, unix.PTRACE_O_TRACECLONE|unix.PTRACE_O_TRACESYSGOOD|unix.PTRACE_O_EXITKILL); err != nil {
		return false, err
	}
	for thread, signal := pid, 0; ; {
		if err := unix.PtraceSyscall(thread, signal); err != nil && !errors.Is(err, unix.ESRCH) {
			return false, err
		}
		if thread, err = unix.Wait4(-1, &status, unix.WALL, nil); err != nil {
			return false, err
		}
		signal = 0
		switch {
		case status.Exited() && thread == pid:
			if status.ExitStatus() != 0 {
				err = errors.New("the child failed")
			}
			return killed, err
		case status.Signaled() && thread == pid:
			return killed, nil
		case status.Stopped() && status.StopSignal() == unix.SIGTRAP|0x80:
			var info struct {
				op   byte
				_    [23]byte
				call uint64
				_    [56]byte
			}
			_, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_GET_SYSCALL_INFO, uintptr(thread), unsafe.Sizeof(info), uintptr(unsafe.Pointer(&info)), 0, 0)
			if errno == 0 && info.op == unix.PTRACE_SYSCALL_INFO_ENTRY && slices.Contains(changes, info.call) {
				if n--; n == 0 {
					killed = true
					_ = unix.Kill(pid, unix.SIGKILL)
				}
			}
		case status.Stopped() && status.StopSignal() != unix.SIGTRAP && status.StopSignal() != unix.SIGSTOP:
			signal = int(status.StopSignal())
		}
	}
}

// Not only between the steps that the package tells of, but in front of every system call: what a process leaves that is
// killed there is put right, and every packet is counted.
func TestKillAtEverySystemCall(t *testing.T) {
	stride := 17
	if os.Getenv("SOAK") != "" {
		stride = 1
	}
	for name, tt := range map[string]struct {
		before []string
		act    string
		loose  bool // it may be that nothing is in force, or two are, until it is put right
	}{
		"upgrade":   {[]string{"one"}, "two", false},
		"migration": {[]string{"one"}, "wide", false},
		"rollback":  {[]string{"one", "wide"}, "rollback", false},
		"second":    {[]string{"one", "two"}, "one", false},
		"gap":       {[]string{"one"}, "gap", true},
		"overlap":   {[]string{"one"}, "overlap", true},
	} {
		t.Run(name, func(t *testing.T) {
			root, w := bpffs(t), newNetwork(t)
			kills := 0
			for n, alive := 1, false; !alive; n += stride {
				j := job{Act: tt.act, Root: root, Netns: w.in, Step: -1}
				s, err := j.slot()
				if err != nil {
					t.Fatal(err)
				}
				sent := 0
				send := func() { w.send(10, 5); sent += 10 }
				for _, act := range tt.before {
					if err := acts[act](t.Context(), s); err != nil {
						t.Fatal(err)
					}
					send()
				}
				killed, err := killAtCall(j.start(t), n)
				if err != nil {
					t.Fatalf("call %d: %v", n, err)
				}
				if alive = !killed; killed {
					kills++
				}
				if !tt.loose {
					if in := attached(t, w.in); in != 1 {
						t.Errorf("call %d: %d programs in force", n, in)
					}
					send()
				}
				if _, err := s.Recover(t.Context()); err != nil {
					t.Errorf("call %d: recover: %v", n, err)
				}
				if left := leftovers(t, root); len(left) > 0 {
					t.Errorf("call %d: left over: %v", n, left)
				}
				if in := attached(t, w.in); in != 1 {
					t.Errorf("call %d: %d programs in force after recovery", n, in)
				}
				send()
				check(t, s, n, "call", uint64(sent))
				if err := s.Remove(); err != nil {
					t.Fatal(err)
				}
			}
			if kills < 10 {
				t.Errorf("killed only %d times", kills)
			}
			t.Logf("killed in front of %d system calls", kills)
		})
	}
}
