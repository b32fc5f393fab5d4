// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package assets

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// module is this module's path.
const module = "github.com/ashlar-go/ashlar/test/controlplane"

// ErrNoRecipe is returned when the directory build is nowhere to be found.
var ErrNoRecipe = errors.New("the build recipe (directory build of " + module + ") is not here")

// Locate returns the directory of the tool-only modules. They cannot be embedded (a go:embed pattern must not reach
// into another module) and are not in a downloaded copy of this module (nested modules are not), so they are looked
// for where this source lies: at the path that the compiler recorded, else, when that is gone or was trimmed, where
// the go command says that this module is, seen from the working directory.
func Locate() (string, error) {
	if _, file, _, ok := runtime.Caller(0); ok && filepath.IsAbs(file) {
		dir := filepath.Join(filepath.Dir(file), "..", "..", "build")
		if hasRecipe(dir) {
			return dir, nil
		}
	}
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		return "", fmt.Errorf("%w, and `go list -m %s` does not know it either: run inside a checkout, or in a module that replaces it with one", ErrNoRecipe, module)
	}
	dir := filepath.Join(strings.TrimSpace(string(out)), "build")
	if !hasRecipe(dir) {
		return "", fmt.Errorf("%w: %s is a downloaded module, which does not carry it: replace %s with a checkout", ErrNoRecipe, filepath.Dir(dir), module)
	}
	return dir, nil
}

func hasRecipe(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "kube", "go.mod"))
	return err == nil
}
