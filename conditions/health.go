// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conditions

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// health is what a status means once polarity is taken into account. Edges, root and cause look at nothing else. The
// order is used: a change to a smaller value is a change for the worse.
type health int8

const (
	bad     health = iota - 1
	unknown        // the zero value: nothing is known
	good
)

// truth is a status as a number, so that polarity is a sign: the health of a positive type is its truth, that of a
// negative one the opposite.
type truth int8

const (
	isFalse truth = iota - 1
	isUnknown
	isTrue
)

// truthOf reads a status. Anything but True and False is Unknown, whatever it says: conditions of other tools hold all
// sorts of values.
func truthOf(s metav1.ConditionStatus) truth {
	switch s {
	case metav1.ConditionTrue:
		return isTrue
	case metav1.ConditionFalse:
		return isFalse
	}
	return isUnknown
}

// status is the inverse of truthOf for the three statuses the API server accepts.
func (t truth) status() metav1.ConditionStatus {
	switch t {
	case isTrue:
		return metav1.ConditionTrue
	case isFalse:
		return metav1.ConditionFalse
	}
	return metav1.ConditionUnknown
}

// healthOf judges a condition that is there.
func healthOf(negative bool, t truth) health {
	if negative {
		t = -t
	}
	return health(t)
}

// absent judges a condition that is not there.
func absent(t *Type) health {
	if t.Negative && !t.Required {
		return good
	}
	return unknown
}

// String names a health in texts for humans.
func (h health) String() string {
	switch h {
	case good:
		return "Good"
	case bad:
		return "Bad"
	}
	return "Unknown"
}
