// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conditions

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Is is a question about an object's conditions at a generation. A condition answers only when its observedGeneration is
// at least that generation: an older one speaks about another spec. Generation 0 asks regardless of the generation,
// which is the way to read conditions of writers that do not fill observedGeneration in.
type Is func(conds []metav1.Condition, generation int64) bool

// IsTrue asks whether typ is True. Exactly one of IsTrue, IsFalse and IsUnknown holds for any type.
func IsTrue(typ string) Is { return isStatus(typ, metav1.ConditionTrue) }

// IsFalse asks whether typ is False.
func IsFalse(typ string) Is { return isStatus(typ, metav1.ConditionFalse) }

// IsUnknown asks whether typ is absent, out of date, or neither True nor False.
func IsUnknown(typ string) Is { return Not(Or(IsTrue(typ), IsFalse(typ))) }

func isStatus(typ string, status metav1.ConditionStatus) Is {
	return func(conds []metav1.Condition, generation int64) bool {
		for i := range conds {
			if c := &conds[i]; c.Type == typ {
				return c.Status == status && c.ObservedGeneration >= generation
			}
		}
		return false
	}
}

// And holds when all of its questions hold; without any it holds.
func And(is ...Is) Is {
	return func(conds []metav1.Condition, generation int64) bool {
		for _, q := range is {
			if !q.holds(conds, generation) {
				return false
			}
		}
		return true
	}
}

// Or holds when one of its questions holds; without any it does not.
func Or(is ...Is) Is {
	return func(conds []metav1.Condition, generation int64) bool {
		for _, q := range is {
			if q.holds(conds, generation) {
				return true
			}
		}
		return false
	}
}

// Not turns a question round. Note that Not(IsTrue("Ready")) also holds while Ready is out of date; IsFalse does not.
func Not(is Is) Is {
	return func(conds []metav1.Condition, generation int64) bool { return !is.holds(conds, generation) }
}

// holds lets a nil question be one that never holds rather than a panic in a watch handler.
func (is Is) holds(conds []metav1.Condition, generation int64) bool {
	return is != nil && is(conds, generation)
}
