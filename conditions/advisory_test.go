// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conditions_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ashlar-go/ashlar/conditions"
)

// An advisory type is shown, blocked and ordered like any other; root, cause and the kstatus types do not see it.
func TestAdvisoryCountsForNothing(t *testing.T) {
	t.Parallel()
	s := conditions.MustNew("Ready",
		conditions.Type{Name: "Serving"},
		conditions.Type{Name: "VersionSkew", Negative: true, Advisory: true},
	)
	for name, tc := range map[string]struct {
		reason        string
		serving, skew metav1.ConditionStatus
		stalled       bool
		ready, cause  string
	}{
		"bad":          {"the object works all the same", "True", "True", false, "True (Healthy)", ""},
		"bad, stalled": {"nor can it stall the object", "True", "True", true, "True (Healthy)", ""},
		"unknown":      {"nor does it keep anybody waiting", "True", "Unknown", false, "True (Healthy)", ""},
		"both bad":     {"the cause is the one that counts", "False", "True", true, "False (Said)", "Serving"},
		"good":         {"nothing to say", "True", "False", false, "True (Healthy)", ""},
	} {
		var stalled []string
		if tc.stalled {
			stalled = []string{"VersionSkew"}
		}
		r := decide(t, s, map[string]metav1.ConditionStatus{"Serving": tc.serving, "VersionSkew": tc.skew}, stalled...)
		if got := cell(r, "Ready"); got != tc.ready || r.Cause != tc.cause {
			t.Errorf("%s: %s: Ready is %s because of %q, want %s because of %q", name, tc.reason, got, r.Cause, tc.ready, tc.cause)
		}
		if got, want := cell(r, "VersionSkew"), string(tc.skew)+" (Said)"; got != want {
			t.Errorf("%s: VersionSkew is %s, want %s: it is reported in any case", name, got, want)
		}
		if got := cell(r, "Stalled"); got != "absent" {
			t.Errorf("%s: Stalled is %s", name, got)
		}
		if wantReconciling := tc.ready != "True (Healthy)"; (cell(r, "Reconciling") != "absent") != wantReconciling {
			t.Errorf("%s: Reconciling is %s", name, cell(r, "Reconciling"))
		}
	}
	if rules := s.CEL(); strings.Contains(rules[1].Rule, "VersionSkew") {
		t.Errorf("the API server would hold Ready against VersionSkew: %s", rules[1].Rule)
	}
}
