// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"k8s.io/client-go/rest"

	"github.com/ashlar-go/ashlar/test/controlplane/internal/assets"
)

// Option changes what [Start] and [Build] do. Later options win.
type Option interface {
	apply(*options) error
}

type option func(*options) error

func (o option) apply(opts *options) error { return o(opts) }

type options struct {
	assets      assets.Options
	dir, logDir string
	args        map[Component][]string
	without     map[Component]bool
	setup       func(context.Context, *rest.Config) error
	nodes       int
	services    netip.Prefix
	noAudit     bool
}

func newOptions(list []Option) (*options, error) {
	o := &options{
		assets:   assets.Options{Progress: os.Stderr, Ready: os.Getenv("KUBEBUILDER_ASSETS")},
		args:     map[Component][]string{},
		without:  map[Component]bool{},
		nodes:    1,
		services: netip.MustParsePrefix("10.0.0.0/16"),
	}
	var errs []error
	for _, opt := range list {
		errs = append(errs, opt.apply(o))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("control plane options: %w", err)
	}
	return o, nil
}

// with returns the components that are to run.
func (o *options) with() []Component {
	return slices.DeleteFunc(Components(), func(c Component) bool { return o.without[c] })
}

// names returns the assets that are needed to run.
func (o *options) names() []string {
	names := []string{assets.Kubectl}
	for _, c := range o.with() {
		names = append(names, string(c))
		if c == Kwok {
			names = append(names, assets.Stages)
		}
	}
	return names
}

// WithArgs adds command line arguments to a component, after ours: a flag given twice takes the later value, a flag
// that holds a list takes both. Default: none. For example,
//
//	WithArgs(APIServer, "--enable-admission-plugins=OwnerReferencesPermissionEnforcement")
func WithArgs(c Component, args ...string) Option {
	return option(func(o *options) error {
		o.args[c] = append(o.args[c], args...)
		return c.check()
	})
}

// Without leaves components out: etcd and the API server cannot be. Default: all run. Without the controller manager
// no namespace gets its default service account, and no pod can be created that does not turn the token off.
func Without(components ...Component) Option {
	return option(func(o *options) error {
		for _, c := range components {
			if err := c.check(); err != nil {
				return err
			}
			if c == Etcd || c == APIServer {
				return fmt.Errorf("there is no control plane without %s", c)
			}
			o.without[c] = true
		}
		return nil
	})
}

// WithSetup calls setup when the API server is ready and before the controller manager starts. The place to install
// CustomResourceDefinitions: the garbage collector learns new kinds every thirty seconds, but those that are there when
// it starts at once; Start waits until they are served. setup gets the admin's configuration; its error is Start's.
// Default: none; with several, each runs.
func WithSetup(setup func(ctx context.Context, cfg *rest.Config) error) Option {
	return option(func(o *options) error {
		if setup == nil {
			return errors.New("setup is nil")
		}
		if before := o.setup; before != nil {
			o.setup = func(ctx context.Context, cfg *rest.Config) error {
				if err := before(ctx, cfg); err != nil {
					return err
				}
				return setup(ctx, cfg)
			}
			return nil
		}
		o.setup = setup
		return nil
	})
}

// WithNodes sets how many nodes kwok plays. Default: 1.
func WithNodes(n int) Option {
	return option(func(o *options) error {
		o.nodes = n
		if n < 0 {
			return fmt.Errorf("%d nodes", n)
		}
		return nil
	})
}

// WithServiceCIDR sets the range of service addresses. Default: 10.0.0.0/16, since Kubernetes' own default holds 254
// addresses.
func WithServiceCIDR(cidr string) Option {
	return option(func(o *options) (err error) {
		if o.services, err = netip.ParsePrefix(cidr); err != nil {
			return fmt.Errorf("service CIDR: %w", err)
		}
		return nil
	})
}

// WithDir keeps everything (data, keys, logs, audit log) in dir, which must be empty or missing and is not removed.
// Default: a temporary directory that goes with the control plane.
func WithDir(dir string) Option {
	return option(func(o *options) (err error) {
		o.dir, err = filepath.Abs(dir)
		return err
	})
}

// WithLogDir writes the components' logs and the audit log to dir, where they stay until the next start there. Default:
// the directory logs in the control plane's own.
func WithLogDir(dir string) Option {
	return option(func(o *options) (err error) {
		o.logDir, err = filepath.Abs(dir)
		return err
	})
}

// WithCache builds into dir and looks there. Default: ashlar/controlplane in [os.UserCacheDir].
func WithCache(dir string) Option {
	return option(func(o *options) (err error) {
		o.assets.Cache, err = filepath.Abs(dir)
		return err
	})
}

// WithProgress sends the lines about a running build to w; nil for none. A terminal gets one line that changes, others
// a line every ten seconds. Default: standard error. When nothing has to be built, nothing is written.
func WithProgress(w io.Writer) Option {
	return option(func(o *options) error {
		o.assets.Progress = w
		return nil
	})
}

// WithoutAudit turns the audit log off, for measurements that it would disturb. Requests are then not counted.
func WithoutAudit() Option {
	return option(func(o *options) error {
		o.noAudit = true
		return nil
	})
}
