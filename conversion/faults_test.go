// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conversion_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"net"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/conversion"
	"github.com/ashlar-go/ashlar/conversion/conversiontest"
)

// A function may move an annotation into a field. It sees it each time it is asked about the object, not only the first time.
func TestFunctionsThatMoveAnnotations(t *testing.T) {
	t.Parallel()
	b := conversion.New(widgets)
	conversion.Pair(b, "v1alpha1", "v1beta1", func(_ context.Context, in, out *OldWidget) error {
		*out = *in // shares the maps, as functions do
		out.Spec.Note = in.Annotations["note"]
		delete(out.Annotations, "note")
		return nil
	}, func(_ context.Context, in, out *OldWidget) error {
		*out = *in
		if in.Spec.Note != "" {
			out.Annotations = map[string]string{"note": strings.ToLower(in.Spec.Note)}
		}
		out.Spec.Note = ""
		return nil
	})
	conversion.Pair(b, "v1beta1", "v1", func(ctx context.Context, in *OldWidget, out *NewWidget) error {
		out.Spec.Debug.Level = in.Spec.Note
		return up(ctx, in, out)
	}, func(ctx context.Context, in *NewWidget, out *OldWidget) error {
		err := down(ctx, in, out)
		out.Spec.Note = in.Spec.Debug.Level
		return err
	})
	c, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	read := convert(t, c, newWidget(`{"tier":"gold","debug":{"level":"HIGH"}}`), "v1alpha1")
	if at(t, read, "metadata", "annotations", "note") != "high" {
		t.Fatal(read)
	}
	beta := convert(t, c, read, "v1beta1")
	if at(t, beta, "spec", "note") != "HIGH" || at(t, beta, "metadata", "annotations", "note") != nil {
		t.Errorf("at v1beta1: %s", beta)
	}
	same(t, newWidget(`{"tier":"gold","debug":{"level":"HIGH"}}`), convert(t, c, beta, "v1"))
}

// A function may write into the lists of the metadata, too; each step has its own.
func TestFunctionsThatWriteIntoLists(t *testing.T) {
	t.Parallel()
	var seen []string
	write := func(finalizers []string) {
		seen = append(seen, finalizers...)
		finalizers[0] = "written"
	}
	c := pair(t, func(ctx context.Context, in *OldWidget, out *NewWidget) error {
		write(in.Finalizers)
		return up(ctx, in, out)
	}, func(ctx context.Context, in *NewWidget, out *OldWidget) error {
		write(in.Finalizers)
		return down(ctx, in, out)
	})
	in := strings.Replace(oldWidget(`{}`), `"uid"`, `"finalizers":["f"],"uid"`, 1)
	convert(t, c, in, "v1")
	convert(t, c, in, "v1")
	if got := strings.Join(seen, ","); got != "f,f,f,f" {
		t.Errorf("the functions have seen %s", got)
	}
}

// Port panics over what it does not know.
type Port string

func (p *Port) UnmarshalJSON(raw []byte) error {
	var s string
	_ = json.Unmarshal(raw, &s)
	_ = s[0] // the usual surprise
	*p = Port(s)
	return nil
}

type portWidget struct {
	Spec struct {
		Port Port   `json:"port,omitempty"`
		Note string `json:"note,omitempty"`
	} `json:"spec"`
}

// Quarantine is also for values whose own code panics over them.
func TestQuarantineOfAPanicInUnmarshalJSON(t *testing.T) {
	t.Parallel()
	b := conversion.New(widgets)
	through := func(_ context.Context, in, out *portWidget) error { *out = *in; return nil }
	conversion.Pair(b, "v1alpha1", "v1", through, through)
	c, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	in := oldWidget(`{"port":"","note":"x"}`)
	h := handler(t, c, conversion.WithQuarantine())
	out, err := conversiontest.Review(t.Context(), h, "example.com/v1", []byte(in))
	if err != nil {
		t.Fatal(err)
	}
	if at(t, string(out[0]), "spec", "note") != "x" {
		t.Errorf("what both versions hold is not there: %s", out[0])
	}
	if out, err = conversiontest.Review(t.Context(), h, "example.com/v1alpha1", out[0]); err != nil {
		t.Fatal(err)
	}
	same(t, in, string(out[0]))
}

