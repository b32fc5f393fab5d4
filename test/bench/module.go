// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// ErrAbsent marks a module that cannot be had here: its directory is missing or its dependencies cannot be fetched.
// A module that is there and does not compile is broken, which is something else.
var ErrAbsent = errors.New("absent")

// Ours is the module of the library's own sides. It is never merely absent: without it there is nothing to measure.
const Ours = "ours"

// Program is a built module.
type Program struct {
	Path string
	// Pins are the versions of the peers compiled in, by module path.
	Pins map[string]string
}

// Build resolves and compiles the program of the module dir/name into dir/out/bin. Errors that wrap [ErrAbsent] mean
// that a peer could not be had.
func Build(ctx context.Context, dir, name string) (Program, error) {
	src := filepath.Join(dir, name)
	if _, err := os.Stat(filepath.Join(src, "go.mod")); errors.Is(err, fs.ErrNotExist) {
		return Program{}, absent(name, "no go.mod in %s", src)
	}
	// Listing resolves and fetches every package without compiling one, so what fails here is a missing dependency.
	if out, err := goTool(ctx, src, "list", "-deps", "-f", "{{.ImportPath}}", "."); err != nil {
		return Program{}, absent(name, "%s", lastLines(out, err))
	}
	bin, err := filepath.Abs(filepath.Join(dir, "out", "bin", name))
	if err != nil {
		return Program{}, fmt.Errorf("build %s: %w", name, err)
	}
	if out, err := goTool(ctx, src, "build", "-o", bin, "."); err != nil {
		return Program{}, fmt.Errorf("build %s: %s", name, lastLines(out, err))
	}
	info, err := buildinfo.ReadFile(bin)
	if err != nil {
		return Program{}, fmt.Errorf("build %s: read build information: %w", name, err)
	}
	pins := map[string]string{}
	for _, d := range info.Deps {
		for _, p := range peers {
			if strings.HasPrefix(d.Path, p) {
				pins[d.Path] = d.Version
			}
		}
	}
	return Program{Path: bin, Pins: pins}, nil
}

// peers are the module paths whose versions decide what a figure means.
var peers = []string{
	"github.com/cilium/", "github.com/fluxcd/pkg/", "k8s.io/apimachinery", "k8s.io/client-go", "sigs.k8s.io/cluster-api",
	"sigs.k8s.io/controller-runtime", "sigs.k8s.io/structured-merge-diff/",
}

func absent(name, format string, args ...any) error {
	if name == Ours {
		return fmt.Errorf("build %s: "+format, append([]any{name}, args...)...)
	}
	return fmt.Errorf("build %s: "+format+": %w", append(append([]any{name}, args...), ErrAbsent)...)
}

// goTool runs the go command in dir. Without cgo the programs are the same on every machine with that Go.
func goTool(ctx context.Context, dir string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-mod=readonly", "GOWORK=off")
	cmd.WaitDelay = 10 * time.Second
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	err := cmd.Run()
	return stderr.Bytes(), err
}

// lastLines keeps the end of a tool's complaint, on one line.
func lastLines(out []byte, err error) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(lines) > 3 {
		lines = lines[len(lines)-3:]
	}
	text := strings.Join(lines, " | ")
	if text == "" {
		return err.Error()
	}
	return text
}
