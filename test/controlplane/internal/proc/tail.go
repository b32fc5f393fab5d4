// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package proc

import (
	"bufio"
	"bytes"
	"os"
	"regexp"
	"strings"
)

// Bounds of a tail: how many lines are worth a reader's time, and how much of one.
const (
	tailLines = 15
	lineBytes = 2000
)

// crash begins what the Go runtime says before it prints stack traces.
var crash = regexp.MustCompile(`^(panic|fatal error|SIG[A-Z]+): `)

// Tail returns the end of a log for an error message: the last lines, or the lines from the last crash on, whose stack
// traces (megabytes, for a server) would otherwise push the reason out of sight.
func Tail(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return "(no log: " + err.Error() + ")"
	}
	defer f.Close()
	var last []string
	crashed := false
	in := bufio.NewReaderSize(f, 64<<10)
	for {
		line, err := in.ReadSlice('\n') // a longer line than the buffer comes in pieces, which does no harm
		if text := string(bytes.TrimRight(line[:min(len(line), lineBytes)], "\n")); text != "" || crashed {
			switch {
			case crash.MatchString(text):
				last, crashed = []string{text}, true
			case len(last) < tailLines:
				last = append(last, text)
			case !crashed:
				last = append(last[1:], text)
			}
		}
		if err != nil && err != bufio.ErrBufferFull {
			break // the end, or what cannot be read any further
		}
	}
	if len(last) == 0 {
		return "(the log is empty)"
	}
	return strings.TrimSpace(strings.Join(last, "\n"))
}
