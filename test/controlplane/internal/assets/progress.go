// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package assets

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

// heartbeat is how often a log gets a line, terminalBeat how often a terminal's line is renewed.
const (
	heartbeat    = 10 * time.Second
	terminalBeat = time.Second
)

// progress tells humans what goes on. One step at a time.
type progress struct {
	w        io.Writer
	terminal bool
	every    time.Duration
}

func newProgress(w io.Writer, every time.Duration) *progress {
	p := &progress{w: w, every: every}
	if w == nil {
		p.w = io.Discard
	}
	if every == 0 {
		p.every = heartbeat
	}
	if f, ok := w.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			p.terminal, p.every = true, terminalBeat
		}
	}
	return p
}

func (p *progress) say(format string, args ...any) {
	fmt.Fprintf(p.w, "controlplane: "+format+"\n", args...)
}

// step is one thing that takes a while. A nil step is one that never began.
type step struct {
	p       *progress
	title   string
	started time.Time
	stop    chan struct{}
	ticker  sync.WaitGroup

	mu                   sync.Mutex
	downloaded, compiled int
	packages             int
	main                 string // the program's own package: compiled last
	linking              bool
	last                 string
}

func (p *progress) begin(title string) *step {
	s := &step{p: p, title: title, started: time.Now(), stop: make(chan struct{})}
	if p.terminal {
		s.line()
	} else {
		p.say("%s", title)
	}
	s.ticker.Go(s.tick)
	return s
}

func (s *step) tick() {
	t := time.NewTicker(s.p.every)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			s.line()
		case <-s.stop:
			return
		}
	}
}

// line writes where the step is: over the last line on a terminal, as a new one elsewhere.
func (s *step) line() {
	text := fmt.Sprintf("controlplane: %s: %s%s", s.title, time.Since(s.started).Round(time.Second), s.detail())
	if s.p.terminal {
		fmt.Fprintf(s.p.w, "\r\x1b[K%.100s", text)
		return
	}
	fmt.Fprintln(s.p.w, text)
}

func (s *step) detail() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.linking:
		return ", linking"
	case s.compiled > 0:
		return fmt.Sprintf(", %d of at most %d packages compiled, now %s", s.compiled, s.packages, s.last)
	case s.downloaded > 0:
		return fmt.Sprintf(", %d modules downloaded, now %s", s.downloaded, s.last)
	}
	return ""
}

// total says how many packages the program has, its main one included. How many of them are in the build cache is not
// known before.
func (s *step) total(main string, packages int) {
	s.mu.Lock()
	s.main, s.packages = main, packages
	s.mu.Unlock()
}

func (s *step) end(err error) {
	if s == nil {
		return
	}
	close(s.stop)
	s.ticker.Wait()
	if s.p.terminal {
		fmt.Fprint(s.p.w, "\r\x1b[K")
	}
	if took := time.Since(s.started).Round(100 * time.Millisecond); err != nil {
		s.p.say("%s: failed after %s", s.title, took)
	} else {
		s.p.say("%s: done in %s", s.title, took)
	}
}

// messages reads what the go command writes to its standard error: downloads, the packages it compiles (with -v), and
// errors, of which it keeps the end.
type messages struct {
	step *step
	part []byte
	rest []string
}

// messageLines is how much of a compiler's complaint an error shows.
const messageLines = 20

// Write implements io.Writer. It is called from one goroutine.
func (m *messages) Write(p []byte) (int, error) {
	m.part = append(m.part, p...)
	for {
		i := bytes.IndexByte(m.part, '\n')
		if i < 0 {
			return len(p), nil
		}
		m.line(string(m.part[:i]))
		m.part = m.part[i+1:]
	}
}

func (m *messages) line(line string) {
	m.step.mu.Lock()
	defer m.step.mu.Unlock()
	if what, ok := strings.CutPrefix(line, "go: downloading "); ok {
		m.step.downloaded++
		m.step.last = what
		return
	}
	if !strings.ContainsAny(line, " :") { // -v prints an import path when it begins to compile it
		m.step.compiled++
		m.step.last = line
		m.step.linking = line == m.step.main
		return
	}
	if m.rest = append(m.rest, line); len(m.rest) > messageLines {
		m.rest = m.rest[1:]
	}
}

// end returns the last messages. The command must have ended.
func (m *messages) end() string {
	if len(m.part) > 0 {
		m.rest = append(m.rest, string(m.part))
	}
	return strings.Join(m.rest, "\n")
}
