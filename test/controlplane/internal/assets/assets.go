// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package assets

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// Options say where to look and whom to tell. The zero value uses the user's cache and tells nobody.
type Options struct {
	// Recipe is the directory of the tool-only modules; empty means [Locate].
	Recipe string
	// Cache is the directory above the keyed ones; empty means ashlar/controlplane in [os.UserCacheDir].
	Cache string
	// Ready is a directory whose programs are used instead of built ones, where it has them; a set KUBEBUILDER_ASSETS
	// goes here. Empty means none.
	Ready string
	// Progress gets lines for humans while something is built, and nothing when all is there.
	Progress io.Writer
	// Heartbeat is how often a line is written when Progress is not a terminal; 0 means ten seconds.
	Heartbeat time.Duration
}

// Set is where the assets are.
type Set struct {
	// Dir is the keyed cache directory.
	Dir string
	// Kubernetes is the version that is built, with its v.
	Kubernetes string
	// Built is how many assets this call had to make.
	Built int

	paths map[string]string
}

// Path returns the file of an asset that was asked for.
func (s *Set) Path(name string) string {
	return s.paths[name]
}

// Ensure makes the named assets available, building what is missing or damaged. When nothing is, it only reads: a
// complete cache may lie on a read-only disk, and no Go toolchain is needed.
func Ensure(ctx context.Context, o Options, names ...string) (*Set, error) {
	for _, name := range names {
		if !known(name) {
			return nil, fmt.Errorf("no asset is named %q", name)
		}
	}
	s := &Set{paths: map[string]string{}}
	names, err := s.takeReady(o.Ready, names)
	if err != nil {
		return nil, err
	}
	if o.Recipe == "" {
		if o.Recipe, err = Locate(); err != nil {
			return nil, err
		}
	}
	recipe, err := LoadRecipe(o.Recipe)
	if err != nil {
		return nil, err
	}
	if o.Cache == "" {
		base, err := os.UserCacheDir()
		if err != nil {
			return nil, fmt.Errorf("find the user's cache directory (set XDG_CACHE_HOME): %w", err)
		}
		o.Cache = filepath.Join(base, "ashlar", "controlplane")
	}
	s.Dir, s.Kubernetes = filepath.Join(o.Cache, recipe.Key), recipe.Kubernetes
	for _, name := range names {
		s.paths[name] = filepath.Join(s.Dir, name)
	}
	if len(unmade(s.Dir, names)) == 0 {
		return s, nil
	}
	s.Built, err = makeAssets(ctx, o, recipe, s.Dir, names)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// takeReady uses what the directory has and returns the names that it has not.
func (s *Set) takeReady(dir string, names []string) (rest []string, err error) {
	if dir == "" {
		return names, nil
	}
	dir, err = filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("use KUBEBUILDER_ASSETS: %w", err)
	}
	if info, err := os.Stat(dir); err != nil {
		return nil, fmt.Errorf("use KUBEBUILDER_ASSETS: %w", err)
	} else if !info.IsDir() {
		return nil, fmt.Errorf("use KUBEBUILDER_ASSETS: %s is not a directory", dir)
	}
	for _, name := range names {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			s.paths[name] = path
		} else {
			rest = append(rest, name)
		}
	}
	return rest, nil
}

// unmade returns the names whose file in dir is not whole.
func unmade(dir string, names []string) []string {
	m := readManifest(dir)
	var out []string
	for _, name := range names {
		if m.check(dir, name) != whole {
			out = append(out, name)
		}
	}
	return out
}
