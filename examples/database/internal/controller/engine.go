// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// majors are the engine versions this operator knows how to run, oldest first.
func majors() []string { return []string{"16", "17", "18"} }

// unsupported is the sentence that refuses a version, or empty. The CRD has
// checked the form; which versions exist is a property of the operator, so it
// is said in a condition and not by the schema.
func unsupported(version string) string {
	if slices.Contains(majors(), major(version)) {
		return ""
	}
	return fmt.Sprintf("spec.version is %q, but its major must be one of %s: set a supported version",
		version, strings.Join(majors(), ", "))
}

func major(version string) string {
	head, _, _ := strings.Cut(version, ".")
	return head
}

func image(version string) string { return "postgres:" + version }

// config is the engine's configuration. It changes with the major only, so that
// a minor upgrade leaves the ConfigMap alone.
func config(version string) string {
	lines := []string{
		"listen_addresses = '*'",
		"port = " + strconv.Itoa(port),
		"unix_socket_directories = '/tmp'",
	}
	if m, err := strconv.Atoi(major(version)); err == nil && m >= 18 {
		lines = append(lines, "io_method = worker") // the setting is new in 18, and an unknown one stops the engine
	}
	return strings.Join(lines, "\n") + "\n"
}

// agree reports whether two versions are the same as far as both are spelled
// out: 17 agrees with 17.2, 17.1 does not.
func agree(a, b string) bool {
	x, y := strings.Split(strings.TrimPrefix(a, "v"), "."), strings.Split(strings.TrimPrefix(b, "v"), ".")
	n := min(len(x), len(y))
	return slices.Equal(x[:n], y[:n])
}
