// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conditions_test

import (
	"encoding/json"
	"fmt"
	"iter"
	"math/rand"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"

	"github.com/ashlar-go/ashlar/conditions"
)

// Each test in this file is a report about some other library or controller, turned round: the situation it describes,
// and what is right in it.

func netAndApp() *conditions.Set {
	return conditions.MustNew("Ready", conditions.Type{Name: "Net"}, conditions.Type{Name: "App"})
}

// put runs one pass with verdicts written as "Type Status Reason message".
func put(t *testing.T, s *conditions.Set, live []metav1.Condition, generation int64, now time.Time, lines ...string) conditions.Result {
	t.Helper()
	p := s.Begin(live, generation, nil)
	for _, line := range lines {
		f := append(strings.SplitN(line, " ", 4), "")
		p.Put(metav1.Condition{Type: f[0], Status: metav1.ConditionStatus(f[1]), Reason: f[2], Message: f[3]})
	}
	return done(t, p, now)
}

// https://github.com/fluxcd/pkg/pull/253: the generation of a condition came from an object that was read again later.
func TestFluxPkg253ConditionsKeepTheGenerationTheyWereComputedFor(t *testing.T) {
	t.Parallel()
	read := int64(4) // the spec moves on to 5 while we work
	r := put(t, netAndApp(), nil, read, epoch, "Net True Up", "App True Up")
	for _, c := range r.Conditions {
		if c.ObservedGeneration != 4 {
			t.Errorf("%s claims generation %d", c.Type, c.ObservedGeneration)
		}
	}
}

// https://github.com/scylladb/scylla-operator/issues/2102: an aggregate reason joined type names and hundreds of members.
func TestScyllaOperator2102AggregateReasonIsBoundedAndLegal(t *testing.T) {
	t.Parallel()
	var types []conditions.Type
	for i := range 300 {
		types = append(types, conditions.Type{Name: fmt.Sprintf("rack-%d.example.com/Pod.Ready-%d", i, i)})
	}
	s := conditions.MustNew("Ready", types...)
	p := s.Begin(nil, 1, nil)
	for i, typ := range types {
		p.False(typ.Name, fmt.Sprintf("Pod-%d.NotReady", i), strings.Repeat("not ready ", 50))
	}
	members := func(yield func(string, []metav1.Condition) bool) {
		for i := range 500 {
			if !yield(fmt.Sprintf("ns/pod-%d.rack", i), []metav1.Condition{{Type: "Ready", Status: "False", Reason: fmt.Sprintf("Pod-%d.Failed", i%2)}}) {
				return
			}
		}
	}
	all := conditions.Summarize(conditions.Type{Name: types[0].Name}, "Ready", members)
	if len(all.Message) > 4096 {
		t.Errorf("the message about 500 members has %d bytes", len(all.Message))
	}
	p.Put(all)
	p.False(types[1].Name, strings.Repeat("Pod-1.NotReady,", 100), "")
	r := done(t, p, epoch)
	if errs := validation.ValidateConditions(r.Conditions, nil); len(errs) > 0 {
		t.Error(errs[0], len(errs))
	}
}

// https://github.com/envoyproxy/gateway/issues/7146, https://github.com/apecloud/kubeblocks/pull/10322: a status of 47 KB
// was refused.
func TestEnvoyGateway7146LongMessageIsCutOnceAndMarked(t *testing.T) {
	t.Parallel()
	for shift := range 3 { // so that the cut falls on each byte of a rune
		long := strings.Repeat("x", shift) + strings.Repeat("路由无法解析", 2600) // 47 KB
		first := put(t, netAndApp(), nil, 1, epoch, "Net False NoRoute "+long, "App True Up")
		c := get(t, first.Conditions, "Net")
		if len(c.Message) > 32768 || !utf8.ValidString(c.Message) || !strings.Contains(c.Message, "more bytes)") {
			t.Errorf("%d bytes, ends in %q", len(c.Message), c.Message[len(c.Message)-40:])
		}
		if errs := validation.ValidateConditions(first.Conditions, nil); len(errs) > 0 {
			t.Error(errs)
		}
		if second := put(t, netAndApp(), roundTrip(t, first.Conditions), 1, epoch.Add(time.Hour), "Net False NoRoute "+long, "App True Up"); second.Changed {
			t.Error("cut again on the second pass")
		}
	}
}