// The release that repairs the converter also has a field at both versions that only the old one had. The copy lacks it
// because it could not be shown then, not because somebody took it away.
func TestQuarantineOutlivesANewRelease(t *testing.T) {
	t.Parallel()
	in := oldWidget(`{"endpoint":"a:b","paused":true,"note":"mine","rules":[{"name":"r","port":1,"foo":2}]}`)
	out, err := conversiontest.Review(t.Context(), handler(t, build(t), conversion.WithQuarantine()), "example.com/v1", []byte(in))
	if err != nil {
		t.Fatal(err)
	}
	b := conversion.New(widgets)
	through := func(_ context.Context, in, out *OldWidget) error { *out = *in; return nil }
	conversion.Pair(b, "v1alpha1", "v1", through, through)
	next, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	same(t, in, convert(t, next, string(out[0]), "v1alpha1"))
	edited := bytes.Replace(out[0], []byte(`"paused":true`), []byte(`"config":{"a":"b"}`), 1)
	same(t, strings.Replace(in, `"paused":true`, `"config":{"a":"b"}`, 1), convert(t, next, string(edited), "v1alpha1"))
}

// An object in quarantine was copied under another name, or its key is gone: it is not the original any more, and must not
// stop every LIST.
func TestSignedQuarantineUnderAnotherName(t *testing.T) {
	t.Parallel()
	h := handler(t, build(t, conversion.WithKeys([]byte("0123456789abcdef"))), conversion.WithQuarantine())
	out, err := conversiontest.Review(t.Context(), h, "example.com/v1", []byte(oldWidget(`{"endpoint":"a:b","paused":true}`)))
	if err != nil {
		t.Fatal(err)
	}
	copied := bytes.Replace(out[0], []byte(`"name":"a"`), []byte(`"name":"b"`), 1)
	if _, err = conversiontest.Review(t.Context(), h, "example.com/v1alpha1", copied); err != nil {
		t.Errorf("under another name: %v", err)
	}
}

// What is kept cannot give the API server labels it refuses the whole review for.
func TestForgedStashCannotWriteLabelsThatAreRefused(t *testing.T) {
	t.Parallel()
	h := handler(t, build(t))
	for _, stash := range []string{
		`{"v1":[{"p":"/metadata/labels/a","n":5}]}`, `{"v1":[{"p":"/metadata/labels","n":"b"}]}`, `{"v1":[{"p":"/metadata/labels","n":{"a":null}}]}`,
		`{"v1":[{"p":"/metadata/annotations/a","n":{}}]}`, `{"v1":[{"p":"/metadata/labels/x","o":"y","n":{}}]}`, `{"v1":[{"p":"/metadata/annotations","n":[]}]}`,
		`{"v1":[{"p":"/metadata/annotationsfoo","n":[]}]}`, `{"v1":[{"p":"/metadata/labels/a","n":"not valid!"}]}`, `{"v1":[{"p":"/metadata/labels/a b","n":"c"}]}`,
		`{"v1":[{"p":"/metadata/annotations/a b","n":"c"}]}`,
	} {
		text, err := json.Marshal(stash)
		if err != nil {
			t.Fatal(err)
		}
		for _, labels := range []string{`"labels":{"x":"y"},`, ""} {
			in := `{"apiVersion":"example.com/v1alpha1","kind":"Widget","metadata":{"name":"a",` + labels + `"annotations":{"` + conversion.Annotation + `":` + string(text) + `}},"spec":{"paused":true}}`
			if _, err := conversiontest.Review(t.Context(), h, "example.com/v1", []byte(in)); err != nil {
				t.Errorf("%s: %v", stash, err)
			}
		}
	}
}

