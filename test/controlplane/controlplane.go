// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/ashlar-go/ashlar/test/controlplane/audit"
	"github.com/ashlar-go/ashlar/test/controlplane/internal/assets"
	"github.com/ashlar-go/ashlar/test/controlplane/internal/pki"
	"github.com/ashlar-go/ashlar/test/controlplane/internal/proc"
)

// ControlPlane is a running control plane. Its methods are safe for concurrent use.
type ControlPlane struct {
	opts   *options
	assets *assets.Set
	dir    *workdir
	group  *proc.Group // nil when the control plane is not ours
	units  map[Component]*unit
	ca     *pki.CA
	keys   keys
	probe  *http.Client

	admin      *rest.Config
	client     kubernetes.Interface // as ownUser
	kubeconfig string
	kubectl    string
	log        *audit.Log

	done chan struct{}
	mu   sync.Mutex
	err  error
	gone bool // done is closed
	stop sync.Once
	// watching ends with the components.
	watching sync.WaitGroup
	files    int // kubeconfigs written
}

// Start builds what is missing (see [Build]), starts a control plane and returns when every component works. The caller
// must call Stop; if it dies instead, the components die with it. ctx bounds the start, not the life.
func Start(ctx context.Context, opts ...Option) (_ *ControlPlane, err error) {
	o, err := newOptions(opts)
	if err != nil {
		return nil, err
	}
	cp := &ControlPlane{opts: o, units: map[Component]*unit{}, done: make(chan struct{})}
	if cp.assets, err = assets.Ensure(ctx, o.assets, o.names()...); err != nil {
		return nil, err
	}
	if cp.dir, err = newWorkdir(o); err != nil {
		return nil, err
	}
	if cp.group, err = proc.NewGroup(); err != nil {
		return nil, errors.Join(err, cp.dir.remove())
	}
	// What has started and dies before the rest is ready ends the start: the rest would wait for it in vain.
	starting, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-cp.done:
			cancel(errors.New("another component died"))
		case <-starting.Done():
		}
	}()
	if err := cp.start(starting); err != nil {
		if died := cp.Err(); died != nil {
			err = died
		}
		return nil, errors.Join(fmt.Errorf("start control plane: %w", err), cp.close())
	}
	return cp, nil
}

func (cp *ControlPlane) start(ctx context.Context) error {
	if err := cp.writeKeys(); err != nil {
		return err
	}
	if err := cp.run(ctx, cp.etcdUnit()); err != nil {
		return err
	}
	if err := cp.run(ctx, cp.apiServerUnit()); err != nil {
		return err
	}
	if err := cp.connect(); err != nil {
		return err
	}
	units, err := cp.clients()
	if err != nil {
		return err
	}
	// What the caller sets up has to be there before the controller manager is; the rest does not care, and starts
	// meanwhile.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ready := make(chan struct{})
	var all sync.WaitGroup
	var errs errorList
	for _, u := range units {
		all.Go(func() {
			if u.name == ControllerManager {
				select {
				case <-ready:
				case <-ctx.Done():
					errs.add(context.Cause(ctx)) // unless that is the consequence of an earlier one
					return
				}
			}
			if err := cp.run(ctx, u); err != nil {
				errs.add(err)
				cancel(errors.New("another component failed"))
			}
		})
	}
	if err := cp.prepare(ctx); err != nil {
		errs.add(err)
		cancel(errors.New("the set-up failed"))
	} else {
		close(ready)
	}
	all.Wait()
	if err := errs.first(); err != nil {
		return err
	}
	if cp.opts.without[Kwok] {
		return nil
	}
	return poll(ctx, "nodes", cp.furnished)
}

// clients returns the components that come after the API server.
func (cp *ControlPlane) clients() (units []*unit, err error) {
	makers := map[Component]func() (*unit, error){
		ControllerManager: cp.controllerManagerUnit, Scheduler: cp.schedulerUnit, Kwok: cp.kwokUnit,
	}
	for _, c := range cp.opts.with() {
		makeUnit, ok := makers[c]
		if !ok {
			continue // it runs already
		}
		u, err := makeUnit()
		if err != nil {
			return nil, err
		}
		units = append(units, u)
	}
	return units, nil
}

// prepare does what comes between the API server and the controller manager.
func (cp *ControlPlane) prepare(ctx context.Context) error {
	if !cp.opts.without[Kwok] {
		if err := cp.furnish(ctx); err != nil {
			return err
		}
	}
	if cp.opts.setup == nil {
		return nil
	}
	if err := cp.opts.setup(ctx, cp.Config()); err != nil {
		return fmt.Errorf("set-up: %w", err)
	}
	return poll(ctx, "the kinds that the set-up made", cp.kindsServed)
}

