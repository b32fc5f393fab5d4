// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conditions

import (
	"strconv"
	"strings"
)

// Names the package writes by itself. They are part of the API of every object that carries its conditions.
const (
	// ReasonHealthy is the root's reason when every declared type is good.
	ReasonHealthy = "Healthy"

	// ReasonNotReported marks a type nobody gave a verdict on in this pass.
	ReasonNotReported = "NotReported"

	// ReasonBlockedBy, followed by the name of a needed type, marks a type that cannot be judged yet. Characters of
	// the name that a reason must not hold become "_".
	ReasonBlockedBy = "BlockedBy"

	// ReasonHandlerFailed marks a type whose handler returned nothing but an error, or panicked.
	ReasonHandlerFailed = "HandlerFailed"

	// ReasonUnspecified stands in for an empty reason, which the API server would refuse.
	ReasonUnspecified = "Unspecified"

	// ReasonMixed is the reason of a summary whose members give several reasons.
	ReasonMixed = "Mixed"

	// ReasonNoMembers is the reason of a summary over no members.
	ReasonNoMembers = "NoMembers"

	// Reconciling and Stalled are the two types kstatus reads. Every Set derives them; none may declare them.
	Reconciling = "Reconciling"
	Stalled     = "Stalled"
)

// maxReason is the limit of the API server, in bytes.
const maxReason = 1024

const (
	letter = 1 << iota // may start a reason
	inner              // may stand inside
	final              // may end one
)

// reasonChars classifies bytes for the pattern ^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$ of metav1.Condition.
// A table, because it is consulted for every byte of every reason of every pass.
var reasonChars = func() (t [256]byte) {
	for c := range t {
		switch {
		case 'A' <= c && c <= 'Z', 'a' <= c && c <= 'z':
			t[c] = letter | inner | final
		case '0' <= c && c <= '9', c == '_':
			t[c] = inner | final
		case c == ',', c == ':':
			t[c] = inner
		}
	}
	return t
}()

func isLegalReason(s string) bool {
	if len(s) == 0 || len(s) > maxReason || reasonChars[s[0]]&letter == 0 || reasonChars[s[len(s)-1]]&final == 0 {
		return false
	}
	for i := range len(s) {
		if reasonChars[s[i]]&inner == 0 {
			return false
		}
	}
	return true
}

// legalReason returns s when the API server accepts it, else the nearest reason that it does accept. The result is a
// fixpoint. An object without its condition would be worse than one with an underscore in a reason.
func legalReason(s string) string {
	if isLegalReason(s) {
		return s
	}
	if s == "" {
		return ReasonUnspecified
	}
	b := make([]byte, 0, min(len(s), maxReason)+1)
	for _, r := range s {
		if r < 128 && reasonChars[byte(r)]&inner != 0 {
			b = append(b, byte(r))
		} else {
			b = append(b, '_')
		}
	}
	if reasonChars[b[0]]&letter == 0 {
		b = append([]byte{'R'}, b...) // "404" → "R404"
	}
	b = trimReason(b)
	if len(b) > maxReason {
		const room = len("__more") + 20 // 20: digits of any length an int can hold
		kept := b[:maxReason-room]
		b = append(strconv.AppendInt(append(kept, '_'), int64(len(b)-len(kept)), 10), "_more"...)
	}
	return string(b)
}

// trimReason drops what may stand inside a reason but not at its end. The first byte is a letter, so some is left.
func trimReason(b []byte) []byte {
	for reasonChars[b[len(b)-1]]&final == 0 {
		b = b[:len(b)-1]
	}
	return b
}

// blockedReason is BlockedBy<name> as a legal reason. A type name holds letters, digits, "-", "_", "." and "/" and ends
// in a letter or digit, so only the characters need care.
func blockedReason(name string) string {
	return ReasonBlockedBy + strings.Map(func(r rune) rune {
		if r < 128 && reasonChars[byte(r)]&final != 0 {
			return r
		}
		return '_'
	}, name)
}