// https://github.com/knative/serving/issues/1181, https://github.com/rabbitmq/messaging-topology-operator/pull/251,
// https://github.com/multigres/multigres-operator/pull/185: the time moved on every pass, and every pass wrote.
func TestKnativeServing1181TimeAloneIsNoChange(t *testing.T) {
	t.Parallel()
	first := put(t, netAndApp(), nil, 1, epoch, "Net True Up", "App False Down")
	live := roundTrip(t, first.Conditions)
	r := put(t, netAndApp(), live, 1, epoch.Add(1500*time.Millisecond), "Net True Up", "App False Down")
	if r.Changed || !identical(r.Conditions, live) {
		t.Error(cmp.Diff(live, r.Conditions))
	}
}

// https://github.com/piraeusdatastore/piraeus-operator/pull/905: the status was built from nothing each time, and so was
// the transition time.
func TestPiraeus905VerdictsFromScratchKeepLiveTimes(t *testing.T) {
	t.Parallel()
	first := put(t, netAndApp(), nil, 1, epoch, "Net True Up", "App True Up")
	pass := func(app metav1.ConditionStatus) conditions.Result {
		p := netAndApp().Begin(first.Conditions, 1, nil)
		p.Put(metav1.Condition{Type: "App", Status: app, Reason: "Up", LastTransitionTime: metav1.Now()})
		p.Put(metav1.Condition{Type: "Net", Status: "True", Reason: "Up", LastTransitionTime: metav1.Now()})
		return done(t, p, epoch.Add(time.Hour))
	}
	if r := pass("True"); r.Changed {
		t.Error(cmp.Diff(first.Conditions, r.Conditions))
	}
	r := pass("False") // the list is built anew for App's sake
	if net, app := get(t, r.Conditions, "Net"), get(t, r.Conditions, "App"); !net.LastTransitionTime.Time.Equal(epoch) || !app.LastTransitionTime.Time.Equal(epoch.Add(time.Hour)) {
		t.Errorf("Net since %v, App since %v", net.LastTransitionTime, app.LastTransitionTime)
	}
}

// https://github.com/nebius/soperator/pull/1894: one side left observedGeneration out, and two kinds watched each other.
func TestSoperator1894GenerationIsFilledIn(t *testing.T) {
	t.Parallel()
	first := put(t, netAndApp(), nil, 3, epoch, "Net True Up", "App True Up") // verdicts without a generation
	if c := get(t, first.Conditions, "Net"); c.ObservedGeneration != 3 {
		t.Error(c.ObservedGeneration)
	}
	if put(t, netAndApp(), first.Conditions, 3, epoch, "Net True Up", "App True Up").Changed {
		t.Error("ping-pong")
	}
}

// https://github.com/crossplane/upjet/issues/591: a new generation with the same verdict.
func TestUpjet591GenerationAloneIsOneChangeThatKeepsTheTime(t *testing.T) {
	t.Parallel()
	first := put(t, netAndApp(), nil, 1, epoch, "Net True Up", "App True Up")
	for i := range first.Conditions {
		first.Conditions[i].ObservedGeneration = 0 // as written by a release that did not fill it in
	}
	second := put(t, netAndApp(), first.Conditions, 1, epoch.Add(time.Hour), "Net True Up", "App True Up")
	if !second.Changed {
		t.Error("a generation of 0 is not the present one")
	}
	third := put(t, netAndApp(), second.Conditions, 2, epoch.Add(time.Hour), "Net True Up", "App True Up")
	for _, c := range third.Conditions {
		if c.ObservedGeneration != 2 || !c.LastTransitionTime.Time.Equal(epoch) {
			t.Error(c)
		}
	}
	if put(t, netAndApp(), third.Conditions, 2, epoch.Add(time.Hour), "Net True Up", "App True Up").Changed {
		t.Error("one change, not two")
	}
}

// https://github.com/numaproj/numaplane/issues/107: another reason moved the time.
func TestNumaplane107ReasonAndMessageKeepTheTime(t *testing.T) {
	t.Parallel()
	first := put(t, netAndApp(), nil, 1, epoch, "Net False Down a", "App True Up")
	r := put(t, netAndApp(), first.Conditions, 1, epoch.Add(time.Hour), "Net False Gone b", "App True Up")
	c := get(t, r.Conditions, "Net")
	if !r.Changed || c.Reason != "Gone" || c.Message != "b" || !c.LastTransitionTime.Time.Equal(epoch) {
		t.Error(c)
	}
}

// https://github.com/kai-scheduler/KAI-Scheduler/pull/1229: Reconciling went up at the start of every pass and down at its
// end.
func TestKAIScheduler1229ReconcilingRestsInSteadyState(t *testing.T) {
	t.Parallel()
	for _, verdicts := range [][]string{{"Net True Up", "App True Up"}, {"Net False Down", "App True Up"}} {
		live := put(t, netAndApp(), nil, 1, epoch, verdicts...).Conditions
		for i := range 5 {
			if r := put(t, netAndApp(), live, 1, epoch.Add(time.Duration(i)*time.Minute), verdicts...); r.Changed {
				t.Error(cmp.Diff(live, r.Conditions))
			}
		}
	}
}

