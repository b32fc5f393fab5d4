// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conversion_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ashlar-go/ashlar/conversion"
	"github.com/ashlar-go/ashlar/conversion/conversiontest"
)

// Each test is named after the public report of the defect that must not happen here.

func handler(t testing.TB, c *conversion.Converter, opts ...conversion.HandlerOption) http.Handler {
	t.Helper()
	h, err := conversion.Handler([]*conversion.Converter{c}, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// pair builds a converter of one pair with other functions.
func pair(t testing.TB, up func(context.Context, *OldWidget, *NewWidget) error, down func(context.Context, *NewWidget, *OldWidget) error) *conversion.Converter {
	t.Helper()
	b := conversion.New(widgets)
	conversion.Pair(b, "v1alpha1", "v1", up, down)
	c, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// An old client re-applies an object, and a field it does not know is gone. https://github.com/tektoncd/pipeline/issues/3815,
// https://github.com/vmware-archive/cluster-api-provider-cloud-director/issues/355
func TestTektonPipeline3815AnOldClientWrites(t *testing.T) {
	t.Parallel()
	c := build(t)
	read := convert(t, c, newWidget(`{"scalePolicy":{"min":3,"max":5},"tier":"gold"}`), "v1alpha1")
	written := strings.Replace(read, `"replicas":3`, `"replicas":3,"paused":true`, 1)
	got := convert(t, c, written, "v1")
	if at(t, got, "spec", "tier") != "gold" || at(t, got, "spec", "paused") != true || fmt.Sprint(at(t, got, "spec", "scalePolicy", "max")) != "5" {
		t.Errorf("after the edit of another field: %s", got)
	}
	edited := strings.Replace(read, `"replicas":3`, `"replicas":9`, 1)
	got = convert(t, c, edited, "v1")
	if fmt.Sprint(at(t, got, "spec", "scalePolicy", "min")) != "9" || fmt.Sprint(at(t, got, "spec", "scalePolicy", "max")) != "9" || at(t, got, "spec", "tier") != "gold" {
		t.Errorf("the edit of the field itself wins, and nothing else: %s", got)
	}
}

// What is kept grows beyond what annotations may have. https://github.com/tektoncd/pipeline/issues/7022
func TestTektonPipeline7022AnnotationTooLong(t *testing.T) {
	t.Parallel()
	c := build(t)
	_, err := c.Convert(t.Context(), []byte(newWidget(`{"tier":"`+strings.Repeat("x", 300<<10)+`","debug":{"level":"1"}}`)), "v1alpha1")
	var size *conversion.SizeError
	if !errors.As(err, &size) || size.Limit != 262144 || size.Bytes < 300<<10 || len(size.Largest) == 0 || size.Largest[0].Path != "/spec/tier" {
		t.Fatalf("error %v", err)
	}
	for _, want := range []string{"Widget default/a", "v1 to v1alpha1", "/spec/tier", "262144"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
	// What fits, fits: the API server takes it.
	ok := newWidget(`{"tier":"` + strings.Repeat("x", 255<<10) + `"}`)
	if _, err := conversiontest.Review(t.Context(), handler(t, c), "example.com/v1alpha1", []byte(ok)); err != nil {
		t.Errorf("255 KiB: %v", err)
	}
}

// A function meets a nil pointer in the third of five objects.
// https://github.com/kubernetes-sigs/cluster-api-provider-openstack/issues/1983, https://github.com/OT-CONTAINER-KIT/redis-operator/pull/787
func TestClusterAPIProviderOpenstack1983PanicInAFunction(t *testing.T) {
	t.Parallel()
	c := pair(t, func(ctx context.Context, in *OldWidget, out *NewWidget) error {
		if in.Spec.Note == "bad" {
			var e *Endpoint
			out.Spec.Tier = e.Host
		}
		return up(ctx, in, out)
	}, down)
	h := handler(t, c)
	good, bad := []byte(oldWidget(`{"replicas":1}`)), []byte(oldWidget(`{"note":"bad"}`))
	_, err := conversiontest.Review(t.Context(), h, "example.com/v1", good, good, bad, good, good)
	var re *conversiontest.ResponseError
	if !errors.As(err, &re) || re.Failure != conversion.MalformedFailure {
		t.Fatalf("error %v", err)
	}
	for _, want := range []string{"object 2,", "Widget default/a", "from v1alpha1 to v1", "nil pointer", "intact"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
	if _, err := conversiontest.Review(t.Context(), h, "example.com/v1", good); err != nil {
		t.Errorf("the next review: %v", err)
	}
	var pe *conversion.PanicError
	if _, err := c.Convert(t.Context(), bad, "v1"); !errors.As(err, &pe) || len(pe.Stack) == 0 {
		t.Errorf("without a webhook: %v", err)
	}
}

// The definition serves a version that the webhook does not know.
// https://github.com/kubernetes-csi/external-snapshotter/issues/1450
func TestExternalSnapshotter1450VersionWithoutAPair(t *testing.T) {
	t.Parallel()
	b := conversion.New(widgets)
	conversion.Pair(b, "v1alpha1", "v1", up, down)
	b.Same("v2alpha1", "v2")
	_, err := b.Build()
	for _, want := range []string{"v1 to v2", "v2 to v1", "v1alpha1 to v2alpha1", "v2alpha1 to v1alpha1"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %q", err, want)
		}
	}
	err = build(t).Check([]byte(crd(`{"name":"v1alpha1","served":true},{"name":"v1","served":true},{"name":"v2","served":false}`, webhookOK)))
	if err == nil || !strings.Contains(err.Error(), "version v2 is in spec.versions (served: false) and in no pair") {
		t.Errorf("Check = %v", err)
	}
	b = conversion.New(widgets)
	conversion.Pair(b, "v1alpha1", "v1", up, down)
	b.Same("v1", "v2") // one line
	c, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Check([]byte(crd(`{"name":"v1alpha1"},{"name":"v1"},{"name":"v2"}`, webhookOK))); err != nil {
		t.Error(err)
	}
}

// A kind was never registered. https://github.com/kubernetes-sigs/security-profiles-operator/issues/3404
func TestSecurityProfilesOperator3404UnknownKind(t *testing.T) {
	t.Parallel()
	h := handler(t, build(t))
	_, err := conversiontest.Review(t.Context(), h, "example.com/v1", []byte(`{"apiVersion":"example.com/v1alpha1","kind":"Gizmo","metadata":{"name":"a"}}`))
	if err == nil || !strings.Contains(err.Error(), "Gizmo.example.com") || !strings.Contains(err.Error(), "known are Widget.example.com") {
		t.Errorf("error %v", err)
	}
	_, err = conversiontest.Review(t.Context(), h, "example.com/v3", []byte(oldWidget(`{}`)))
	if err == nil || !strings.Contains(err.Error(), "v3") || !strings.Contains(err.Error(), "known are v1alpha1, v1") {
		t.Errorf("error %v", err)
	}
}

// The answer says Success where it should. https://github.com/kubernetes-sigs/controller-runtime/pull/443
func TestControllerRuntime443Success(t *testing.T) {
	t.Parallel()
	out, err := conversiontest.Review(t.Context(), handler(t, build(t)), "example.com/v1", []byte(oldWidget(`{"replicas":1}`)))
	if err != nil || len(out) != 1 {
		t.Errorf("%q, %v", out, err)
	}
}

// A failed conversion is an answer 200, and its list is empty, not null. https://github.com/grafana/grafana-app-sdk/pull/116,
// https://github.com/kube-rs/kube/pull/999
func TestGrafanaAppSDK116FailureIsAnAnswer(t *testing.T) {
	t.Parallel()
	w := post(t, handler(t, build(t)), "application/json", reviewOf("example.com/v1", oldWidget(`{"endpoint":"a:b"}`)))
	if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `"status":"Failure"`) ||
		!strings.Contains(w.Body.String(), `"convertedObjects":[]`) || !strings.Contains(w.Body.String(), `"uid":"u1"`) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// A list of one became an object. https://github.com/crossplane-contrib/provider-upjet-aws/issues/2129
func TestProviderUpjetAWS2129ListOfOne(t *testing.T) {
	t.Parallel()
	c := build(t)
	for in, want := range map[string]string{
		`{"grants":[{"role":"admin"}]}`: `{"role":"admin"}`, `{"grants":[]}`: "", `{"grants":null}`: "", `{}`: "",
	} {
		there := convert(t, c, oldWidget(in), "v1")
		if g := at(t, there, "spec", "grant"); (want == "") != (g == nil) {
			t.Errorf("%s became %v", in, g)
		}
		same(t, oldWidget(in), convert(t, c, there, "v1alpha1"))
	}
	_, err := c.Convert(t.Context(), []byte(oldWidget(`{"grants":[{"role":"a"},{"role":"b"}]}`)), "v1")
	if err == nil || !strings.Contains(err.Error(), "2 items") {
		t.Errorf("two items: %v", err)
	}
	_, err = c.Convert(t.Context(), []byte(newWidget(`{"grant":[{"role":"a"}]}`)), "v1alpha1")
	var ce *conversion.Error
	if !errors.As(err, &ce) || ce.Path != "spec.grant" || !strings.Contains(err.Error(), "a list") || !strings.Contains(err.Error(), "an object") || ce.Ref != "Widget default/a" {
		t.Errorf("a list where an object belongs: %v", err)
	}
}

// The schema of the old version lacks a field the conversion reads.
// https://github.com/kubernetes-retired/multi-tenancy/issues/1035
func TestMultiTenancy1035FieldMissingInTheSchema(t *testing.T) {
	t.Parallel()
	err := build(t).Check([]byte(crd(`{"name":"v1alpha1","schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{
		"replicas":{"type":"integer"}}},"status":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}}},{"name":"v1"}`, webhookOK)))
	if err == nil || !strings.Contains(err.Error(), "the schema of v1alpha1 has no spec.note") || strings.Contains(err.Error(), "spec.replicas") {
		t.Errorf("Check = %v", err)
	}
}

// One object of a hundred cannot be converted. https://github.com/open-telemetry/opentelemetry-operator/issues/4288
func TestOpenTelemetryOperator4288OneBadObject(t *testing.T) {
	t.Parallel()
	c := build(t)
	list := func(opts ...conversion.HandlerOption) ([][]byte, *conversiontest.Server, error) {
		h := handler(t, c, opts...)
		s := conversiontest.NewServer(h, "example.com", "v1alpha1")
		for i := range 100 {
			spec := `{"replicas":2}`
			if i == 42 {
				spec = `{"replicas":2,"endpoint":"a:b","note":"mine","config":{"a":"b"}}`
			}
			name := fmt.Sprintf("w%02d", i)
			if err := s.Create(t.Context(), "v1alpha1", []byte(strings.Replace(oldWidget(spec), `"name":"a"`, `"name":"`+name+`"`, 1))); err != nil {
				t.Fatal(err)
			}
		}
		out, err := s.List(t.Context(), "v1")
		return out, s, err
	}
	if _, _, err := list(); err == nil || !strings.Contains(err.Error(), "default/w42") {
		t.Errorf("without quarantine: %v", err)
	}
	var events []conversion.Event
	out, s, err := list(conversion.WithQuarantine(), conversion.WithObserver(func(e conversion.Event) { events = append(events, e) }))
	if err != nil || len(out) != 100 {
		t.Fatalf("with quarantine: %d, %v", len(out), err)
	}
	quarantined := 0
	for _, e := range events {
		if e.Kind == conversion.Quarantined {
			quarantined++
		}
	}
	if quarantined != 1 {
		t.Errorf("%d objects are said to be in quarantine", quarantined)
	}
	// Nothing is lost: a client writes the copy back at the new version, and it is stored there.
	if got := at(t, string(out[42]), "spec", "config", "a"); got != "b" {
		t.Errorf("what both versions hold is %v: %s", got, out[42])
	}
	before, _, _ := s.Stored("w42")
	s.SetStorage("v1")
	edited := strings.Replace(string(out[42]), `"config":{"a":"b"}`, `"config":{"a":"c"}`, 1)
	if err := s.Update(t.Context(), "v1", []byte(edited)); err != nil {
		t.Fatal(err)
	}
	back, err := s.Get(t.Context(), "v1alpha1", "w42")
	if err != nil {
		t.Fatal(err)
	}
	same(t, strings.NewReplacer(`{"a":"b"}`, `{"a":"c"}`, `"resourceVersion":"43"`, `"resourceVersion":"101"`).Replace(string(before)), string(back))
	// Repaired at the old version, it leaves quarantine.
	if err := s.Update(t.Context(), "v1alpha1", []byte(strings.Replace(string(back), `"a:b"`, `"a:1"`, 1))); err != nil {
		t.Fatal(err)
	}
	fixed, err := s.Get(t.Context(), "v1", "w42")
	if err != nil || at(t, string(fixed), "spec", "address", "host") != "a" || strings.Contains(stashOf(t, string(fixed)), "#from") {
		t.Errorf("repaired: %s, %v", fixed, err)
	}
}

// The way down and up adds an empty object. https://github.com/netobserv/netobserv-operator/pull/467
func TestNetobservOperator467EmptyObjectAppears(t *testing.T) {
	t.Parallel()
	c := build(t)
	in := newWidget(`{"tier":"x"}`)
	same(t, in, convert(t, c, convert(t, c, in, "v1alpha1"), "v1"))
	up := convert(t, c, oldWidget(`{"replicas":1}`), "v1")
	same(t, oldWidget(`{"replicas":1}`), convert(t, c, up, "v1alpha1"))
}

// A pair that loses something says so nowhere, and the laws find out: here by a function that eats a label.
// https://github.com/tektoncd/pipeline/issues/7105
func TestTektonPipeline7105NothingIsForgotten(t *testing.T) {
	t.Parallel()
	c := pair(t, func(ctx context.Context, in *OldWidget, out *NewWidget) error {
		delete(out.Labels, "team")
		return up(ctx, in, out)
	}, down)
	in := strings.Replace(oldWidget(`{"replicas":1,"note":"n"}`), `"uid"`, `"labels":{"team":"db","app":"x"},"uid"`, 1)
	there := convert(t, c, in, "v1")
	if at(t, there, "metadata", "labels", "team") != nil {
		t.Errorf("the function has a say in labels: %s", there)
	}
	same(t, in, convert(t, c, there, "v1alpha1"))
}

// A value outside the known set. https://github.com/crossplane-contrib/provider-kubernetes/issues/179
func TestProviderKubernetes179UnknownValue(t *testing.T) {
	t.Parallel()
	c := build(t)
	in := newWidget(`{"tier":"ObserveCreateUpdate","debug":{"level":"extreme"}}`)
	same(t, in, convert(t, c, convert(t, c, in, "v1alpha1"), "v1"))
}

// A body without a request: https://github.com/knative/pkg dereferences nil there.
func TestKnativePkgBodyWithoutRequest(t *testing.T) {
	t.Parallel()
	for _, body := range []string{`{}`, `{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview"}`, `{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","request":null}`} {
		if w := post(t, handler(t, build(t)), "application/json", body); w.Code != http.StatusBadRequest || body != `{}` && !strings.Contains(w.Body.String(), "no request") {
			t.Errorf("%s: %d %s", body, w.Code, w.Body)
		}
	}
}

// Names match by case: encoding/json would fill replicas from Replicas.
func TestKnativePkgNamesMatchByCase(t *testing.T) {
	t.Parallel()
	for _, spec := range []string{`{"Replicas":7,"replicas":3}`, `{"replicas":3,"Replicas":7}`} {
		got := convert(t, build(t), oldWidget(spec), "v1")
		if fmt.Sprint(at(t, got, "spec", "scalePolicy", "min")) != "3" || fmt.Sprint(at(t, got, "spec", "Replicas")) != "7" {
			t.Errorf("%s: %s", spec, got)
		}
	}
}

// A stored MicroTime with seven digits: encoding refuses it, and an API server has it.
func TestMicroTimeWithMoreDigits(t *testing.T) {
	t.Parallel()
	c := build(t)
	in := oldWidget(`{"at":"2026-03-01T10:00:00.1234567Z","replicas":2}`)
	var probe metav1.MicroTime
	if json.Unmarshal([]byte(`"2026-03-01T10:00:00.1234567Z"`), &probe) == nil {
		t.Fatal("the type takes it now: this test needs another value")
	}
	there := convert(t, c, in, "v1")
	if at(t, there, "spec", "at") != "2026-03-01T10:00:00.1234567Z" {
		t.Errorf("%s", there)
	}
	same(t, in, convert(t, c, there, "v1alpha1"))
	// But not if the function has done something with it.
	c = pair(t, func(ctx context.Context, in *OldWidget, out *NewWidget) error {
		defer func() { out.Spec.At = &metav1.MicroTime{} }()
		return up(ctx, in, out)
	}, down)
	_, err := c.Convert(t.Context(), []byte(in), "v1")
	var ce *conversion.Error
	if !errors.As(err, &ce) || ce.Path != "spec.at" {
		t.Errorf("error %v", err)
	}
}

// Eleven items, a digit in a name, and a list that is not there. upjet replaces every 0 of a path, and panics over nil.
func TestUpjetPathsWithDigits(t *testing.T) {
	t.Parallel()
	c := build(t)
	var rules []string
	for i := range 11 {
		rules = append(rules, fmt.Sprintf(`{"name":"ipv4%d","port":%d,"cidr":"10.0.0.%d/32"}`, i, i+1, i))
	}
	in := newWidget(`{"rules":[` + strings.Join(rules, ",") + `]}`)
	same(t, in, convert(t, c, convert(t, c, in, "v1alpha1"), "v1"))
	in = newWidget(`{"rules":null,"tier":"x"}`)
	same(t, in, convert(t, c, convert(t, c, in, "v1alpha1"), "v1"))
}

// An integer that a float64 cannot hold, in what is kept: upjet makes ...993 ...992.
func TestUpjetExactIntegers(t *testing.T) {
	t.Parallel()
	c := build(t)
	back := convert(t, c, convert(t, c, newWidget(`{"big":9007199254740993}`), "v1alpha1"), "v1")
	if got := fmt.Sprint(at(t, back, "spec", "big")); got != "9007199254740993" {
		t.Errorf("big = %s", got)
	}
}

// A function copies everything by way of JSON, TypeMeta included: the API server would refuse the answer of
// controller-runtime.
func TestControllerRuntimeFunctionOverwritesTypeMeta(t *testing.T) {
	t.Parallel()
	c := pair(t, func(_ context.Context, in *OldWidget, out *NewWidget) error {
		raw, err := json.Marshal(in)
		if err != nil {
			return err
		}
		return json.Unmarshal(raw, out)
	}, down)
	out, err := conversiontest.Review(t.Context(), handler(t, c), "example.com/v1", []byte(oldWidget(`{"config":{"a":"b"}}`)))
	if err != nil || at(t, string(out[0]), "apiVersion") != "example.com/v1" {
		t.Errorf("%s, %v", out, err)
	}
}

// A replica that is not the leader, and one whose caches wait for this very webhook, must answer.
// https://github.com/crossplane/upjet/issues/712, https://github.com/openshift/hypershift/pull/9387
func TestUpjet712EveryReplicaAnswersFromTheStart(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	served := make(chan error, 2)
	for range 2 { // two replicas; nobody holds a lease, nothing has synced
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		h := handler(t, build(t))
		go func() { served <- conversion.Serve(ctx, l, h, nil) }()
		r, err := http.Post("http://"+l.Addr().String()+"/convert", "application/json", strings.NewReader(reviewOf("example.com/v1", oldWidget(`{"replicas":1}`))))
		if err != nil {
			t.Fatal(err)
		}
		answer, err := io.ReadAll(r.Body)
		r.Body.Close()
		if err != nil || !strings.Contains(string(answer), "Success") {
			t.Errorf("%s, %v", answer, err)
		}
	}
	cancel()
	for range 2 {
		if err := <-served; err != nil {
			t.Error(err)
		}
	}
}
