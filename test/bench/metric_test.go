// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package bench_test

import (
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/test/bench"
)

func ratio() bench.Metric {
	return bench.Metric{
		Name: "conditions.pass/peer", Package: "conditions", Unit: "ratio", Op: bench.AtMost, Target: 0.5,
		Field: bench.Time, A: bench.Side{Module: "ours", Bench: "a"}, B: &bench.Side{Module: "peer", Bench: "b"},
	}
}

func count() bench.Metric {
	return bench.Metric{
		Name: "conditions.requests", Package: "conditions", Unit: "requests", Op: bench.Equal, Target: 0,
		Field: "requests", A: bench.Side{Module: "ours", Bench: "a"},
	}
}

func TestDeclaredMetricsAreValid(t *testing.T) {
	t.Parallel()
	if err := bench.Validate(bench.Metrics()); err != nil {
		t.Error(err)
	}
}

func TestValidateRefusesWhatCannotBeJudged(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		reason string
		change func(*bench.Metric)
		want   string
	}{
		"package": {
			reason: "PKG selects by package, a row under another name would never be found",
			change: func(m *bench.Metric) { m.Package = "statussync" },
			want:   "must start with the package",
		},
		"shape of the name": {
			reason: "the name is one word of the line and a file name",
			change: func(m *bench.Metric) { m.Name = "conditions.a b" },
			want:   "package.figure",
		},
		"operator": {
			reason: "an unknown operator meets nothing",
			change: func(m *bench.Metric) { m.Op = ">" },
			want:   "op must be",
		},
		"timing of so many": {
			reason: "a timing needs rounds",
			change: func(m *bench.Metric) { m.N = 10 },
			want:   "is for counts",
		},
		"lone timing": {
			reason: "nanoseconds of one machine are no target",
			change: func(m *bench.Metric) { m.B = nil },
			want:   "needs two sides",
		},
		"same side twice": {
			reason: "the ratio would be one whatever happens",
			change: func(m *bench.Metric) { m.B = &m.A },
			want:   "same benchmark",
		},
		"no unit": {
			reason: "the line would have a word too few",
			change: func(m *bench.Metric) { m.Unit = "" },
			want:   "unit",
		},
		"negative target": {
			reason: "nothing measured here is below zero",
			change: func(m *bench.Metric) { m.Target = -1 },
			want:   "target",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := ratio()
			if err := bench.Validate([]bench.Metric{m}); err != nil {
				t.Fatalf("unchanged row: %v", err)
			}
			tc.change(&m)
			err := bench.Validate([]bench.Metric{m})
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: got %v, want %q", tc.reason, err, tc.want)
			}
		})
	}
	if err := bench.Validate([]bench.Metric{ratio(), ratio()}); err == nil || !strings.Contains(err.Error(), "twice") {
		t.Errorf("two rows of one name share one file of samples: got %v", err)
	}
}

func TestSelect(t *testing.T) {
	t.Parallel()
	other := ratio()
	other.Name, other.Package = "ownership.plan/peer", "ownership"
	all := []bench.Metric{other, ratio(), count()}

	got, err := bench.Select(all, "conditions")
	if err != nil || len(got) != 2 {
		t.Errorf("one package: got %d metrics, %v; want 2", len(got), err)
	}
	got, err = bench.Select(all, "")
	if err != nil || len(got) != 3 {
		t.Errorf("all packages: got %d metrics, %v; want 3", len(got), err)
	}
	_, err = bench.Select(all, "condition")
	if err == nil || !strings.Contains(err.Error(), `["conditions" "ownership"]`) {
		t.Errorf("unknown package: got %v, want the list of known ones, sorted", err)
	}
}
