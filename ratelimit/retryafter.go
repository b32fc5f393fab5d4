// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ratelimit

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// ParseRetryAfter reads the value of an HTTP Retry-After header in both of its forms: a number of seconds, or a date
// (RFC 9110, section 10.2.3, in any of the three date formats of section 5.6.7). A date that has passed gives 0, true;
// what is neither gives 0, false. now is what a date is compared with.
func ParseRetryAfter(value string, now time.Time) (time.Duration, bool) {
	value = strings.TrimSpace(value)
	if value == "" {
		return 0, false
	}
	if strings.Trim(value, "0123456789") == "" {
		seconds, err := strconv.ParseInt(value, 10, 64)
		if err != nil || seconds > int64(math.MaxInt64/time.Second) {
			return math.MaxInt64, true // more seconds than a Duration holds is for ever, not nothing
		}
		return time.Duration(seconds) * time.Second, true
	}
	for _, layout := range []string{"Mon, 02 Jan 2006 15:04:05 GMT", "Monday, 02-Jan-06 15:04:05 GMT", time.ANSIC} {
		at, err := time.Parse(layout, value)
		if err != nil {
			continue
		}
		if layout[:6] == "Monday" && at.Sub(now) > 50*365*24*time.Hour {
			at = at.AddDate(-100, 0, 0) // two digits of a year that looks more than 50 years ahead: the past
		}
		return max(0, at.Sub(now)), true
	}
	return 0, false
}
