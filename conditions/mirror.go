// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conditions

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Mirror returns the condition typ of from under the name as, for [Pass.Put]: status, reason and message of the source,
// made valid. An absent source is Unknown with reason NotReported, whatever its polarity: the mirror cannot know it.
//
// The source's observedGeneration counts another object's changes and is left out. Its lastTransitionTime is kept for
// callers that set the condition without a Pass; it is zero when the source has none.
func Mirror(as string, from []metav1.Condition, typ string) metav1.Condition {
	for i := range from {
		if c := &from[i]; c.Type == typ {
			return metav1.Condition{
				Type: as, Status: truthOf(c.Status).status(), LastTransitionTime: c.LastTransitionTime,
				Reason: legalReason(c.Reason), Message: legalMessage(c.Message),
			}
		}
	}
	return metav1.Condition{
		Type: as, Status: metav1.ConditionUnknown, Reason: ReasonNotReported,
		Message: legalMessage("the source has no condition " + typ),
	}
}
