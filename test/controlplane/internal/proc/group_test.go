// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package proc_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ashlar-go/ashlar/test/controlplane/internal/proc"
)

// childMode makes this binary start a Group and wait to be killed.
const childMode = "PROC_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childMode) != "" {
		child()
	}
	os.Exit(m.Run())
}

// child prints the pids of the watchdog, of a member, and of a process that the member forked, and then hangs.
func child() {
	g, err := proc.NewGroup()
	check(err)
	// The shell ignores what asks politely, as a component that hangs would.
	cmd := exec.Command("sh", "-c", `trap '' TERM; sleep 1000 & echo $!; wait`)
	out, err := cmd.StdoutPipe()
	check(err)
	p, err := g.Start("member", cmd)
	check(err)
	line, err := bufio.NewReader(out).ReadString('\n')
	check(err)
	fmt.Printf("%d %d %s\n", g.Watchdog(), p.Pid(), strings.TrimSpace(line))
	select {}
}

func check(err error) {
	if err != nil {
		fmt.Println(err) // the parent shows what is no list of pids
		os.Exit(1)
	}
}

// startChild returns a running child and the three pids.
func startChild(t *testing.T) (*exec.Cmd, []int) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childMode+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, field := range strings.Fields(line) {
		pid, err := strconv.Atoi(field)
		if err != nil {
			t.Fatalf("the child printed %q", line)
		}
		pids = append(pids, pid)
	}
	if len(pids) != 3 {
		t.Fatalf("the child printed %q", line)
	}
	return cmd, pids
}

// alive says whether a process exists and is no zombie that waits for somebody's wait.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := exec.Command("ps", "-o", "stat=", "-p", strconv.Itoa(pid)).Output()
	return err == nil && !strings.HasPrefix(strings.TrimSpace(string(stat)), "Z")
}

func waitGone(t *testing.T, pids ...int) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for _, pid := range pids {
		for alive(pid) {
			if time.Now().After(deadline) {
				t.Fatalf("process %d is still there", pid)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
}

func TestGroupDiesWithItsOwner(t *testing.T) {
	t.Parallel()
	for name, signal := range map[string]syscall.Signal{
		"SIGKILL": syscall.SIGKILL, "SIGTERM": syscall.SIGTERM, "SIGINT": syscall.SIGINT, "SIGQUIT": syscall.SIGQUIT,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd, pids := startChild(t)
			for _, pid := range pids {
				if !alive(pid) {
					t.Fatalf("process %d is not there to begin with", pid)
				}
			}
			if err := cmd.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			waitGone(t, pids...)
		})
	}
}

// TestMembersOutliveThreads: the parent-death signal is about the thread that forked, and a goroutine that is locked to
// its thread takes the thread with it when it ends.
func TestMembersOutliveThreads(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	var p *proc.Process
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		p = sleeper(t, g)
	}()
	<-done
	for range 20 { // give the thread the time to end
		runtime.Gosched()
		time.Sleep(5 * time.Millisecond)
	}
	if !alive(p.Pid()) {
		t.Error("the member died with the thread of its caller")
	}
}

func newGroup(t *testing.T) *proc.Group {
	t.Helper()
	g, err := proc.NewGroup()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	return g
}

func sleeper(t *testing.T, g *proc.Group) *proc.Process {
	t.Helper()
	p, err := g.Start("sleeper", exec.Command("sleep", "1000"))
	if err != nil {
		t.Error(err)
	}
	return p
}

func TestClose(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	p, q := sleeper(t, g), sleeper(t, g)
	g.Close()
	for _, pid := range []int{p.Pid(), q.Pid(), g.Watchdog()} {
		if syscall.Kill(pid, 0) == nil {
			t.Errorf("process %d is there, if only as a zombie", pid)
		}
	}
	if p.Err() != nil {
		t.Errorf("Close was taken for a death: %v", p.Err())
	}
	g.Close()
	if _, err := g.Start("late", exec.Command("true")); !errors.Is(err, proc.ErrClosed) {
		t.Errorf("start after Close: got %v", err)
	}
}

func TestDeathIsAnError(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		reason, script, want string
	}{
		"status": {"the exit status says why", "exit 3", "thing died: exit status 3"},
		"signal": {"so does a signal", "kill -SEGV $$", "thing died: signal: segmentation fault"},
		"none":   {"a server that ends without an error has ended too", "exit 0", "thing ended by itself"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGroup(t)
			p, err := g.Start("thing", exec.Command("sh", "-c", test.script))
			if err != nil {
				t.Fatal(err)
			}
			<-p.Done()
			if err := p.Err(); err == nil || !strings.HasPrefix(err.Error(), test.want) {
				t.Errorf("%s: got %v, want %s", test.reason, err, test.want)
			}
		})
	}
}

func TestStop(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		reason, script string
		grace          time.Duration
		polite         bool
	}{
		"polite":   {"it gets the time to end by itself", `trap 'touch "$0"; exit' TERM; echo; while :; do sleep 0.01; done`, 30 * time.Second, true},
		"stubborn": {"and is killed when it does not", `trap '' TERM; echo; while :; do sleep 0.01; done`, 50 * time.Millisecond, false},
		"at once":  {"no grace is no grace", `trap 'touch "$0"; exit' TERM; echo; while :; do sleep 0.01; done`, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGroup(t)
			mark := filepath.Join(t.TempDir(), "mark")
			cmd := exec.Command("sh", "-c", test.script, mark)
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			p, err := g.Start("thing", cmd)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := bufio.NewReader(out).ReadString('\n'); err != nil { // the trap is set
				t.Fatal(err)
			}
			p.Stop(test.grace)
			if syscall.Kill(p.Pid(), 0) == nil {
				t.Error("it is still there")
			}
			if p.Err() != nil {
				t.Errorf("a stop was taken for a death: %v", p.Err())
			}
			_, err = os.Stat(mark)
			if polite := err == nil; polite != test.polite {
				t.Errorf("%s: it could end by itself: %t", test.reason, polite)
			}
		})
	}
}

func TestStartFails(t *testing.T) {
	t.Parallel()
	_, err := newGroup(t).Start("thing", exec.Command("/nowhere/thing"))
	if !errors.Is(err, os.ErrNotExist) || !strings.HasPrefix(err.Error(), "start thing: ") {
		t.Errorf("got %v", err)
	}
}
