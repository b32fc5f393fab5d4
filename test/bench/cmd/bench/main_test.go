// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestRunRefusesWhatDoesNotExist(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		reason string
		args   []string
		want   string
	}{
		"unknown package": {"a typo in PKG must not look like success", []string{"-pkg", "conditons"}, `no package "conditons"; there are [`},
		"too few rounds":  {"a quick look is not a figure", []string{"-rounds", "3"}, "at least 9"},
		"unknown flag":    {"usage", []string{"-fast"}, "not defined"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out, complain bytes.Buffer
			if code := run(t.Context(), tc.args, &out, &complain); code != 2 || !strings.Contains(complain.String(), tc.want) || out.Len() != 0 {
				t.Errorf("%s: got exit %d, %q, %q", tc.reason, code, out.String(), complain.String())
			}
		})
	}
}

func TestRunWithoutModulesFails(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"-once"}, {}} {
		var out, complain bytes.Buffer
		if code := run(t.Context(), append(args, "-dir", t.TempDir()), &out, &complain); code != 1 {
			t.Errorf("%v: exit %d, want 1: nothing ran", args, code)
		}
		if strings.Contains(out.String(), "PASS") || !strings.Contains(out.String(), "bench: 0 passed, ") {
			t.Errorf("%v: printed %q", args, out.String())
		}
	}
}
