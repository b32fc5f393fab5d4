// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// file is what lies beside a line: everything the figure was computed from.
type file struct {
	Metric  string            `json:"metric"`
	Line    string            `json:"line"`
	Why     string            `json:"why,omitempty"`
	Field   Field             `json:"field"`
	Figure  *float64          `json:"figure"`
	A       Side              `json:"a"`
	B       *Side             `json:"b,omitempty"`
	Go      string            `json:"go"`
	System  string            `json:"system"`
	Pins    map[string]string `json:"pins,omitempty"`
	Samples []Sample          `json:"samples"`
}

// WriteSamples writes the raw samples of a result into dir and returns the file's path. Pins are the peers' versions.
func WriteSamples(dir string, r Result, pins map[string]string) (string, error) {
	path := filepath.Join(dir, strings.ReplaceAll(r.Metric.Name, "/", "-vs-")+".json")
	f := file{
		Metric: r.Metric.Name, Line: r.Line(), Why: r.Why, Field: r.Metric.Field, A: r.Metric.A, B: r.Metric.B,
		Go: runtime.Version(), System: runtime.GOOS + "/" + runtime.GOARCH, Pins: pins, Samples: r.Samples,
	}
	if !math.IsNaN(r.Figure) && !math.IsInf(r.Figure, 0) {
		f.Figure = &r.Figure
	}
	if f.Samples == nil {
		f.Samples = []Sample{}
	}
	var data bytes.Buffer
	e := json.NewEncoder(&data)
	e.SetEscapeHTML(false) // the line has a < in it
	e.SetIndent("", "  ")
	if err := e.Encode(f); err != nil {
		return "", fmt.Errorf("write samples of %s: %w", r.Metric.Name, err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("write samples of %s: %w", r.Metric.Name, err)
	}
	if err := os.WriteFile(path, data.Bytes(), 0o644); err != nil {
		return "", fmt.Errorf("write samples of %s: %w", r.Metric.Name, err)
	}
	return path, nil
}
