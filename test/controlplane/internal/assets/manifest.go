// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package assets

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

const manifestName = "manifest.json"

// manifest is what the cache directory claims to hold.
type manifest map[string]entry

type entry struct {
	Size    int64     `json:"size"`
	SHA256  string    `json:"sha256"`
	ModTime time.Time `json:"modTime"`
}

// readManifest returns what is recorded in dir. A manifest that is missing or cannot be read records nothing.
func readManifest(dir string) manifest {
	m := manifest{}
	text, err := os.ReadFile(filepath.Join(dir, manifestName))
	if err != nil || json.Unmarshal(text, &m) != nil {
		return manifest{}
	}
	return m
}

// write replaces the manifest in dir.
func (m manifest) write(dir string) error {
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return fmt.Errorf("write manifest: %w", err)
	}
	tmp := filepath.Join(dir, tempPrefix+manifestName)
	if err := os.WriteFile(tmp, append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("write manifest: %w", err)
	}
	if err := os.Rename(tmp, filepath.Join(dir, manifestName)); err != nil {
		return fmt.Errorf("write manifest: %w", err)
	}
	return nil
}

// state is what a look at one cached file says.
type state int

const (
	absent  state = iota // not recorded: never built, or interrupted
	damaged              // recorded, but the file is another one
	whole
)

// check compares a file with its record. The checksum is computed only when the file was touched since: hashing
// everything on each start would cost more than the rest of the check a thousand times over.
func (m manifest) check(dir, name string) state {
	e, ok := m[name]
	if !ok {
		return absent
	}
	path := filepath.Join(dir, name)
	info, err := os.Stat(path)
	if err != nil || info.Size() != e.Size {
		return damaged
	}
	if info.ModTime().Equal(e.ModTime) {
		return whole
	}
	if sum, err := checksum(path); err != nil || sum != e.SHA256 {
		return damaged
	}
	return whole
}

// record measures a file that is complete.
func record(path string) (entry, error) {
	info, err := os.Stat(path)
	if err != nil {
		return entry{}, fmt.Errorf("record asset: %w", err)
	}
	sum, err := checksum(path)
	if err != nil {
		return entry{}, fmt.Errorf("record asset: %w", err)
	}
	return entry{Size: info.Size(), SHA256: sum, ModTime: info.ModTime()}, nil
}

func checksum(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
