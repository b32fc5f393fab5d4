// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
)

// Five is how many conditions the object of the statussync metrics has, the root among them.
const Five = 5

// TransitionTime is when every condition last changed; both sides keep it, so it is never what differs.
const TransitionTime = "2026-03-01T12:00:00Z"

// State is a state of the object of the statussync metrics, which alternates between 0 and another one: 1 differs in
// one condition and one payload field, 2 in the condition alone.
type State int

// Ready is the payload field.
func (s State) Ready() int32 { return 3 - int32(s)&1 }

// Conditions are the five of a state, the root first.
func (s State) Conditions() []Condition {
	out := append([]Condition{{Type: Root, Status: "True", Reason: "Serving", Message: "the database answers queries"}},
		Conditions(Five-1, "True")...)
	if s != 0 {
		out[Five-1] = Conditions(Five-1, "False")[Five-2]
	}
	return out
}

// Reply is the object as an API server returns it after the status was written: in a state, at a version and a
// generation that status and conditions have observed. Its managedFields are those of a user who applied the spec and
// a controller that wrote the status; an apply and an update have the same entries, so every side gets the same bytes.
func (s State) Reply(version, generation int64) []byte {
	t := replies()[s]
	var b strings.Builder
	b.Grow(len(t) + 64)
	gen := strconv.FormatInt(generation, 10)
	for {
		head, rest, ok := strings.Cut(t, "%")
		b.WriteString(head)
		if !ok {
			return []byte(b.String())
		}
		switch rest[0] {
		case 'V':
			b.WriteString(strconv.FormatInt(version, 10))
		default:
			b.WriteString(gen)
		}
		t = rest[1:]
	}
}

var replies = sync.OnceValue(func() [3]string { return [3]string{reply(0), reply(1), reply(2)} })

func reply(s State) string {
	var list, owned strings.Builder
	for i, c := range s.Conditions() {
		if i > 0 {
			list.WriteByte(',')
			owned.WriteByte(',')
		}
		fmt.Fprintf(&list, `{"lastTransitionTime":%q,"message":%q,"observedGeneration":%%G,"reason":%q,"status":%q,"type":%q}`,
			TransitionTime, c.Message, c.Reason, c.Status, c.Type)
		fmt.Fprintf(&owned, `"k:{\"type\":\"%s\"}":{".":{},"f:lastTransitionTime":{},"f:message":{},"f:observedGeneration":{},`+
			`"f:reason":{},"f:status":{},"f:type":{}}`, c.Type)
	}
	return `{"apiVersion":"example.com/v1","kind":"Database","metadata":{"creationTimestamp":"2026-02-01T08:00:00Z",` +
		`"finalizers":["example.com/database"],"generation":%G,"labels":{"app.kubernetes.io/name":"orders","team":"shop"},` +
		`"managedFields":[{"apiVersion":"example.com/v1","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:labels":{` +
		`"f:app.kubernetes.io/name":{},"f:team":{}}},"f:spec":{"f:replicas":{},"f:version":{}}},"manager":"kubectl",` +
		`"operation":"Apply","time":"2026-02-01T08:00:00Z"},{"apiVersion":"example.com/v1","fieldsType":"FieldsV1","fieldsV1":{` +
		`"f:status":{"f:conditions":{` + owned.String() + `},"f:observedGeneration":{},"f:readyReplicas":{}}},"manager":"database-operator",` +
		`"operation":"Update","subresource":"status","time":"2026-03-01T12:00:00Z"}],"name":"orders","namespace":"shop",` +
		`"resourceVersion":"%V","uid":"7c9f2b0e-4d6a-4b6e-9b62-3f1f5c1d2a10"},"spec":{"replicas":3,"version":"17.2"},` +
		`"status":{"conditions":[` + list.String() + `],"observedGeneration":%G,"readyReplicas":` +
		strconv.Itoa(int(s.Ready())) + `}}`
}
