// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
)

// Operator says how to run the operator.
type Operator struct {
	// Namespaces it works in; none means all.
	Namespaces []string
	// Server replaces the API server's address, for a proxy that stands between and
	// that brings the credentials itself.
	Server string
	// Metrics serves them, for [Process.Reconciles].
	Metrics bool
	// Webhook is the address at which it serves conversions, as it tells the API server; none if empty.
	Webhook string
	// Args are further flags.
	Args []string
}

// Process is a running operator.
type Process struct {
	cmd     *exec.Cmd
	log     *os.File
	metrics string // address, or empty
	done    chan struct{}
	err     error // valid when done is closed
}

// OperatorConfig is the operator's own access: its service account's token.
func (l *Lab) OperatorConfig() *rest.Config { return rest.CopyConfig(l.config) }

// Run starts the operator as a process of its own under its own service account.
func (l *Lab) Run(o Operator) (*Process, error) {
	config := l.OperatorConfig()
	if o.Server != "" {
		config = &rest.Config{Host: o.Server}
	}
	kubeconfig, err := l.WriteKubeconfig(config)
	if err != nil {
		return nil, err
	}
	log, err := os.CreateTemp(l.temp, "operator-*.log")
	if err != nil {
		return nil, err
	}
	p := &Process{log: log, done: make(chan struct{})}
	args := []string{"--leader-elect=false", "--health-probe-bind-address=0"}
	if o.Metrics {
		if p.metrics, err = FreeAddress(); err != nil {
			return nil, errors.Join(err, log.Close())
		}
		args = append(args, "--metrics-bind-address="+p.metrics)
	} else {
		args = append(args, "--metrics-bind-address=0")
	}
	if o.Webhook != "" {
		args = append(args, "--webhook-bind-address="+o.Webhook, "--webhook-url=https://"+o.Webhook+"/convert", "--webhook-namespace="+SystemNamespace)
	}
	if len(o.Namespaces) > 0 {
		args = append(args, "--namespaces="+strings.Join(o.Namespaces, ","))
	}
	p.cmd = exec.Command(l.binary, append(args, o.Args...)...)
	p.cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = dieWithParent()
	started := make(chan error)
	go func() {
		// The kernel takes the end of the thread that forked for the end of the parent.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		if started <- err; err == nil {
			p.err = p.cmd.Wait()
		}
		log.Close()
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start the operator: %w", err)
	}
	return p, nil
}

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Kill ends the process with SIGKILL and waits until it is gone.
func (p *Process) Kill() {
	p.cmd.Process.Kill() // it may be gone already, and that is as good
	<-p.done
}

// Stop ends the process with SIGTERM and says how it went.
func (p *Process) Stop(ctx context.Context) error {
	select {
	case <-p.done:
		return fmt.Errorf("the operator ended by itself: %w\n%s", p.err, p.Tail(4096))
	default:
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		p.Kill()
		return fmt.Errorf("the operator did not end on SIGTERM: %w", ctx.Err())
	case <-time.After(30 * time.Second):
		p.Kill()
		return errors.New("the operator did not end within 30 s of SIGTERM")
	}
}

// Log is the path of the file that holds what the process printed.
func (p *Process) Log() string { return p.log.Name() }

// Tail returns the last n bytes of the log.
func (p *Process) Tail(n int) string {
	data, err := os.ReadFile(filepath.Clean(p.Log()))
	if err != nil {
		return err.Error()
	}
	return string(data[max(0, len(data)-n):])
}