// https://github.com/kubernetes-sigs/cluster-api/issues/9299: after a first pass that only added a finalizer, tools took
// the object for current.
func TestClusterAPI9299FirstVisitIsNotCurrent(t *testing.T) {
	t.Parallel()
	r := put(t, netAndApp(), nil, 1, epoch)
	want := []string{
		"Ready Unknown NotReported | Net: no verdict was reported",
		"Net Unknown NotReported | no verdict was reported",
		"App Unknown NotReported | no verdict was reported",
		"Reconciling True NotReported | Net: no verdict was reported",
	}
	if diff := cmp.Diff(want, briefs(r.Conditions)); diff != "" {
		t.Error(diff)
	}
}

// https://github.com/openshift/cluster-kube-scheduler-operator/pull/142: a condition of an earlier release stayed for ever.
func TestClusterKubeSchedulerOperator142RetiredTypeVanishes(t *testing.T) {
	t.Parallel()
	s := conditions.MustNew("Ready", conditions.Type{Name: "Net"}, conditions.Type{Name: "OldDegraded", Negative: true, Retired: true})
	live := append(put(t, conditions.MustNew("Ready", conditions.Type{Name: "Net"}), nil, 1, epoch, "Net True Up").Conditions,
		metav1.Condition{Type: "OldDegraded", Status: "True", Reason: "Left", LastTransitionTime: metav1.NewTime(epoch)},
		metav1.Condition{Type: "Foreign", Status: "True", Reason: "Stays", LastTransitionTime: metav1.NewTime(epoch)})
	r := put(t, s, live, 1, epoch, "Net True Up")
	if diff := cmp.Diff([]string{"Ready True Healthy", "Net True Up", "Foreign True Stays"}, briefs(r.Conditions)); diff != "" || !r.Changed {
		t.Error(diff)
	}
	if put(t, s, r.Conditions, 1, epoch, "Net True Up").Changed {
		t.Error("removed twice")
	}
}

// https://github.com/knative/pkg/pull/1187: after a downgrade the object carries types the older release does not know.
func TestKnativePkg1187TypesOfANewerReleaseNeitherCountNorVanish(t *testing.T) {
	t.Parallel()
	newer := conditions.MustNew("Ready", conditions.Type{Name: "Net"}, conditions.Type{Name: "App"}, conditions.Type{Name: "Cache"})
	live := put(t, newer, nil, 1, epoch, "Net True Up", "App True Up").Conditions
	r := put(t, netAndApp(), live, 1, epoch, "Net True Up", "App True Up")
	if diff := cmp.Diff([]string{"Ready True Healthy", "Net True Up", "App True Up", "Cache Unknown NotReported | no verdict was reported"}, briefs(r.Conditions)); diff != "" {
		t.Error(diff)
	}
}

// https://github.com/kubernetes-sigs/cli-utils/issues/167: both claimed, the order in the list decides.
func TestCliUtils167StalledAndReconcilingExcludeEachOther(t *testing.T) {
	t.Parallel()
	s := conditions.MustNew("Ready", conditions.Type{Name: "Net"}, conditions.Type{Name: "App"})
	live := []metav1.Condition{{Type: "Reconciling", Status: "True", Reason: "X"}, {Type: "Stalled", Status: "True", Reason: "X"}}
	p := s.Begin(live, 1, nil)
	p.False("Net", "BadSpec", "")
	p.Stall("Net")
	p.Unknown("App", "Pending", "")
	r := done(t, p, epoch)
	var got []string
	for _, c := range r.Conditions[3:] {
		got = append(got, c.Type)
	}
	if diff := cmp.Diff([]string{"Stalled"}, got); diff != "" {
		t.Error(diff)
	}
	if _, err := conditions.New("Ready", conditions.Type{Name: "Stalled"}); err == nil {
		t.Error("a controller could claim it by hand")
	}
}

