// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conditions

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

const (
	// maxMessage is the limit in bytes. A CRD counts runes, ValidateCondition counts bytes: bytes satisfy both.
	maxMessage = 32768

	// maxQuote bounds a message that is repeated on another condition; the whole text stands on its own one.
	maxQuote = 1024

	markHead = "… (+"
	markTail = " more bytes)"
	markRoom = len(markHead) + 20 + len(markTail)
)

// legalMessage returns s when it can be stored as it is, else valid UTF-8 of at most maxMessage bytes. Bytes that are
// not UTF-8 would come back from the server as U+FFFD and differ from ours for ever, so they are replaced before
// anything is compared.
func legalMessage(s string) string {
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "\uFFFD")
	}
	if len(s) <= maxMessage {
		return s
	}
	return string(appendCut(nil, s, maxMessage))
}

// appendCut appends s, which is valid UTF-8, shortened to at most limit bytes. A shortened text ends on a rune boundary
// and says how many bytes are missing, those missing from an already shortened text included.
func appendCut(dst []byte, s string, limit int) []byte {
	if len(s) <= limit {
		return append(dst, s...)
	}
	body, missing := splitMark(s)
	keep := min(max(limit-markRoom, 0), len(body))
	for keep > 0 && keep < len(body) && !utf8.RuneStart(body[keep]) {
		keep--
	}
	dst = append(dst, body[:keep]...)
	dst = append(dst, markHead...)
	dst = strconv.AppendInt(dst, int64(missing+len(body)-keep), 10)
	return append(dst, markTail...)
}

// splitMark takes the mark off a shortened text.
func splitMark(s string) (body string, missing int) {
	if !strings.HasSuffix(s, markTail) {
		return s, 0
	}
	i := strings.LastIndex(s, markHead)
	if i < 0 {
		return s, 0
	}
	n, err := strconv.Atoi(s[i+len(markHead) : len(s)-len(markTail)])
	if err != nil || n <= 0 || n > 1<<30 {
		return s, 0 // somebody's own text
	}
	return s[:i], n
}

// appendLine appends s as one line of at most limit bytes.
func appendLine(dst []byte, s string, limit int) []byte {
	start := len(dst)
	dst = appendCut(dst, s, limit)
	for i := start; i < len(dst); i++ {
		if dst[i] == '\n' || dst[i] == '\r' {
			dst[i] = ' '
		}
	}
	return dst
}

// settle returns the composed text as a string and costs nothing when it is the text that is on the object already.
func settle(composed []byte, live string) string {
	if string(composed) == live {
		return live
	}
	return string(composed)
}
