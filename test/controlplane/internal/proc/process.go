// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package proc

import (
	"fmt"
	"os/exec"
	"sync"
	"time"
)

// Process is one started process.
type Process struct {
	name string
	cmd  *exec.Cmd
	done chan struct{}

	mu       sync.Mutex
	expected bool
	err      error
}

func (p *Process) wait() {
	err := p.cmd.Wait()
	p.mu.Lock()
	switch {
	case p.expected:
	case err == nil:
		p.err = fmt.Errorf("%s ended by itself", p.name)
	default:
		p.err = fmt.Errorf("%s died: %w", p.name, err)
	}
	p.mu.Unlock()
	close(p.done)
}

// expect says that the process is about to be ended on purpose.
func (p *Process) expect() {
	p.mu.Lock()
	p.expected = true
	p.mu.Unlock()
}

// Pid returns the process id.
func (p *Process) Pid() int {
	return p.cmd.Process.Pid
}

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} {
	return p.done
}

// Err says how the process ended when nobody had asked it to; nil while it runs and after Stop.
func (p *Process) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// Stop asks the process to end, kills it after grace, and returns when it is gone. With no grace it is killed at once.
func (p *Process) Stop(grace time.Duration) {
	p.expect()
	if grace > 0 && terminate(p.cmd.Process) == nil {
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-p.done:
			return
		case <-timer.C:
		}
	}
	_ = p.cmd.Process.Kill() // fails only when it is gone
	<-p.done
}
