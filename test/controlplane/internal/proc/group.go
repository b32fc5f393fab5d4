// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package proc

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"time"
)

// watchdog waits for the end of its standard input and then kills its process group. It has no interest in signals
// that ask politely: whoever wants it gone closes the pipe.
const watchdog = `trap '' HUP INT TERM; while read -r _; do :; done; kill -KILL 0`

// Group is a set of processes that die with this process. Its methods are safe for concurrent use.
type Group struct {
	lifeline *os.File
	leader   *exec.Cmd
	forks    chan fork
	forker   sync.WaitGroup

	mu     sync.Mutex
	closed bool
	procs  []*Process
}

type fork struct {
	cmd  *exec.Cmd
	done chan<- error
}

// ErrClosed is returned by Start after Close.
var ErrClosed = errors.New("process group is closed")

// NewGroup starts a watchdog and returns its Group, which the caller must Close.
func NewGroup() (*Group, error) {
	in, lifeline, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("open lifeline: %w", err)
	}
	defer in.Close()
	leader := exec.Command("sh", "-c", watchdog)
	leader.Stdin = in
	leader.SysProcAttr = leaderAttr()
	if err := leader.Start(); err != nil {
		lifeline.Close()
		return nil, fmt.Errorf("start watchdog: %w", err)
	}
	g := &Group{lifeline: lifeline, leader: leader, forks: make(chan fork)}
	g.forker.Go(g.fork)
	return g, nil
}

// fork starts processes on one thread until the Group is closed. The thread is not unlocked: it ends with the
// goroutine, when no process is left that could mind.
func (g *Group) fork() {
	runtime.LockOSThread()
	for f := range g.forks {
		f.done <- f.cmd.Start()
	}
}

// Start runs cmd in the Group and returns once it is forked. name is for messages. cmd must be fresh; its SysProcAttr
// is set here. Give it files, not writers, for output: Wait would otherwise wait for what the process forks.
func (g *Group) Start(name string, cmd *exec.Cmd) (*Process, error) {
	cmd.SysProcAttr = memberAttr(g.leader.Process.Pid)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil, fmt.Errorf("start %s: %w", name, ErrClosed)
	}
	done := make(chan error, 1)
	g.forks <- fork{cmd, done}
	if err := <-done; err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	p := &Process{name: name, cmd: cmd, done: make(chan struct{})}
	go p.wait() // ends with the process, which ends at the latest with the Group
	g.procs = append(g.procs, p)
	return p, nil
}

// Watchdog returns the pid of the watchdog, which is also the id of the process group.
func (g *Group) Watchdog() int {
	return g.leader.Process.Pid
}

// closeGrace is how long Close waits for the watchdog to have killed the group before it kills one by one.
const closeGrace = 5 * time.Second

// Close kills what still runs and returns when all processes of the Group, the watchdog included, are gone. Closing
// twice is fine.
func (g *Group) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return
	}
	g.closed = true
	for _, p := range g.procs {
		p.expect()
	}
	g.lifeline.Close()
	spare := time.AfterFunc(closeGrace, func() { g.leader.Process.Kill() })
	_ = g.leader.Wait() // "signal: killed", always
	spare.Stop()
	for _, p := range g.procs {
		_ = p.cmd.Process.Kill() // in vain where the watchdog did its work
		<-p.done
	}
	close(g.forks)
	g.forker.Wait()
}