// connect makes the clients, once the API server's port is known.
func (cp *ControlPlane) connect() (err error) {
	if cp.admin, err = cp.userConfig("admin", masters); err != nil {
		return err
	}
	own, err := cp.userConfig(ownUser, masters)
	if err != nil {
		return err
	}
	if cp.client, err = kubernetes.NewForConfig(own); err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	if cp.kubeconfig, err = cp.writeKubeconfig("kubeconfig", cp.admin); err != nil {
		return err
	}
	cp.kubectl = cp.assets.Path(assets.Kubectl)
	if !cp.opts.noAudit {
		cp.log = audit.Open(cp.keys.auditFile)
	}
	return nil
}

// run starts a component and watches it from then on.
func (cp *ControlPlane) run(ctx context.Context, u *unit) error {
	cp.mu.Lock()
	cp.units[u.name] = u
	cp.mu.Unlock()
	if err := u.start(ctx, false); err != nil {
		return err
	}
	cp.watch(u)
	return nil
}

// watch tells of the component's death. It ends with the process.
func (cp *ControlPlane) watch(u *unit) {
	p := u.process()
	cp.watching.Go(func() {
		<-p.Done()
		if p.Err() != nil {
			cp.finish(u.death(p))
		}
	})
}

// finish closes done, with the first error if there is one.
func (cp *ControlPlane) finish(err error) {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	if cp.gone {
		return
	}
	cp.gone, cp.err = true, err
	close(cp.done)
}

// Done is closed when a component has died, or after Stop.
func (cp *ControlPlane) Done() <-chan struct{} {
	return cp.done
}

// Err names the first component that died, with the end of its log; nil while all run and after a Stop that nothing
// preceded.
func (cp *ControlPlane) Err() error {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	return cp.err
}

// Stop ends all components and removes what is temporary. It returns the error of a component that had died before, or
// of the removal. Stopping twice is fine; a control plane that is not ours keeps running.
func (cp *ControlPlane) Stop() error {
	err := cp.Err()
	return errors.Join(err, cp.close())
}

// stopGrace is how long components that keep their data get to write it down.
const stopGrace = 5 * time.Second

func (cp *ControlPlane) close() (err error) {
	cp.stop.Do(func() {
		if cp.group != nil {
			if cp.dir.keep {
				for _, c := range []Component{APIServer, Etcd} {
					if u := cp.unit(c); u != nil && u.process() != nil {
						u.process().Stop(stopGrace)
					}
				}
			}
			cp.group.Close()
			cp.watching.Wait()
			if cp.probe != nil {
				cp.probe.CloseIdleConnections()
			}
		}
		err = cp.dir.remove()
		cp.finish(nil)
	})
	return err
}

// Config returns a configuration of the admin, a member of system:masters, without client-side rate limit. It is the
// caller's own copy.
func (cp *ControlPlane) Config() *rest.Config {
	return rest.CopyConfig(cp.admin)
}

// Kubeconfig returns the path of the admin's kubeconfig. Only its owner can read it.
func (cp *ControlPlane) Kubeconfig() string {
	return cp.kubeconfig
}

// Kubectl returns the path of kubectl.
func (cp *ControlPlane) Kubectl() string {
	return cp.kubectl
}

// Audit returns the log in which requests are counted. It counts nothing, and says so, when the control plane is not
// ours or runs [WithoutAudit].
func (cp *ControlPlane) Audit() *audit.Log {
	return cp.log
}

// Dir returns the directory with keys, data and kubeconfigs.
func (cp *ControlPlane) Dir() string {
	return cp.dir.data
}

// Version returns the version of Kubernetes that is built here, with its v. What KUBEBUILDER_ASSETS provided may
// differ.
func (cp *ControlPlane) Version() string {
	if cp.assets == nil {
		return ""
	}
	return cp.assets.Kubernetes
}

// Log returns the path of a component's log, or "" if it does not run here.
func (cp *ControlPlane) Log(c Component) string {
	if u := cp.unit(c); u != nil {
		return filepath.Clean(u.log)
	}
	return ""
}

// Pid returns a component's process id, or 0 if it does not run here.
func (cp *ControlPlane) Pid(c Component) int {
	if u := cp.unit(c); u != nil && u.process() != nil {
		return u.process().Pid()
	}
	return 0
}

func (cp *ControlPlane) unit(c Component) *unit {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	return cp.units[c]
}

// errorList keeps the first of concurrent errors: the others are its consequences.
type errorList struct {
	mu  sync.Mutex
	err error
}

func (l *errorList) add(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.err = err
	}
}

func (l *errorList) first() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// poll looks until ready returns nil or ctx ends.
func poll(ctx context.Context, what string, ready func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyTimeout, fmt.Errorf("not ready after %s", readyTimeout))
	defer cancel()
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w; the last look said: %w", what, context.Cause(ctx), err)
		}
	}
}
