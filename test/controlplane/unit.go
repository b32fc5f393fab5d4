// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/ashlar-go/ashlar/test/controlplane/internal/proc"
)

// Times of starting and stopping one component.
const (
	probeEvery   = 50 * time.Millisecond
	probeTimeout = 5 * time.Second
	// readyTimeout is far above what a start takes, for machines that are busy with something else.
	readyTimeout = 3 * time.Minute
	portTries    = 10
)

// unit is one component and how to run it.
type unit struct {
	name  Component
	path  string
	log   string
	kept  bool // log is there when somebody reads the error
	group *proc.Group
	dir   string
	// args returns the command line for a port, which is 0 for a component that needs none.
	args func(port int) []string
	// ready is one look whether the component does its work.
	ready func(ctx context.Context, port int) error
	port  bool

	mu     sync.Mutex
	chosen int // the port in use
	proc   *proc.Process
}

// start runs the component until it is ready. A port is free when it is chosen and may not be when the component gets
// to it, so that start is tried again with another one; keepPort is for a component that others know by its port, and
// tries the same.
func (u *unit) start(ctx context.Context, keepPort bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyTimeout, fmt.Errorf("not ready after %s", readyTimeout))
	defer cancel()
	for try := 1; ; try++ {
		if u.port && !keepPort {
			port, err := freePort()
			if err != nil {
				return fmt.Errorf("start %s: %w", u.name, err)
			}
			u.mu.Lock()
			u.chosen = port
			u.mu.Unlock()
		}
		p, err := u.launch()
		if err != nil {
			return err
		}
		err = u.await(ctx, p)
		if err == nil {
			return nil
		}
		p.Stop(0)
		if !u.port || !u.portTaken() || try == portTries || ctx.Err() != nil {
			return err
		}
	}
}

// launch forks the component.
func (u *unit) launch() (*proc.Process, error) {
	log, err := os.OpenFile(u.log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open log of %s: %w", u.name, err)
	}
	defer log.Close()
	u.mu.Lock()
	defer u.mu.Unlock()
	cmd := exec.Command(u.path, u.args(u.chosen)...)
	cmd.Dir, cmd.Env = u.dir, environment(u.dir)
	cmd.Stdout, cmd.Stderr = log, log
	p, err := u.group.Start(string(u.name), cmd)
	if err != nil {
		return nil, err
	}
	u.proc = p
	return p, nil
}

// await looks until the component is ready, has died, or ctx ends.
func (u *unit) await(ctx context.Context, p *proc.Process) error {
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for {
		look, cancel := context.WithTimeout(ctx, probeTimeout)
		err := u.ready(look, u.Port())
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-p.Done():
			return u.death(p)
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w; the last look said: %w; %s", u.name, context.Cause(ctx), err, u.tail())
		case <-tick.C:
		}
	}
}

// death describes the end of a process that nobody asked to end.
func (u *unit) death(p *proc.Process) error {
	err := p.Err()
	if err == nil {
		err = fmt.Errorf("%s was stopped", u.name)
	}
	return fmt.Errorf("%w; %s", err, u.tail())
}

// tail is the end of the log, for an error.
func (u *unit) tail() string {
	where := ""
	if u.kept {
		where = " " + u.log
	}
	return fmt.Sprintf("the end of its log%s:\n%s", where, proc.Tail(u.log))
}

// Port returns the port in use, or 0.
func (u *unit) Port() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.chosen
}

// process returns the running process, or nil before the first start.
func (u *unit) process() *proc.Process {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.proc
}

// portTaken says whether the component gave up because of its port.
func (u *unit) portTaken() bool {
	return strings.Contains(proc.Tail(u.log), "address already in use")
}

// freePort returns a loopback port that nobody uses now.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	defer l.Close()
	addr, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		return 0, errors.New("find a free port: listener has no TCP address")
	}
	return addr.Port, nil
}

// environment is what the components see: enough to run, nothing that configures them. etcd takes every ETCD_ variable
// for a flag, kwok reads a file in HOME.
func environment(home string) []string {
	env := []string{"HOME=" + home}
	for _, name := range []string{"PATH", "TMPDIR", "TZ", "GODEBUG", "GOGC", "GOMAXPROCS", "GOMEMLIMIT", "GOTRACEBACK"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}

// program returns a unit without its command line.
func (cp *ControlPlane) program(name Component) *unit {
	return &unit{
		name: name, path: cp.assets.Path(string(name)), group: cp.group, dir: cp.dir.data,
		log: filepath.Join(cp.dir.logs, name.logName()), kept: cp.dir.seen,
	}
}
