// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import "github.com/ashlar-go/ashlar/test/bench/load"

// Metrics returns every figure the library promises and can measure today. A promise whose package is not written yet
// is not here: a row that cannot run would say nothing.
//
// Everything here is bound to the processor, so a timing compares processor time: it is what the work costs, and it
// does not move when something else wants the machine as well.
func Metrics() []Metric {
	var m []Metric
	for _, part := range [][]Metric{conditionsMetrics(), statussyncMetrics(), finalizersMetrics(), ownershipMetrics()} {
		m = append(m, part...)
	}
	return m
}

// ratio is a row that compares processor time.
func ratio(pkg, name string, target float64, ours string, b Side) Metric {
	return Metric{
		Name: pkg + "." + name, Package: pkg, Unit: "ratio", Op: AtMost, Target: target, Field: CPU,
		A: Side{Module: Ours, Bench: ours}, B: &b,
	}
}

// count is a row about something our side counts.
func count(pkg, name string, field Field, op Op, target float64, ours string) Metric {
	return Metric{
		Name: pkg + "." + name, Package: pkg, Unit: string(field), Op: op, Target: target, Field: field,
		A: Side{Module: Ours, Bench: ours},
	}
}

const (
	capi = "capi"
	flux = "flux"
)

func conditionsMetrics() []Metric {
	const pkg = "conditions"
	return []Metric{
		ratio(pkg, "pass20_unchanged/cluster-api", 0.33, "conditions.pass20_unchanged", Side{Module: capi, Bench: "conditions.summary20_unchanged"}),
		ratio(pkg, "pass20_flipped/cluster-api", 0.33, "conditions.pass20_flipped", Side{Module: capi, Bench: "conditions.summary20_flipped"}),
		ratio(pkg, "pass20_unchanged/apimachinery", 1.5, "conditions.pass20_unchanged", Side{Module: Ours, Bench: "apimachinery.set20_unchanged"}),
		ratio(pkg, "pass20_flipped/apimachinery", 1.5, "conditions.pass20_flipped", Side{Module: Ours, Bench: "apimachinery.set20_flipped"}),
		count(pkg, "unchanged_allocs", Allocs, Equal, 0, "conditions.pass20_unchanged"),
		ratio(pkg, "summarize10k/cluster-api", 0.25, "conditions.summarize10k", Side{Module: capi, Bench: "conditions.aggregate10k"}),
		ratio(pkg, "tally10k/cluster-api", 0.001, "conditions.tally10k", Side{Module: capi, Bench: "conditions.aggregate10k"}),
	}
}

func statussyncMetrics() []Metric {
	const pkg = "statussync"
	bytes := ratio(pkg, "bytes/cluster-api", 0.65, "statussync.change", Side{Module: capi, Bench: "patch.change"})
	bytes.Field = "wire"
	return []Metric{
		count(pkg, "noop_requests", "requests", Equal, 0, "statussync.noop"),
		count(pkg, "noop_allocs", Allocs, AtMost, 2, "statussync.noop"),
		ratio(pkg, "noop/cluster-api", 0.2, "statussync.noop", Side{Module: capi, Bench: "patch.noop"}),
		count(pkg, "change_requests", "requests", Equal, 1, "statussync.change"),
		ratio(pkg, "change/cluster-api", 0.33, "statussync.change", Side{Module: capi, Bench: "patch.change"}),
		ratio(pkg, "change/flux", 0.33, "statussync.change", Side{Module: flux, Bench: "patch.change"}),
		bytes,
	}
}

func finalizersMetrics() []Metric {
	const pkg = "finalizers"
	return []Metric{
		count(pkg, "noop_requests", "requests", Equal, 0, "finalizers.noop"),
		count(pkg, "noop_allocs", Allocs, Equal, 0, "finalizers.noop"),
		count(pkg, "change_requests", "requests", Equal, 1, "finalizers.change"),
	}
}

func ownershipMetrics() []Metric {
	const pkg = "ownership"
	plan := ratio(pkg, "plan_growth", 1.5, "ownership.plan_many", Side{Module: Ours, Bench: "ownership.plan_few", Per: load.Few})
	plan.A.Per = load.Many
	return []Metric{
		count(pkg, "noop_requests", "requests", Equal, 0, "ownership.noop"),
		plan,
		ratio(pkg, "noop/flux", 0.05, "ownership.noop", Side{Module: flux, Bench: "ssa.applyall"}),
		ratio(pkg, "noop/createorupdate", 0.5, "ownership.noop", Side{Module: Ours, Bench: "controllerutil.createorupdate"}),
		count(pkg, "adopt_reads", "reads", Equal, 1, "ownership.adopt"),
		ratio(pkg, "mapevent/controller-runtime", 0.5, "ownership.mapevent", Side{Module: Ours, Bench: "handler.enqueueforowner"}),
	}
}