// What a function has taken from labels and annotations comes back, whatever their names are.
func TestLabelsComeBack(t *testing.T) {
	t.Parallel()
	c := pair(t, func(ctx context.Context, in *OldWidget, out *NewWidget) error {
		out.Labels, out.Annotations = nil, nil
		return up(ctx, in, out)
	}, down)
	in := strings.Replace(oldWidget(`{}`), `"uid"`, `"labels":{"a":"","app.kubernetes.io/Name_x":"1.A-b","x.a-0.io/`+strings.Repeat("y", 63)+`":"z"},"annotations":{"Foo.io/Bar":"any thing","b":""},"uid"`, 1)
	there := convert(t, c, in, "v1")
	if at(t, there, "metadata", "labels") != nil {
		t.Fatal(there)
	}
	same(t, in, convert(t, c, there, "v1alpha1"))
	// Somebody adds others meanwhile.
	there = strings.NewReplacer(`"annotations":{`, `"annotations":{"new":"1",`, `"uid"`, `"labels":{"new":"1"},"uid"`).Replace(there)
	back := convert(t, c, there, "v1alpha1")
	for _, path := range [][]string{{"labels", "a"}, {"labels", "new"}, {"annotations", "b"}, {"annotations", "new"}} {
		if at(t, back, append([]string{"metadata"}, path...)...) == nil {
			t.Errorf("%s is gone: %s", path, back)
		}
	}
}

// A function adds an annotation of its own where there was none. It is not there when the object comes back.
func TestAddedAnnotationsGoAgain(t *testing.T) {
	t.Parallel()
	c := pair(t, func(ctx context.Context, in *OldWidget, out *NewWidget) error {
		out.Annotations = map[string]string{"converted": "yes"}
		return up(ctx, in, out)
	}, down)
	for _, labels := range []string{"", `"annotations":{"mine":"1"},`} {
		in := strings.Replace(oldWidget(`{"note":"x"}`), `"uid"`, labels+`"uid"`, 1)
		there := convert(t, c, in, "v1")
		if at(t, there, "metadata", "annotations", "converted") != "yes" {
			t.Fatal(there)
		}
		same(t, in, convert(t, c, there, "v1alpha1"))
	}
}

// What is kept does not fit the type it is kept for: it is forged, or a release with other types has kept it. The object
// is readable without it, and what is kept for other versions stays.
func TestKeptValuesOfAnotherType(t *testing.T) {
	t.Parallel()
	b := conversion.New(widgets)
	through := func(_ context.Context, in, out *OldWidget) error { *out = *in; return nil }
	conversion.Pair(b, "v1alpha1", "v1beta1", through, through)
	conversion.Pair(b, "v1beta1", "v1", up, down)
	c, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	for _, stash := range []string{
		`{"v1":[{"p":"/spec/tier","n":5}]}`, `{"v1":[{"p":"/spec/paused","o":true,"n":{}}]}`, `{"v1":[{"p":"/spec/rules","n":[5]}]}`,
	} {
		text, err := json.Marshal(stash)
		if err != nil {
			t.Fatal(err)
		}
		in := strings.Replace(oldWidget(`{"paused":true}`), `"uid"`, `"annotations":{"`+conversion.Annotation+`":`+string(text)+`},"uid"`, 1)
		for _, to := range []string{"v1", "v1beta1"} {
			r, err := c.Trial(t.Context(), []byte(in), to)
			if err != nil || at(t, string(r.Object), "spec", "paused") != true {
				t.Errorf("%s to %s: %s, rejected %v, %v", stash, to, r.Object, r.Rejected, err)
			}
		}
		r, err := c.Trial(t.Context(), []byte(strings.Replace(in, `\"v1\"`, `\"v1beta1\":[{\"p\":\"/spec/note\",\"n\":\"x\"}],\"v1\"`, 1)), "v1beta1")
		if err != nil || at(t, string(r.Object), "spec", "note") != "x" {
			t.Errorf("beside %s: %s, %v", stash, r.Object, err)
		}
	}
}

