// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conversion

import "strings"

// legal reports whether a change of labels or annotations leaves what an API server takes: it refuses the whole review for
// anything else, so who forges an annotation could stop every LIST. The rules are those of
// k8s.io/apimachinery/pkg/api/validation.
func (ch Change) legal() bool {
	var d doc
	if ch.New != nil && d.parse(ch.New) != nil {
		return false
	}
	labels := strings.HasPrefix(ch.Path, labelsPath)
	path := annotationsPath
	if labels {
		path = labelsPath
	}
	at, ok := strings.CutPrefix(ch.Path, path)
	switch name, member := strings.CutPrefix(at, "/"); {
	case !ok || at != "" && !member || strings.Contains(name, "/"):
		return false
	case ch.New == nil:
		return true
	case member:
		return legalString(unescape(name), ref{&d, 0}, labels)
	}
	all := ref{&d, 0}
	for m := range all.children() {
		if !legalString(string(m.name()), m, labels) {
			return false
		}
	}
	return all.kind() == '{'
}

func legalString(name string, value ref, label bool) bool {
	if !label {
		name = strings.ToLower(name)
	}
	prefix, base, ok := strings.Cut(name, "/")
	if !ok {
		base = prefix
	}
	return (!ok || subdomain(prefix)) && base != "" && word(base) && value.kind() == '"' && (!label || word(string(value.str())))
}

// word reports whether s holds letters and digits, up to 63, and dashes, underscores and dots within them.
func word(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9':
		case i > 0 && i < len(s)-1 && (c == '-' || c == '_' || c == '.'):
		default:
			return false
		}
	}
	return len(s) <= 63
}

func subdomain(s string) bool {
	for part := range strings.SplitSeq(s, ".") {
		// Its parts may be longer than words may.
		if part == "" || strings.ToLower(part) != part || strings.Contains(part, "_") || !word(part[:1]) || !word(part[len(part)-1:]) {
			return false
		}
		for i := range len(part) {
			if part[i] != '-' && !word(part[i:i+1]) {
				return false
			}
		}
	}
	return len(s) <= 253
}
