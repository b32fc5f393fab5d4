// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conditions

import (
	"strings"
	"text/tabwriter"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Explain tells a human what conds say and why: the root, the path from it to the cause, then every type in topological
// order with its health. It reads any conditions, also such that no pass has produced. The text is for people and may
// change between releases.
func (s *Set) Explain(conds []metav1.Condition) string {
	p := Pass{set: s, live: conds}
	if !p.open() {
		return ""
	}
	defer p.close()
	p.judge()

	var b strings.Builder
	b.WriteString(s.root)
	if r := p.scratch.root.live; r > 0 {
		b.WriteString(" is " + phrase(&conds[r-1]))
	} else {
		b.WriteString(" is absent")
	}
	b.WriteString("\n")
	if cause := p.first(s.counted); cause >= 0 {
		b.WriteString("because " + p.telling(cause) + "\n")
		p.because(&b, cause)
	}
	p.table(&b)
	return b.String()
}

// judge takes the health of every type from what is live, without deciding anything.
func (p *Pass) judge() {
	for _, i := range p.set.order {
		e := &p.scratch.entries[i]
		e.health = absent(&p.set.types[i])
		if e.live > 0 {
			c := &p.live[e.live-1]
			e.health = healthOf(p.set.types[i].Negative, truthOf(c.Status))
			if e.health == unknown && p.set.isBlock(i, c.Reason) {
				e.blocker = int32(max(p.blocker(i), -1) + 1)
			}
		}
	}
}

// because lists what the cause keeps from being judged.
func (p *Pass) because(b *strings.Builder, cause int) {
	var names []string
	for _, i := range p.set.order {
		at := i
		for p.scratch.entries[at].blocker > 0 {
			at = int(p.scratch.entries[at].blocker) - 1
		}
		if at == cause && i != cause {
			names = append(names, p.set.types[i].Name)
		}
	}
	if len(names) > 0 {
		b.WriteString("which blocks " + strings.Join(names, ", ") + "\n")
	}
}

func (p *Pass) telling(i int) string {
	name := p.set.types[i].Name
	if l := p.scratch.entries[i].live; l > 0 {
		return name + " is " + phrase(&p.live[l-1])
	}
	return name + " is absent"
}

func (p *Pass) table(b *strings.Builder) {
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	for _, i := range p.set.order {
		e := &p.scratch.entries[i]
		cells := []string{"  " + e.health.String(), p.set.types[i].Name, "absent"}
		if e.live > 0 {
			c := &p.live[e.live-1]
			cells[2] = oneLine(string(c.Status))
			if c.Reason != "" {
				cells = append(cells, oneLine(c.Reason))
			}
		}
		if e.blocker > 0 {
			cells = append(cells, "waits for "+p.set.types[e.blocker-1].Name)
		}
		_, _ = w.Write([]byte(strings.Join(cells, "\t") + "\n")) // a strings.Builder never fails
	}
	_ = w.Flush()
}

// phrase is status, reason and the first line of the message.
func phrase(c *metav1.Condition) string {
	s := oneLine(string(c.Status))
	if c.Reason != "" {
		s += " (" + oneLine(c.Reason) + ")"
	}
	if line, _, _ := strings.Cut(c.Message, "\n"); line != "" {
		s += ": " + oneLine(line)
	}
	return s
}

// oneLine makes a value of unknown origin fit into a line of text.
func oneLine(s string) string {
	return strings.ReplaceAll(string(appendLine(nil, legalMessage(s), maxQuote)), "\t", " ")
}
