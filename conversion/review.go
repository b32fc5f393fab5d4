// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conversion

import (
	"errors"
	"fmt"
)

// review is a ConversionReview as it came: places in the body.
type review struct {
	apiVersion string
	uid        string
	desired    string
	objects    [][]byte
}

var (
	errNoReview  = errors.New("the body is no ConversionReview of apiextensions.k8s.io/v1 or v1beta1")
	errNoRequest = errors.New("the ConversionReview has no request")
)

// readReview finds the parts of a review. The objects are only cut out: whoever converts one finds out whether it is JSON.
func readReview(raw []byte, mem *doc) (review, error) {
	var v review
	var kind string
	request := false
	s := scanner{raw: raw, nodes: mem.nodes[:0]}
	end, err := s.each(s.space(0), func(name []byte, i int) (int, error) {
		switch string(name) {
		case "apiVersion":
			return s.text(i, &v.apiVersion)
		case "kind":
			return s.text(i, &kind)
		case "request":
			if i < len(raw) && raw[i] == '{' {
				request = true
				return s.each(i, func(name []byte, i int) (int, error) {
					switch string(name) {
					case "uid":
						return s.text(i, &v.uid)
					case "desiredAPIVersion":
						return s.text(i, &v.desired)
					case "objects":
						return s.cut(i, &v.objects)
					}
					return s.whole(i)
				})
			}
		}
		return s.whole(i)
	})
	if err == nil {
		if end = s.space(end); end < len(raw) {
			err = s.bad(end, "the end")
		}
	}
	mem.nodes = s.nodes
	switch {
	case err != nil:
		return v, fmt.Errorf("read the body: %w", err)
	case kind != "ConversionReview" || v.apiVersion != "apiextensions.k8s.io/v1" && v.apiVersion != "apiextensions.k8s.io/v1beta1":
		return v, errNoReview
	case !request:
		return v, errNoRequest
	case v.uid == "":
		return v, errors.New("the request has no uid")
	case v.desired == "":
		return v, errors.New("the request has no desiredAPIVersion")
	}
	return v, nil
}

// each calls f with every member of the object at i; f returns where the value ends.
func (s *scanner) each(i int, f func(name []byte, i int) (int, error)) (int, error) {
	if i >= len(s.raw) || s.raw[i] != '{' {
		return i, s.bad(i, "an object")
	}
	if i = s.space(i + 1); i < len(s.raw) && s.raw[i] == '}' {
		return i + 1, nil
	}
	for {
		if i >= len(s.raw) || s.raw[i] != '"' {
			return i, s.bad(i, "a member's name")
		}
		key := i + 1
		end, escaped, err := s.str(key)
		if err != nil {
			return end, err
		}
		name := s.raw[key : end-1]
		if escaped {
			name, _ = unquote(nil, name)
		}
		if i = s.space(end); i >= len(s.raw) || s.raw[i] != ':' {
			return i, s.bad(i, "':'")
		}
		if i, err = f(name, s.space(i+1)); err != nil {
			return i, err
		}
		if i = s.space(i); i < len(s.raw) && s.raw[i] == ',' {
			i = s.space(i + 1)
			continue
		}
		if i >= len(s.raw) || s.raw[i] != '}' {
			return i, s.bad(i, "',' or '}'")
		}
		return i + 1, nil
	}
}

// whole reads a value nobody asked for.
func (s *scanner) whole(i int) (int, error) {
	s.nodes = s.nodes[:0]
	return s.value(i, 0, 0, false, 0)
}

// text reads a string.
func (s *scanner) text(i int, into *string) (int, error) {
	end, err := s.whole(i)
	if err == nil && s.raw[i] == '"' {
		*into = string(ref{&doc{raw: s.raw, nodes: s.nodes}, 0}.str())
	}
	return end, err
}

// cut finds the items of a list without reading them: an item ends where its brackets are closed.
func (s *scanner) cut(i int, into *[][]byte) (int, error) {
	if i >= len(s.raw) || s.raw[i] != '[' {
		return s.whole(i) // null: no objects
	}
	list := (*into)[:0]
	if i = s.space(i + 1); i < len(s.raw) && s.raw[i] == ']' {
		*into = list
		return i + 1, nil
	}
	for {
		from := i
		depth := 0
		for {
			if i >= len(s.raw) {
				return i, errEnd
			}
			switch s.raw[i] {
			case '"':
				for i = plain(s.raw, i+1); ; i++ {
					if i >= len(s.raw) {
						return i, errEnd
					}
					if c := s.raw[i]; c == '"' {
						break
					} else if c == '\\' {
						i++
					}
				}
			case '{', '[':
				depth++
			case '}', ']':
				depth--
			}
			if depth < 0 || depth == 0 && (s.raw[i] == ',' || i+1 < len(s.raw) && (s.raw[i+1] == ',' || s.raw[i+1] == ']')) {
				break
			}
			i++
		}
		if depth == 0 && s.raw[i] != ',' {
			i++
		}
		list = append(list, s.raw[from:i])
		switch {
		case i < len(s.raw) && s.raw[i] == ',':
			i = s.space(i + 1)
		case i < len(s.raw) && s.raw[i] == ']':
			*into = list
			return i + 1, nil
		default:
			return i, s.bad(i, "',' or ']'")
		}
	}
}

// appendAnswer appends everything of a review up to the first object, or up to the end for a failure.
func (v *review) appendAnswer(b []byte, message string) []byte {
	b = appendString(append(b, `{"apiVersion":`...), v.apiVersion)
	b = appendString(append(b, `,"kind":"ConversionReview","response":{"uid":`...), v.uid)
	if message != "" {
		b = appendString(append(b, `,"result":{"status":"Failure","message":`...), message)
		return append(b, `},"convertedObjects":[]}}`...)
	}
	return append(b, `,"result":{"status":"Success"},"convertedObjects":[`...)
}
