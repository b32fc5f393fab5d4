// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package bench_test

import (
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/test/bench"
)

func TestParseReport(t *testing.T) {
	t.Parallel()
	const good = `{"bench":"a","n":10,"ns":1000,"cpu":900,"allocs":3,"bytes":64,"counts":{"requests":20}}` + "\n"
	r, err := bench.ParseReport([]byte(good), "a", 10)
	if err != nil || r.NS != 1000 || r.CPU != 900 || r.Allocs != 3 || r.Bytes != 64 || r.Counts["requests"] != 20 {
		t.Fatalf("got %+v, %v", r, err)
	}
	tests := map[string]struct {
		reason string
		out    string
		want   string
	}{
		"empty":          {"a side that says nothing measured nothing", "", "nothing printed"},
		"blank":          {"spaces are nothing", " \n", "nothing printed"},
		"no json":        {"a panic's text is no report", "panic: oh", "invalid character"},
		"cut short":      {"half an object is no report", `{"bench":"a"`, "unexpected EOF"},
		"two objects":    {"which one would count?", good + good, "more than one"},
		"trailing text":  {"something printed beside the report", good + "done", "more than one"},
		"unknown field":  {"the two halves of the protocol have drifted apart", `{"bench":"a","n":10,"ns":1,"gc":2}`, "unknown field"},
		"wrong name":     {"another benchmark's figure", strings.Replace(good, `"a"`, `"b"`, 1), "another benchmark"},
		"wrong n":        {"the division would be by the wrong number", strings.Replace(good, `:10,`, `:11,`, 1), "n is 11, asked for 10"},
		"no time":        {"a zero is the mark of a missing field", `{"bench":"a","n":10}`, "ns must be above zero"},
		"negative":       {"a counter ran backwards", strings.Replace(good, `"allocs":3`, `"allocs":-3`, 1), "must not be negative"},
		"number in text": {"a wrong type is not zero", strings.Replace(good, `"ns":1000`, `"ns":"1000"`, 1), "cannot unmarshal"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := bench.ParseReport([]byte(tc.out), "a", 10)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: got %v, want %q", tc.reason, err, tc.want)
			}
		})
	}
}

func FuzzParseReport(f *testing.F) {
	f.Add([]byte(`{"bench":"a","n":10,"ns":1000}`))
	f.Add([]byte(`{"bench":"a","n":10,"ns":1000}{}`))
	f.Fuzz(func(t *testing.T, out []byte) {
		r, err := bench.ParseReport(out, "a", 10)
		if err == nil && (r.Bench != "a" || r.N != 10 || r.NS <= 0 || r.CPU < 0 || r.Allocs < 0 || r.Bytes < 0) {
			t.Errorf("accepted %+v", r)
		}
	})
}
