// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conditions

import (
	"cmp"
	"iter"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The budget of a summary: this many messages with this many names each. Together with the limits of their parts a
// summary stays below 4 KiB for any number of members.
const (
	topMessages = 3
	topNames    = 3

	maxText = 256 // bytes of a member's message
	maxName = 128 // bytes of a member's key or reason
)

// Summarize sums up condition source of many objects as one condition as.Name, for [Pass.Put]. members yields each
// object's key, usually namespace/name and unique, and its conditions, which are only read.
//
// as.Negative is the polarity of source and of the result; a member without the condition is Unknown, or good when it
// is negative and not as.Required. Any bad member makes the result bad, else any Unknown one Unknown. No members at
// all is good, with reason NoMembers. The reason is that of the members who decide, or Mixed when they disagree.
//
// The message counts the members and gives three messages with three names each and a "+n more" for the rest: most
// frequent first, bad before Unknown, ties by text, names sorted, so it does not depend on the order of members. What
// healthy members have to say appears only when all are healthy. Messages equal under as.Redact are one, shown redacted.
// The other fields of as are not used. Cost: O(n) for n members with few distinct messages.
func Summarize(as Type, source string, members iter.Seq2[string, []metav1.Condition]) metav1.Condition {
	s := summary{as: &as}
	groups := map[statement]*digest{}
	var all [3][]*digest
	for key, conds := range members {
		st := stateOf(&as, source, conds)
		d := groups[st]
		if d == nil {
			d = &digest{statement: st}
			groups[st] = d
			all[st.health+1] = append(all[st.health+1], d)
		}
		d.admit(key)
	}
	for h, ds := range all {
		slices.SortFunc(ds, func(a, b *digest) int {
			if before(a.count, &a.statement, b.count, &b.statement) {
				return -1
			}
			return 1
		})
		s.groups[h] = len(ds)
		for i, d := range ds {
			s.count[h] += d.count
			s.mixed[h] = s.mixed[h] || d.reason != ds[0].reason
			if i < topMessages {
				s.top[h][i] = *d
			}
		}
	}
	return s.condition()
}

// statement is what one member says. Members with equal statements are told together.
type statement struct {
	health health
	reason string
	text   string // one line of at most maxText bytes
}

// stateOf judges one member.
func stateOf(as *Type, source string, conds []metav1.Condition) statement {
	for i := range conds {
		c := &conds[i]
		if c.Type != source {
			continue
		}
		text := c.Message
		if as.Redact != nil {
			text = as.Redact(text)
		}
		if len(text) > 4*maxText { // little of a long text is shown, so little of it is looked at
			text = string(appendCut(nil, text, 4*maxText))
		}
		if text = legalMessage(text); len(text) > maxText || strings.ContainsAny(text, "\r\n") {
			text = string(appendLine(nil, text, maxText))
		}
		return statement{health: healthOf(as.Negative, truthOf(c.Status)), reason: legalReason(c.Reason), text: text}
	}
	if h := absent(as); h == good {
		return statement{health: good}
	}
	return statement{health: unknown, reason: ReasonNotReported}
}

// before ranks two statements of the same health. Among healthy ones those with a message come first: an empty one has
// nothing to show.
func before(n int, a *statement, m int, b *statement) bool {
	if a.health == good && (a.text == "") != (b.text == "") {
		return a.text != ""
	}
	if n != m {
		return n > m
	}
	return cmp.Or(cmp.Compare(a.text, b.text), cmp.Compare(a.reason, b.reason)) < 0
}

// digest is a statement with its number of members and the first of their names.
type digest struct {
	statement
	count int
	names [topNames]string
}

// admit counts a member and keeps its name when it is among the smallest.
func (d *digest) admit(key string) {
	n := min(d.count, topNames)
	d.count++
	i := n
	for i > 0 && key < d.names[i-1] {
		i--
	}
	if i == topNames {
		return
	}
	copy(d.names[i+1:], d.names[i:])
	d.names[i] = key
}

// summary is everything a summary shows, by health: bad, Unknown, good.
type summary struct {
	as     *Type
	count  [3]int
	groups [3]int
	mixed  [3]bool
	top    [3][topMessages]digest
}

func (s *summary) condition() metav1.Condition {
	statuses := [3]metav1.ConditionStatus{metav1.ConditionFalse, metav1.ConditionUnknown, metav1.ConditionTrue}
	if s.as.Negative {
		statuses[0], statuses[2] = statuses[2], statuses[0]
	}
	total := s.count[0] + s.count[1] + s.count[2]
	if total == 0 {
		return metav1.Condition{Type: s.as.Name, Status: statuses[2], Reason: ReasonNoMembers, Message: "no members"}
	}
	decides := 0
	for s.count[decides] == 0 {
		decides++
	}
	reason := legalReason(s.top[decides][0].reason)
	if s.mixed[decides] {
		reason = ReasonMixed
	} else if s.top[decides][0].reason == "" {
		reason = ReasonHealthy // negative and absent everywhere
	}

	b := strconv.AppendInt(nil, int64(s.count[decides]), 10)
	b = append(b, " of "...)
	b = strconv.AppendInt(b, int64(total), 10)
	b = append(append(b, ' '), statuses[decides]...)
	if decides == 0 && s.count[1] > 0 {
		b = append(b, ", "...)
		b = strconv.AppendInt(b, int64(s.count[1]), 10)
		b = append(b, " Unknown"...)
	}
	b = s.appendTop(b, decides)
	return metav1.Condition{Type: s.as.Name, Status: statuses[decides], Reason: reason, Message: legalMessage(string(b))}
}

// appendTop appends the first messages of the health that decides and, while there is room, of Unknown members.
func (s *summary) appendTop(b []byte, decides int) []byte {
	shown, left := 0, 0
	for h := decides; h <= max(decides, 1); h++ {
		left += s.groups[h]
		for i := range min(s.groups[h], topMessages) {
			d := &s.top[h][i]
			if shown == topMessages || h == 2 && d.text == "" {
				break
			}
			if shown == 0 {
				b = append(b, ": "...)
			} else {
				b = append(b, "; "...)
			}
			b = d.append(b)
			shown++
			left--
		}
	}
	if decides == 2 || left == 0 {
		return b // healthy members without a message are in the count already
	}
	b = append(b, "; +"...)
	b = strconv.AppendInt(b, int64(left), 10)
	return append(b, " more messages"...)
}

func (d *digest) append(b []byte) []byte {
	b = appendCut(b, d.reason, maxName)
	if d.text != "" {
		b = append(append(b, ": "...), d.text...)
	}
	b = append(b, " ("...)
	n := min(d.count, topNames)
	for i, name := range d.names[:n] {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = appendLine(b, name, maxName)
	}
	if d.count > n {
		b = append(b, " +"...)
		b = strconv.AppendInt(b, int64(d.count-n), 10)
		b = append(b, " more"...)
	}
	return append(b, ')')
}