// https://github.com/openshift/library-go/pull/2429, https://github.com/openshift/cluster-autoscaler-operator/pull/344: a
// blip inside the window, and nobody who says when to look again.
func TestLibraryGo2429BlipIsHeldAndTheDueTimeIsTold(t *testing.T) {
	t.Parallel()
	s := conditions.MustNew("Ready", conditions.Type{Name: "Net", Hold: conditions.Hold{Bad: 2 * time.Minute}})
	var memory conditions.Memory
	pass := func(live []metav1.Condition, status metav1.ConditionStatus, at time.Duration) conditions.Result {
		p := s.Begin(live, 1, &memory)
		p.Put(metav1.Condition{Type: "Net", Status: status, Reason: "R"})
		return done(t, p, epoch.Add(at))
	}
	live := pass(nil, "True", 0).Conditions
	if r := pass(live, "False", time.Second); r.Changed || r.RequeueAfter != 2*time.Minute {
		t.Error(r)
	}
	if r := pass(live, "True", 31*time.Second); r.Changed || r.RequeueAfter != 0 {
		t.Error(r)
	}
	if r := pass(live, "False", time.Hour); r.Changed {
		t.Error(r)
	}
	if r := pass(live, "False", time.Hour+2*time.Minute); !r.Changed || get(t, r.Conditions, "Net").Status != "False" {
		t.Error(r)
	}
}

// https://github.com/fluxcd/pkg/pull/1187: conditions of other controllers hold anything.
func TestFluxPkg1187OddConditionsAreUnknown(t *testing.T) {
	t.Parallel()
	u := &unstructured.Unstructured{}
	give := `{"status":{"observedGeneration":"3","conditions":[{"type":"Ready","status":1,"observedGeneration":[]},7,{"status":"True"}]}}`
	if err := json.Unmarshal([]byte(give), &u.Object); err != nil {
		t.Fatal(err)
	}
	conds := conditions.Read(u)
	if diff := cmp.Diff([]metav1.Condition{{Type: "Ready", Status: "Unknown"}}, conds); diff != "" {
		t.Error(diff)
	}
	if c := conditions.Mirror("UpstreamReady", conds, "Ready"); c.Status != "Unknown" || c.Reason != conditions.ReasonUnspecified {
		t.Error(brief(c))
	}
}

// A merge option of fluxcd/pkg (conditions.WithSourceRef) makes the reason "Reason @ Kind/Name", which is not legal.
func TestFluxPkgSourceRefOriginGoesToTheMessage(t *testing.T) {
	t.Parallel()
	r := put(t, netAndApp(), nil, 1, epoch, "Net False DNS lookup failed", "App True Up")
	root := get(t, r.Conditions, "Ready")
	if root.Reason != "DNS" || !strings.HasPrefix(root.Message, "Net: ") {
		t.Error(brief(root))
	}
}

// cluster-api, util/conditions: ties between messages are broken by a list that is not sorted.
func TestClusterAPIAggregateIsTheSameForEveryOrder(t *testing.T) {
	t.Parallel()
	type member struct {
		name  string
		conds []metav1.Condition
	}
	var members []member
	for i := range 6 {
		members = append(members, member{fmt.Sprint("m", i), []metav1.Condition{{
			Type: "Ready", Status: "False", Reason: "R", Message: fmt.Sprint("message ", i%2), LastTransitionTime: metav1.NewTime(epoch),
		}}})
	}
	seq := func() iter.Seq2[string, []metav1.Condition] {
		return func(yield func(string, []metav1.Condition) bool) {
			for _, m := range members {
				if !yield(m.name, m.conds) {
					return
				}
			}
		}
	}
	want := conditions.Summarize(conditions.Type{Name: "All"}, "Ready", seq())
	if !strings.HasSuffix(want.Message, "R: message 0 (m0, m2, m4); R: message 1 (m1, m3, m5)") {
		t.Error(want.Message)
	}
	rng := rand.New(rand.NewSource(1))
	for range 720 {
		rng.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
		if got := conditions.Summarize(conditions.Type{Name: "All"}, "Ready", seq()); got != want {
			t.Fatalf("%s\n%s", got.Message, want.Message)
		}
	}
}

// reconciler.io/runtime and knative/pkg update the root inside each Mark call, so that it depends on their order.
func TestReconcilerRuntimeMarkTrueRootFollowsWhatIsLeft(t *testing.T) {
	t.Parallel()
	p := netAndApp().Begin(nil, 1, nil)
	p.False("Net", "Down", "")
	p.Unknown("App", "Pending", "")
	p.True("Net", "Up", "")
	root := get(t, done(t, p, epoch).Conditions, "Ready")
	if root.Status != "Unknown" || root.Reason != "Pending" {
		t.Error(brief(root))
	}
}

func TestKnativePkgMarkUnknownRootCarriesTheReasonOfTheFault(t *testing.T) {
	t.Parallel()
	for _, verdicts := range [][]string{{"Net False Down", "App Unknown Pending"}, {"App False Down", "Net Unknown Pending"}} {
		root := get(t, put(t, netAndApp(), nil, 1, epoch, verdicts...).Conditions, "Ready")
		if root.Status != "False" || root.Reason != "Down" {
			t.Errorf("%v: %s", verdicts, brief(root))
		}
	}
}

