// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conditions_test

import (
	"encoding/json"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// roundTrip is what the API server makes of conditions: times in whole seconds, strings of their own.
func roundTrip(t testing.TB, conds []metav1.Condition) []metav1.Condition {
	t.Helper()
	raw, err := json.Marshal(conds)
	if err != nil {
		t.Fatal(err)
	}
	var out []metav1.Condition
	if err := json.Unmarshal(raw, &out); err != nil {
		t.Fatal(err)
	}
	return out
}
