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
	for _, part := range [][]Metric{conditionsMetrics(), statussyncMetrics(), finalizersMetrics(), ownershipMetrics(), bpfmapMetrics(), ebpfMetrics(), ratelimitMetrics(), conversionMetrics()} {
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
	capi    = "capi"
	flux    = "flux"
	cluster = "cluster"
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
	conditions := ratio(pkg, "conditions_bytes/cluster-api", 1.1, "statussync.conditions", Side{Module: capi, Bench: "patch.conditions"})
	conditions.Field = "wire"
	events := count(pkg, "watch_events", "events", Equal, 1, "statussync.watch")
	mixed := count(pkg, "watch_mixed", "mixed", Equal, 0, "statussync.watch")
	events.A.Module, mixed.A.Module = cluster, cluster
	events.N, mixed.N = 10_000, 10_000
	return []Metric{
		count(pkg, "noop_requests", "requests", Equal, 0, "statussync.noop"),
		count(pkg, "noop_allocs", Allocs, AtMost, 2, "statussync.noop"),
		ratio(pkg, "noop/cluster-api", 0.2, "statussync.noop", Side{Module: capi, Bench: "patch.noop"}),
		count(pkg, "change_requests", "requests", Equal, 1, "statussync.change"),
		ratio(pkg, "change/cluster-api", 0.33, "statussync.change", Side{Module: capi, Bench: "patch.change"}),
		ratio(pkg, "change/flux", 0.33, "statussync.change", Side{Module: flux, Bench: "patch.change"}),
		bytes,
		conditions,
		events,
		mixed,
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
	perMember := count(pkg, "prune_member_requests", "member_requests", Equal, 1, "ownership.prune_native")
	perMember.A.Per = load.Children
	return []Metric{
		count(pkg, "noop_requests", "requests", Equal, 0, "ownership.noop"),
		plan,
		perMember,
		count(pkg, "prune_native_owner_writes", "owner_writes", Equal, 0, "ownership.prune_native"),
		count(pkg, "prune_label_owner_writes", "owner_writes", Equal, 0, "ownership.prune_label"),
		count(pkg, "prune_applyset_owner_writes", "owner_writes", AtMost, 2, "ownership.prune_applyset"),
		ratio(pkg, "noop/flux", 0.05, "ownership.noop", Side{Module: flux, Bench: "ssa.applyall"}),
		ratio(pkg, "noop/createorupdate", 0.5, "ownership.noop", Side{Module: Ours, Bench: "controllerutil.createorupdate"}),
		count(pkg, "adopt_reads", "reads", Equal, 1, "ownership.adopt"),
		ratio(pkg, "mapevent/controller-runtime", 0.5, "ownership.mapevent", Side{Module: Ours, Bench: "handler.enqueueforowner"}),
	}
}

// bpfmapMetrics are measured on the kernel of the machine, and the raw side ("bpf") makes the same bpf(2) calls with
// prepared buffers. "ebpf" is cilium/ebpf; mapops are the reconciler of Cilium itself, which has a module of its own.
func bpfmapMetrics() []Metric {
	const pkg = "bpfmap"
	ours := func(bench string) Side { return Side{Module: Ours, Bench: bench} }
	nested := ratio(pkg, "nested32/cilium-ebpf", 0.05, "bpfmap.nested32", ours("ebpf.nested32"))
	nested.Field = Time // it waits for the kernel, it does not compute
	return []Metric{
		ratio(pkg, "lookup/raw", 1.15, "bpfmap.lookup", ours("bpf.lookup")),
		ratio(pkg, "update/raw", 1.15, "bpfmap.update", ours("bpf.update")),
		count(pkg, "lookup_allocs", Allocs, Equal, 0, "bpfmap.lookup"),
		count(pkg, "update_allocs", Allocs, Equal, 0, "bpfmap.update"),
		ratio(pkg, "percpu/raw", 1.15, "bpfmap.percpu", ours("bpf.percpu")),
		ratio(pkg, "percpu/cilium-ebpf", 0.75, "bpfmap.percpu", ours("ebpf.percpu")),
		count(pkg, "percpu_allocs", Allocs, Equal, 0, "bpfmap.percpu"),
		ratio(pkg, "dump100k/raw", 1.3, "bpfmap.dump100k", ours("bpf.dump100k")),
		ratio(pkg, "dump100k/cilium-ebpf", 0.1, "bpfmap.dump100k", ours("ebpf.iterate100k")),
		ratio(pkg, "sync100k/cilium-mapops", 0.12, "bpfmap.sync100k", Side{Module: "cilium", Bench: "mapops100k"}),
		ratio(pkg, "sync100k/raw", 2, "bpfmap.sync100k", ours("bpf.dump100k")),
		count(pkg, "sync100k_allocs", Allocs, AtMost, 100, "bpfmap.sync100k"),
		count(pkg, "sync100k_writes", "writes", Equal, 0, "bpfmap.sync100k_insync"),
		ratio(pkg, "delta1000/cilium-ebpf", 0.35, "bpfmap.delta1000", ours("ebpf.put1000")),
		nested,
	}
}

// ebpfMetrics are about programs that are replaced while events keep coming: 500 swaps, each under 64 events or more.
func ebpfMetrics() []Metric {
	const pkg = "ebpf"
	swaps := func(name string, field Field, op Op, target float64, bench string) Metric {
		m := count(pkg, name, field, op, target, bench)
		m.N = 500
		return m
	}
	var out []Metric
	for _, hook := range []string{"tcx", "xdp", "cgroup"} {
		out = append(out,
			swaps("swap_lost_"+hook, "lost", Equal, 0, "prog.swap_"+hook),
			swaps("swap_doubled_"+hook, "doubled", Equal, 0, "prog.swap_"+hook),
			// Calls that attach or detach, in between which traffic would meet neither or both, and the one that switches.
			swaps("switch_calls_"+hook, "open_calls", Equal, 0, "prog.swap_"+hook),
			swaps("switch_updates_"+hook, "updates", Equal, 1, "prog.swap_"+hook),
		)
	}
	activate := swaps("activate", "activate_us", AtMost, 2000, "prog.swap_tcx")
	activate.Unit = "us"
	return append(out,
		swaps("trampoline_lost", "lost", Equal, 0, "prog.swap_tracepoint"),
		swaps("trampoline_doubled", "doubled", Equal, 0, "prog.swap_tracepoint"),
		swaps("trampoline_calls", "open_calls", Equal, 0, "prog.swap_tracepoint"),
		activate,
		// 1.15 times SHA-256 of the same bytes, and 0.3 ms.
		ratio(pkg, "verify/sha256", 1.15, "sign.verify1M", Side{Module: Ours, Bench: "sha256.verify1M"}),
		ratio(pkg, "load/cilium-ebpf", 1.2, "prog.load", Side{Module: Ours, Bench: "ebpf.load"}),
	)
}

func conversionMetrics() []Metric {
	const pkg = "conversion"
	vs := func(bench string) Side { return Side{Module: Ours, Bench: "ctrlconv." + bench} }
	wall := ratio(pkg, "bulk2000/controller-runtime", 0.25, "conversion.bulk", vs("bulk"))
	wall.Field = Time
	bytes := ratio(pkg, "stash_bytes/cluster-api", 0.15, "conversion.stash", Side{Module: capi, Bench: "conversion.stash"})
	bytes.Field = "stash"
	peak := ratio(pkg, "bulk2000_peak/controller-runtime", 0.5, "conversion.peak", vs("peak"))
	peak.Field = Peak
	p50 := func(m Metric) Metric {
		m.Field = P50
		return m
	}
	fill := ratio(pkg, "fill2000/echo", 1.1, "conversion.fill2000", Side{Module: cluster, Bench: "echo.fill2000"})
	fill.A.Module, fill.Field = cluster, Time // the API server does most of it
	return []Metric{
		ratio(pkg, "one_up/controller-runtime", 0.35, "conversion.one_up", vs("one_up")),
		ratio(pkg, "one_down/controller-runtime", 0.35, "conversion.one_down", vs("one_down")),
		ratio(pkg, "one_down_stash/controller-runtime", 0.6, "conversion.one_down_stash", vs("one_down_stash")),
		ratio(pkg, "one_down_stash/cluster-api", 0.35, "conversion.one_down_stash", Side{Module: capi, Bench: "conversion.one_down_stash"}),
		p50(ratio(pkg, "e2e/controller-runtime", 0.6, "conversion.e2e", vs("e2e"))),
		p50(ratio(pkg, "e2e/echo", 1.4, "conversion.e2e", Side{Module: Ours, Bench: "echo.e2e"})),
		ratio(pkg, "repeat/controller-runtime", 0.08, "conversion.repeat", vs("one_down")),
		ratio(pkg, "identity/controller-runtime", 0.1, "conversion.identity", vs("one_down")),
		wall,
		peak,
		bytes,
		fill,
	}
}

func ratelimitMetrics() []Metric {
	const pkg = "ratelimit"
	workqueue := func(bench string) Side { return Side{Module: Ours, Bench: "workqueue." + bench} }
	// The bench counts hundredths.
	memory := func(name, unit string, field Field, target float64, bench string) Metric {
		m := count(pkg, name, field, AtMost, target, "ratelimit."+bench)
		m.Unit, m.A.Per = unit, 100
		return m
	}
	allocs := count(pkg, "cycle1k_allocs", Allocs, Equal, 0, "ratelimit.cycle1k")
	allocs.A.Per = load.LimitCalls
	return []Metric{
		ratio(pkg, "cycle1k/client-go", 0.6, "ratelimit.cycle1k", workqueue("cycle1k")),
		ratio(pkg, "cycle1k/floor", 2, "ratelimit.cycle1k", Side{Module: Ours, Bench: "ratelimit.cycle1k_floor"}),
		ratio(pkg, "cycle1k_8/client-go", 0.35, "ratelimit.cycle1k_8", workqueue("cycle1k_8")),
		ratio(pkg, "when1M/client-go", 0.6, "ratelimit.when1M", workqueue("when1M")),
		ratio(pkg, "backoff_bucket/client-go", 0.35, "ratelimit.backoff_bucket", workqueue("default")),
		ratio(pkg, "forget_unknown/client-go", 1, "ratelimit.forget_unknown", workqueue("forget_unknown")),
		allocs,
		memory("bytes100k", "bytes/key", "centibytes", 25, "memory100k"),
		memory("bytes300k", "bytes/key", "centibytes", 25, "memory300k"),
		memory("bytes1M", "bytes/key", "centibytes", 25, "memory1M"),
		memory("bytes300k_early_runs", "bytes/key", "centibytes_early", 6.5, "memory300k"),
		memory("bytes300k_generation", "bytes/key", "centibytes_generation", 6.5, "memory300k"),
		memory("bytes300k_give_up_age", "bytes/key", "centibytes_age", 6.5, "memory300k"),
		memory("left100k", "percent", "centipercent_left", 1, "memory100k"),
		memory("left1M", "percent", "centipercent_left", 1, "memory1M"),
	}
}