// cluster-api, util/conditions: info is dropped only when the summary is not True, which is the wrong half for a target of
// negative polarity.
func TestClusterAPISummaryOfNegativePolarityDropsTheRightHalf(t *testing.T) {
	t.Parallel()
	as := conditions.Type{Name: "AnyDegraded", Negative: true}
	ill := conditions.Summarize(as, "Up", fleetOf("a True Broken disk gone", "b False Fine all good"))
	if ill.Status != "True" || strings.Contains(ill.Message, "all good") || !strings.Contains(ill.Message, "disk gone") {
		t.Error(brief(ill))
	}
	well := conditions.Summarize(as, "Up", fleetOf("a False Fine all good", "b False Fine"))
	if well.Status != "False" || !strings.Contains(well.Message, "all good") {
		t.Error(brief(well))
	}
}

// cluster-api, util/conditions: a bullet pattern without an anchor takes "5 * 3" for a list.
func TestClusterAPIIndentIfMultilineLeavesArithmeticAlone(t *testing.T) {
	t.Parallel()
	r := put(t, netAndApp(), nil, 1, epoch, "Net False Quota 5 * 3 pods are too many", "App True Up")
	for _, typ := range []string{"Net", "Ready"} {
		if c := get(t, r.Conditions, typ); !strings.HasSuffix(c.Message, "5 * 3 pods are too many") {
			t.Error(brief(c))
		}
	}
}

// knative/pkg, apis: dependents are compared by number, so that a foreign condition stands in for a missing one.
func TestKnativePkgFindUnhappyDependentMissingTypeIsNamed(t *testing.T) {
	t.Parallel()
	s := conditions.MustNew("Ready", conditions.Type{Name: "A"}, conditions.Type{Name: "B"}, conditions.Type{Name: "C", Retired: true})
	live := []metav1.Condition{
		{Type: "C", Status: "True", Reason: "Old", LastTransitionTime: metav1.NewTime(epoch)},
		{Type: "D", Status: "True", Reason: "Foreign", LastTransitionTime: metav1.NewTime(epoch)},
	}
	r := put(t, s, live, 1, epoch, "A True Up")
	root := get(t, r.Conditions, "Ready")
	if root.Status != "Unknown" || r.Cause != "B" || !strings.Contains(root.Message, "B") {
		t.Error(brief(root), r.Cause)
	}
}

// knative/pkg, apis: a dependent that is new in this release is set to True when the root was True.
func TestKnativePkgInitializeConditionsNewTypeIsUnknownUntilJudged(t *testing.T) {
	t.Parallel()
	live := put(t, netAndApp(), nil, 1, epoch, "Net True Up", "App True Up").Conditions
	upgraded := conditions.MustNew("Ready", conditions.Type{Name: "Net"}, conditions.Type{Name: "App"}, conditions.Type{Name: "Cache"})
	r := put(t, upgraded, live, 1, epoch.Add(time.Hour), "Net True Up", "App True Up")
	if c := get(t, r.Conditions, "Cache"); c.Status != "Unknown" {
		t.Error(brief(c))
	}
	if root := get(t, r.Conditions, "Ready"); root.Status != "Unknown" || !root.LastTransitionTime.Time.Equal(epoch.Add(time.Hour)) {
		t.Error("the root may not keep its old value:", brief(root))
	}
}

// https://github.com/kubernetes-sigs/cluster-api/issues/3260: a second progress report of one type within one pass.
func TestClusterAPI3260LastOfTwoReportsWins(t *testing.T) {
	t.Parallel()
	r := put(t, netAndApp(), nil, 1, epoch, "Net False Starting", "App True Up", "Net True Up")
	if c := get(t, r.Conditions, "Net"); c.Status != "True" || c.Reason != "Up" {
		t.Error(brief(c))
	}
}

// The same conditions in another order are a write for the API server, but no reason for one.
func TestLiveOrderAloneIsNoChange(t *testing.T) {
	t.Parallel()
	live := put(t, netAndApp(), nil, 1, epoch, "Net False Down", "App True Up").Conditions
	live = append(live, metav1.Condition{Type: "Foreign"})
	slices.Reverse(live)
	if r := put(t, netAndApp(), live, 1, epoch, "Net False Down", "App True Up"); r.Changed || !identical(r.Conditions, live) {
		t.Error(briefs(r.Conditions))
	}
}