// An object in quarantine is not what it looks like: a manifest of it would be without all that the versions do not share.
func TestExportOfQuarantine(t *testing.T) {
	t.Parallel()
	h := handler(t, build(t), conversion.WithQuarantine())
	out, err := conversiontest.Review(t.Context(), h, "example.com/v1", []byte(oldWidget(`{"endpoint":"a:b","note":"mine"}`)))
	if err != nil {
		t.Fatal(err)
	}
	manifest, left, err := conversion.Export(out[0])
	if err == nil && len(left) == 0 {
		t.Errorf("nothing is said to be left behind: %s", manifest)
	}
	for _, raw := range []string{`[1,2]`, `"x"`, `null`} {
		if manifest, _, err := conversion.Export([]byte(raw)); err == nil {
			t.Errorf("%s became the manifest %s", raw, manifest)
		}
	}
}

// A list of keys that came out empty must not switch signing off.
func TestWithKeysWithoutKeys(t *testing.T) {
	t.Parallel()
	b := conversion.New(widgets, conversion.WithKeys())
	conversion.Pair(b, "v1alpha1", "v1", up, down)
	if _, err := b.Build(); err == nil {
		t.Error("no error")
	}
}

func TestSameRefusesWhatIsNoVersion(t *testing.T) {
	t.Parallel()
	for _, v := range []string{"", "example.com/v2"} {
		b := conversion.New(widgets)
		b.Same("v1", v)
		if _, err := b.Build(); err == nil {
			t.Errorf("%q: no error", v)
		}
	}
}

// Two versions were declared the same after something was kept for each: the answer is the same every time.
func TestStashOfVersionsThatBecameTheSame(t *testing.T) {
	t.Parallel()
	b := conversion.New(widgets)
	conversion.Pair(b, "v1alpha1", "v1", up, down)
	b.Same("v1", "v2")
	c, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	in := strings.Replace(oldWidget(`{}`), `"uid"`, `"annotations":{"`+conversion.Annotation+`":"{\"v1\":[{\"p\":\"/spec/tier\",\"n\":\"a\"}],\"v2\":[{\"p\":\"/spec/tier\",\"n\":\"b\"}]}"},"uid"`, 1)
	for range 50 {
		if got := at(t, convert(t, c, in, "v2"), "spec", "tier"); got != "b" {
			t.Fatalf("what was kept for v2 is %v", got)
		}
	}
}

// Serve closes its listener also when the configuration has no certificate, and leaves the configuration as it is.
func TestServeAndItsConfig(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS13}
	if err := conversion.Serve(t.Context(), l, handler(t, build(t)), config); err == nil {
		t.Error("no error without a certificate")
	}
	if l.Close() == nil {
		t.Error("the listener is still open")
	}
	if len(config.NextProtos) > 0 {
		t.Errorf("the configuration was changed: %q", config.NextProtos)
	}
}

// An observer that panics while several objects are converted does not end the process.
func TestObserverPanics(t *testing.T) {
	t.Parallel()
	h := handler(t, build(t), conversion.WithObserver(func(e conversion.Event) {
		if e.Kind == conversion.Failed {
			panic("observer")
		}
	}))
	bad := oldWidget(`{"endpoint":"a:b","note":"` + strings.Repeat("x", 64<<10) + `"}`)
	if w := post(t, h, "application/json", reviewOf("example.com/v1", bad, bad)); !strings.Contains(w.Body.String(), `"status":"Failure","message":"panic: observer`) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// A prototype may be a nil pointer: its type says enough.
func TestPrototypesMayBeNil(t *testing.T) {
	t.Parallel()
	b := conversion.New(databases(), conversion.WithScheme(dbScheme()))
	conversion.FromConvertible[hub, convertible](b, (*DB)(nil), (*AlphaDB)(nil))
	if _, err := b.Build(); err != nil {
		t.Error(err)
	}
}
