// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// ErrNotCounted is returned by every question to a [Log] that has nothing to read: the control plane is not ours, or
// runs without an audit log. A figure that was not measured must not look like zero.
var ErrNotCounted = errors.New("requests are not counted on this control plane")

// Log reads an API server's audit log. The zero value and nil count nothing and answer [ErrNotCounted]. It is safe for
// concurrent use.
type Log struct {
	path string
}

// Open returns a reader of the JSON-lines audit log at path. The file may not exist yet: until it does, no request has
// been counted.
func Open(path string) *Log {
	return &Log{path: path}
}

// Counted says whether there is a log to count from.
func (l *Log) Counted() bool {
	return l != nil && l.path != ""
}

// Path returns the file that is read, or "".
func (l *Log) Path() string {
	if l == nil {
		return ""
	}
	return l.path
}

// Mark is a position in the log. The zero Mark is its beginning.
type Mark struct {
	offset int64
}

// Mark returns the position after the last complete line: requests answered from now on are after it. It returns the
// beginning when the log cannot be read; the call that counts then says why.
func (l *Log) Mark() Mark {
	if !l.Counted() {
		return Mark{}
	}
	f, err := os.Open(l.path)
	if err != nil {
		return Mark{}
	}
	defer f.Close()
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return Mark{}
	}
	// A line is appended by one write, but a reader may see the first part of it: step back to the last line's end.
	buf := make([]byte, 4096)
	for end > 0 {
		n := min(end, int64(len(buf)))
		if _, err := f.ReadAt(buf[:n], end-n); err != nil {
			return Mark{}
		}
		if i := bytes.LastIndexByte(buf[:n], '\n'); i >= 0 {
			return Mark{offset: end - n + int64(i) + 1}
		}
		end -= n
	}
	return Mark{}
}

// Since returns the requests answered after mark that match every filter, without [Noise].
func (l *Log) Since(mark Mark, filters ...Filter) (Requests, error) {
	return l.Everything(mark, append([]Filter{Not(Noise)}, filters...)...)
}

// Everything returns the requests answered after mark that match every filter, noise included.
func (l *Log) Everything(mark Mark, filters ...Filter) (Requests, error) {
	var out Requests
	_, err := l.read(mark, func(r Request) {
		if matches(r, filters) {
			out = append(out, r)
		}
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// settleEvery is how often Settle looks; a look that finds nothing costs one open and one short read.
const settleEvery = 20 * time.Millisecond

// Settle waits until no request that matches every filter, [Noise] aside, has been answered for the time quiet,
// counted from the call at the earliest. When ctx ends first, the error says what was still being asked.
func (l *Log) Settle(ctx context.Context, quiet time.Duration, filters ...Filter) error {
	if !l.Counted() {
		return ErrNotCounted
	}
	filters = append([]Filter{Not(Noise)}, filters...)
	mark, since := l.Mark(), time.Now()
	var seen int
	var last Request
	tick := time.NewTicker(min(settleEvery, max(quiet/4, time.Millisecond)))
	defer tick.Stop()
	for {
		next, err := l.read(mark, func(r Request) {
			if matches(r, filters) {
				seen, last, since = seen+1, r, time.Now()
			}
		})
		if err != nil {
			return err
		}
		mark = next
		if time.Since(since) >= quiet {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			if seen == 0 {
				return fmt.Errorf("wait for %s without requests: %w", quiet, context.Cause(ctx))
			}
			return fmt.Errorf("wait for %s without requests: %d came, the last was %s: %w", quiet, seen, last, context.Cause(ctx))
		}
	}
}

// read calls each for every counted request after mark and returns the position after the last complete line.
func (l *Log) read(mark Mark, each func(Request)) (Mark, error) {
	if !l.Counted() {
		return mark, ErrNotCounted
	}
	f, err := os.Open(l.path)
	if errors.Is(err, os.ErrNotExist) {
		return mark, nil
	}
	if err != nil {
		return mark, fmt.Errorf("open audit log: %w", err)
	}
	defer f.Close()
	if _, err := f.Seek(mark.offset, io.SeekStart); err != nil {
		return mark, fmt.Errorf("seek in audit log: %w", err)
	}
	in := bufio.NewReaderSize(f, 64<<10)
	for {
		line, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return mark, nil // what is left is a line still being written
		}
		if err != nil {
			return mark, fmt.Errorf("read audit log: %w", err)
		}
		mark.offset += int64(len(line))
		r, ok, err := decode(line)
		if err != nil {
			return mark, fmt.Errorf("audit log %s, before offset %d: %w", l.path, mark.offset, err)
		}
		if ok {
			each(r)
		}
	}
}
