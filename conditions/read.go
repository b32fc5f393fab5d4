// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conditions

import (
	"encoding/json"
	"math"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Read returns the conditions of an object of any kind, in order, from the list at path, or at status.conditions when no
// path is given. It never panics and never fails: what is not a list is no conditions, an item without a type in it is
// left out, a status that is not True, False or Unknown is Unknown, any other field of an unexpected kind is zero. u is
// not changed and shares nothing with the result but strings.
func Read(u *unstructured.Unstructured, path ...string) []metav1.Condition {
	if u == nil {
		return nil
	}
	if len(path) == 0 {
		path = statusConditions[:]
	}
	var at any = u.Object
	for _, key := range path {
		fields, ok := at.(map[string]any)
		if !ok {
			return nil
		}
		at = fields[key]
	}
	items, ok := at.([]any)
	if !ok || len(items) == 0 {
		return nil
	}
	out := make([]metav1.Condition, 0, len(items))
	for _, item := range items {
		fields, _ := item.(map[string]any)
		typ, _ := fields["type"].(string)
		if typ == "" {
			continue
		}
		status, _ := fields["status"].(string)
		reason, _ := fields["reason"].(string)
		message, _ := fields["message"].(string)
		out = append(out, metav1.Condition{
			Type: typ, Status: truthOf(metav1.ConditionStatus(status)).status(), Reason: reason, Message: message,
			ObservedGeneration: readInt(fields["observedGeneration"]),
			LastTransitionTime: readTime(fields["lastTransitionTime"]),
		})
	}
	return out
}

var statusConditions = [...]string{"status", "conditions"}

// readInt accepts what the decoders in use produce for a number.
func readInt(v any) int64 {
	switch n := v.(type) {
	case int64:
		return max(n, 0)
	case int:
		return max(int64(n), 0)
	case float64:
		if n >= 0 && n < math.MaxInt64 && n == math.Trunc(n) {
			return int64(n)
		}
	case json.Number:
		if i, err := n.Int64(); err == nil {
			return max(i, 0)
		}
	}
	return 0
}

func readTime(v any) metav1.Time {
	s, _ := v.(string)
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return metav1.Time{}
	}
	return metav1.Time{Time: t.Local()} // as the typed decoder has it
}
