// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/ashlar-go/ashlar/test/controlplane"
)

const usage = `usage:
  controlplane build [--cache dir]
  controlplane run   [--cache dir] [--keep] [--dir dir] [--nodes n] [--without component,...] [--service-cidr cidr]
                     [--arg component=flag]... [-- command args...]
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run returns the exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		fmt.Fprint(stderr, usage)
		return 2
	}
	var err error
	switch args[0] {
	case "build":
		err = build(ctx, args[1:], stdout, stderr)
	case "run":
		err = serve(ctx, args[1:], stdout, stderr)
	case "help", "-h", "--help":
		fmt.Fprint(stdout, usage)
	default:
		fmt.Fprintf(stderr, "controlplane: no command is named %q\n%s", args[0], usage)
		return 2
	}
	var exit *exec.ExitError
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return 0
	case errors.As(err, &exit):
		return max(exit.ExitCode(), 1)
	}
	fmt.Fprintln(stderr, "controlplane:", err)
	return 1
}

func flags(name string, stderr io.Writer) *flag.FlagSet {
	f := flag.NewFlagSet(name, flag.ContinueOnError)
	f.SetOutput(stderr)
	return f
}

func build(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	f := flags("build", stderr)
	cache := f.String("cache", "", "build into `dir` (default: the user's cache directory)")
	if err := f.Parse(args); err != nil {
		return err
	}
	dir, err := controlplane.Build(ctx, common(*cache, stderr)...)
	if err != nil {
		return err
	}
	fmt.Fprintln(stdout, dir)
	return nil
}

func common(cache string, stderr io.Writer) []controlplane.Option {
	opts := []controlplane.Option{controlplane.WithProgress(stderr)}
	if cache != "" {
		opts = append(opts, controlplane.WithCache(cache))
	}
	return opts
}

func serve(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	f := flags("run", stderr)
	cache := f.String("cache", "", "look for the programs, and build them, in `dir` (default: the user's cache directory)")
	keep := f.Bool("keep", false, "keep data, logs and audit log after the end")
	dir := f.String("dir", "", "put them into `dir`, which must be empty, and keep them")
	nodes := f.Int("nodes", 1, "number of nodes")
	without := f.String("without", "", "leave `components` out, separated by commas")
	services := f.String("service-cidr", "10.0.0.0/16", "range of service addresses")
	var extra []controlplane.Option
	f.Func("arg", "add a flag to a component, as `component=flag`; may be repeated", func(v string) error {
		c, arg, ok := strings.Cut(v, "=")
		if !ok {
			return errors.New("must be component=flag")
		}
		extra = append(extra, controlplane.WithArgs(controlplane.Component(c), arg))
		return nil
	})
	var command []string
	if i := slices.Index(args, "--"); i >= 0 {
		args, command = args[:i], args[i+1:]
	}
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q: a command comes after --", f.Arg(0))
	}
	if *keep && *dir == "" {
		if *dir, err = os.MkdirTemp("", "controlplane-kept-"); err != nil {
			return err
		}
	}
	opts := append(common(*cache, stderr), extra...)
	opts = append(opts, controlplane.WithNodes(*nodes), controlplane.WithServiceCIDR(*services))
	if *dir != "" {
		opts = append(opts, controlplane.WithDir(*dir))
	}
	if *without != "" {
		for c := range strings.SplitSeq(*without, ",") {
			opts = append(opts, controlplane.Without(controlplane.Component(c)))
		}
	}
	began := time.Now()
	cp, err := controlplane.Start(ctx, opts...)
	if err != nil {
		return err
	}
	defer func() {
		// A component that died is the error already.
		if stopErr := cp.Stop(); err == nil {
			err = stopErr
		}
		if *dir != "" {
			fmt.Fprintf(stderr, "controlplane: kept in %s\n", *dir)
		}
	}()
	fmt.Fprintf(stderr, "controlplane: Kubernetes %s is ready after %s\n", cp.Version(), time.Since(began).Round(100*time.Millisecond))
	if len(command) > 0 {
		return with(ctx, cp, command, stdout, stderr)
	}
	fmt.Fprintf(stdout, "export KUBECONFIG=%s\nexport PATH=%s:$PATH\n", cp.Kubeconfig(), filepath.Dir(cp.Kubectl()))
	fmt.Fprintf(stderr, "controlplane: use these two lines in another shell, then kubectl get nodes; Ctrl-C ends it\n")
	select {
	case <-ctx.Done():
		return nil
	case <-cp.Done():
		return cp.Err()
	}
}

// with runs a command against the control plane.
func with(ctx context.Context, cp *controlplane.ControlPlane, command []string, stdout, stderr io.Writer) error {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Env = append(os.Environ(),
		"KUBECONFIG="+cp.Kubeconfig(), "PATH="+filepath.Dir(cp.Kubectl())+string(os.PathListSeparator)+os.Getenv("PATH"))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, stdout, stderr
	return cmd.Run()
}
