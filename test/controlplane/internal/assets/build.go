// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package assets

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"github.com/ashlar-go/ashlar/test/controlplane/internal/proc"
)

// tempPrefix marks files that are not finished.
const tempPrefix = ".tmp-"

// ErrNoGo is returned when something has to be built and there is no go command.
var ErrNoGo = errors.New("there is no go command in PATH")

// builder makes assets in one directory, alone.
type builder struct {
	recipe *Recipe
	dir    string
	gocmd  string
	group  *proc.Group
	out    *progress
}

// makeAssets builds what is still missing once it has the lock, and returns how many that were.
func makeAssets(ctx context.Context, o Options, recipe *Recipe, dir string, names []string) (int, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return 0, fmt.Errorf("create the cache directory (XDG_CACHE_HOME chooses another): %w", full(err))
	}
	out := newProgress(o.Progress, o.Heartbeat)
	var wait *step
	release, err := lock(ctx, filepath.Join(o.Cache, "lock"), func(holder string) {
		wait = out.begin("waiting for another build (" + holder + ")")
	})
	wait.end(err)
	if err != nil {
		return 0, err
	}
	defer release()
	names = unmade(dir, names) // the other build may have made them
	if len(names) == 0 {
		return 0, nil
	}
	gocmd, err := exec.LookPath("go")
	if err != nil {
		return 0, fmt.Errorf("%w, and %s must be built (it is not in %s): install Go, or point KUBEBUILDER_ASSETS to a directory that has it",
			ErrNoGo, strings.Join(names, ", "), dir)
	}
	group, err := proc.NewGroup() // a killed test must not leave a compiler behind
	if err != nil {
		return 0, err
	}
	defer group.Close()
	b := &builder{recipe: recipe, dir: dir, gocmd: gocmd, group: group, out: out}
	return len(names), b.all(ctx, names)
}

func (b *builder) all(ctx context.Context, names []string) error {
	leftovers, _ := filepath.Glob(filepath.Join(b.dir, tempPrefix+"*")) // the pattern is valid
	for _, path := range leftovers {
		_ = os.Remove(path) // a leftover that stays is overwritten
	}
	m := readManifest(b.dir)
	if len(m) == 0 {
		b.out.say("building the control plane into %s (once; minutes with a cold Go build cache; it may be interrupted)", b.dir)
	}
	i := 0
	for _, name := range Names() {
		if !slices.Contains(names, name) {
			continue
		}
		i++
		title := fmt.Sprintf("building %s (%d of %d)", name, i, len(names))
		if m.check(b.dir, name) == damaged {
			title = fmt.Sprintf("building %s again, its file in the cache is damaged (%d of %d)", name, i, len(names))
		}
		step := b.out.begin(title)
		err := b.one(ctx, name, step)
		step.end(err)
		if err != nil {
			return fmt.Errorf("build %s: %w", name, full(err))
		}
		if m[name], err = record(filepath.Join(b.dir, name)); err != nil {
			return err
		}
		if err := m.write(b.dir); err != nil {
			return full(err)
		}
	}
	return nil
}

// one makes a single asset under a temporary name and moves it into place.
func (b *builder) one(ctx context.Context, name string, step *step) error {
	tmp := filepath.Join(b.dir, tempPrefix+name)
	if name == Stages {
		if err := b.stages(ctx, tmp, step); err != nil {
			return err
		}
	} else {
		what := b.recipe.build(name)
		deps, err := b.run(ctx, what.module, step, "list", "-deps", "-f", "{{.ImportPath}}", what.pkg)
		if err != nil {
			return err
		}
		step.total(what.pkg, bytes.Count(deps, []byte("\n")))
		if _, err := b.run(ctx, what.module, step, "build", "-buildvcs=false", "-v", "-o", tmp, "-ldflags", what.ldflags, what.pkg); err != nil {
			return err
		}
	}
	return os.Rename(tmp, filepath.Join(b.dir, name))
}

// stages copies the stage files out of the module cache, which may be emptied while this cache lives on.
func (b *builder) stages(ctx context.Context, path string, step *step) error {
	dir, err := b.run(ctx, "kwok", step, "list", "-m", "-f", "{{.Dir}}", stagesModule)
	if err != nil {
		return err
	}
	text, err := joinStages(strings.TrimSpace(string(dir)))
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o644)
}

// run runs the go command in a module and returns its output. Its messages feed the progress; the end of them is in
// the error.
func (b *builder) run(ctx context.Context, module string, step *step, args ...string) ([]byte, error) {
	cmd := exec.Command(b.gocmd, args...)
	cmd.Dir = filepath.Join(b.recipe.Dir, module)
	cmd.Env = environment(os.Environ())
	var stdout bytes.Buffer
	messages := &messages{step: step}
	cmd.Stdout, cmd.Stderr = &stdout, messages
	p, err := b.group.Start("go "+args[0], cmd)
	if err != nil {
		return nil, err
	}
	select {
	case <-p.Done():
	case <-ctx.Done():
		b.group.Close() // go and its compilers
		return nil, context.Cause(ctx)
	}
	if state := cmd.ProcessState; !state.Success() {
		return nil, fmt.Errorf("go %s failed (%s):\n%s", args[0], state, messages.end())
	}
	return stdout.Bytes(), nil
}

// environment fixes what decides the content and the hit rate of Go's build cache; the rest, such as GOPROXY and
// GOCACHE, is the user's.
func environment(env []string) []string {
	fixed := []string{
		"CGO_ENABLED=0", "GOWORK=off", "GOOS=" + runtime.GOOS, "GOARCH=" + runtime.GOARCH,
		"GOFLAGS=-buildvcs=false", // not empty: that would bring back what `go env -w` stored
	}
	out := slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
		return slices.ContainsFunc(fixed, func(f string) bool {
			name, _, _ := strings.Cut(f, "=")
			return strings.HasPrefix(kv, name+"=")
		})
	})
	return append(out, fixed...)
}

// full says in words that a disk is full, whether we were told or a compiler was.
func full(err error) error {
	if errors.Is(err, syscall.ENOSPC) || strings.Contains(err.Error(), "no space left on device") {
		return fmt.Errorf("a disk is full (Go's build cache grows by some GB, the programs need half a GB); free space and run again, what is finished is kept: %w", err)
	}
	return err
}
