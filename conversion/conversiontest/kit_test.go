// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conversiontest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/conversion"
	"github.com/ashlar-go/ashlar/conversion/conversiontest"
)

// failed is a testing.TB that notes the first fatal failure and stops the goroutine as a real one does.
type failed struct {
	testing.TB
	text string
}

type stop struct{}

func (f *failed) Helper()                  {}
func (f *failed) Context() context.Context { return context.Background() }
func (f *failed) Fatal(args ...any)        { f.text = fmt.Sprint(args...); panic(stop{}) }
func (f *failed) Fatalf(format string, args ...any) {
	f.text = fmt.Sprintf(format, args...)
	panic(stop{})
}

func verdict(check func(testing.TB)) (text string) {
	f := &failed{}
	defer func() {
		if p := recover(); p != nil {
			if _, ok := p.(stop); !ok {
				panic(p)
			}
			text = f.text
		}
	}()
	check(f)
	return ""
}

// The kit finds what is wrong with a converter. Each of these is one that users have written.
func TestTheKitFails(t *testing.T) {
	t.Parallel()
	calls := 0
	for name, tt := range map[string]struct {
		reason string
		up     func(context.Context, *GadgetA, *GadgetB) error
		down   func(context.Context, *GadgetB, *GadgetA) error
		says   string
	}{
		"partial object": {"nil pointers of objects without a spec", func(ctx context.Context, in *GadgetA, out *GadgetB) error {
			if in.Status.Ready == nil {
				return errors.New("ready is missing")
			}
			return aToB(ctx, in, out)
		}, bToA, "ready is missing"},
		"random": {"two answers to one question", func(ctx context.Context, in *GadgetA, out *GadgetB) error {
			calls++
			out.Spec.Mode = fmt.Sprint(calls)
			return aToB(ctx, in, out)
		}, bToA, "the second answer differs"},
		"panic": {"an index beyond a list", func(ctx context.Context, in *GadgetA, out *GadgetB) error {
			_ = in.Spec.Args[0]
			return aToB(ctx, in, out)
		}, bToA, "panic"},
		"forgotten": {"a field that both versions have is not copied up", func(ctx context.Context, in *GadgetA, out *GadgetB) error {
			err := aToB(ctx, in, out)
			out.Spec.Suspend = nil
			return err
		}, bToA, "spec.suspend is in v1alpha1 and in v1beta1 with one type, and is gone: the function does not copy it"},
		"forgotten down": {"one in an item of a list is not copied down", aToB, func(ctx context.Context, in *GadgetB, out *GadgetA) error {
			err := bToA(ctx, in, out)
			for i := range out.Spec.Rules {
				out.Spec.Rules[i].Port = 0
			}
			return err
		}, "spec.rules.port is in v1beta1 and in v1alpha1 with one type, and is gone"},
		"illegal label": {"the API server refuses the answer", func(ctx context.Context, in *GadgetA, out *GadgetB) error {
			if out.Labels == nil {
				out.Labels = map[string]string{}
			}
			out.Labels["legacy"] = "two words"
			return aToB(ctx, in, out)
		}, bToA, "the API server refuses it"},
	} {
		t.Run(name, func(t *testing.T) {
			b := conversion.New(gadgets, conversion.WithListKeys("v1alpha1", "spec.rules", "name"), conversion.WithListKeys("v1beta1", "spec.rules", "name"))
			conversion.Pair(b, "v1alpha1", "v1beta1", tt.up, tt.down)
			c, err := b.Build()
			if err != nil {
				t.Fatal(err)
			}
			got := verdict(func(tb testing.TB) { conversiontest.Laws(tb, c, gadgetCRD(2, "v1alpha1", nil)) })
			if !strings.Contains(got, tt.says) {
				t.Errorf("%s: the verdict is %q, want %q", tt.reason, got, tt.says)
			}
		})
	}
	// If it is meant, it is said.
	b := conversion.New(gadgets, conversion.WithListKeys("v1alpha1", "spec.rules", "name"), conversion.WithListKeys("v1beta1", "spec.rules", "name"))
	conversion.Pair(b, "v1alpha1", "v1beta1", func(ctx context.Context, in *GadgetA, out *GadgetB) error {
		err := aToB(ctx, in, out)
		out.Spec.Suspend = nil
		return err
	}, bToA)
	c, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	if got := verdict(func(tb testing.TB) {
		conversiontest.Laws(tb, c, gadgetCRD(2, "v1alpha1", nil), conversiontest.WithExcept("spec.suspend"))
	}); got != "" {
		t.Errorf("the verdict is %q", got)
	}
	// Walks notice values that end up elsewhere: here an update that is stored without what it said.
	b = conversion.New(gadgets)
	conversion.Pair(b, "v1alpha1", "v1beta1", aToB, func(ctx context.Context, in *GadgetB, out *GadgetA) error {
		err := bToA(ctx, in, out)
		if len(out.Spec.Ports) > 1 {
			out.Spec.Ports[0], out.Spec.Ports[1] = out.Spec.Ports[1], out.Spec.Ports[0]
		}
		return err
	})
	if c, err = b.Build(); err != nil {
		t.Fatal(err)
	}
	if got := verdict(func(tb testing.TB) {
		conversiontest.Walks(tb, c, gadgetCRD(2, "v1alpha1", nil), conversiontest.WithN(200))
	}); !strings.Contains(got, "want") {
		t.Errorf("the verdict over mixed up items is %q", got)
	}
}

// Validate has the server's rules, in the server's words.
func TestValidate(t *testing.T) {
	t.Parallel()
	request := []byte(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","request":{"uid":"1","desiredAPIVersion":"example.com/v1","objects":[{"apiVersion":"example.com/v1beta1","kind":"Thing","metadata":{"name":"a","namespace":"n","uid":"u","finalizers":["f"],"labels":{"a":"b"}}}]}}`)
	answer := func(response string) string {
		return `{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","response":` + response + `}`
	}
	object := func(o string) string {
		return answer(`{"uid":"1","result":{"status":"Success"},"convertedObjects":[` + o + `]}`)
	}
	meta := `"metadata":{"name":"a","namespace":"n","uid":"u"`
	for name, tt := range map[string]struct {
		response string
		failure  conversion.Failure
		says     string
	}{
		"not JSON":       {"x", conversion.CallFailure, "json parse error"},
		"empty":          {"{}", conversion.MalformedFailure, "expected webhook response of apiextensions.k8s.io/v1"},
		"no response":    {`{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview"}`, conversion.MalformedFailure, "no response provided"},
		"uid":            {answer(`{"uid":"2"}`), conversion.MalformedFailure, `expected response.uid="1", got "2"`},
		"status":         {answer(`{"uid":"1","result":{}}`), conversion.MalformedFailure, "response.result.status was '', not 'Success'"},
		"message":        {answer(`{"uid":"1","result":{"status":"Failure","message":"because"}}`), conversion.MalformedFailure, "because"},
		"number":         {answer(`{"uid":"1","result":{"status":"Success"},"convertedObjects":[]}`), conversion.PartialFailure, "returned 0 objects, expected 1"},
		"version":        {object(`{"apiVersion":"example.com/v1beta1","kind":"Thing",` + meta + `}}`), conversion.InvalidFailure, "invalid groupVersion (expected example.com/v1, received example.com/v1beta1)"},
		"kind":           {object(`{"apiVersion":"example.com/v1","kind":"Other",` + meta + `}}`), conversion.InvalidFailure, "invalid kind (expected Thing, received Other)"},
		"no metadata":    {object(`{"apiVersion":"example.com/v1","kind":"Thing"}`), conversion.InvalidFailure, "must have the same name: a != "},
		"no uid":         {object(`{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"a","namespace":"n"}}`), conversion.InvalidFailure, "must have the same UID: u != "},
		"label value":    {object(`{"apiVersion":"example.com/v1","kind":"Thing",` + meta + `,"labels":{"a":1}}}`), conversion.InvalidFailure, "must be a string"},
		"illegal label":  {object(`{"apiVersion":"example.com/v1","kind":"Thing",` + meta + `,"labels":{"a":"x y"}}}`), conversion.InvalidFailure, "invalid value"},
		"long":           {object(`{"apiVersion":"example.com/v1","kind":"Thing",` + meta + `,"annotations":{"a":"` + strings.Repeat("x", 256<<10) + `"}}}`), conversion.InvalidFailure, "may not be more than 262144 bytes"},
		"labels are out": {object(`{"apiVersion":"example.com/v1","kind":"Thing",` + meta + `}}`), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, err := conversiontest.Validate(request, []byte(tt.response))
			if tt.failure == "" {
				if err != nil || !strings.Contains(string(out[0]), `"finalizers":["f"]`) || strings.Contains(string(out[0]), "labels") {
					t.Errorf("%s, %v", out, err)
				}
				return
			}
			var re *conversiontest.ResponseError
			if !errors.As(err, &re) || re.Failure != tt.failure || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("error %v, want %s: %s", err, tt.failure, tt.says)
			}
		})
	}
}

// A handler whose annotation is a constant that nobody ever writes: no assertion about it is needed, the walks notice what
// is lost. https://github.com/tektoncd/pipeline/issues/7105
func TestTektonPipeline7105TheAnnotationIsNeverWritten(t *testing.T) {
	t.Parallel()
	never := func(s *conversiontest.Server) conversiontest.API {
		inner := s.Handler
		s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			rec := httptest.NewRecorder()
			inner.ServeHTTP(rec, r)
			var answer map[string]any
			d := json.NewDecoder(rec.Body)
			d.UseNumber()
			if err := d.Decode(&answer); err != nil {
				t.Error(err)
			}
			objects, _ := answer["response"].(map[string]any)["convertedObjects"].([]any)
			for _, o := range objects {
				if a, ok := o.(map[string]any)["metadata"].(map[string]any)["annotations"].(map[string]any); ok {
					delete(a, conversion.Annotation)
				}
			}
			_ = json.NewEncoder(w).Encode(answer)
		})
		return s
	}
	got := verdict(func(tb testing.TB) {
		conversiontest.Walks(tb, newGadgets(t, 2), gadgetCRD(2, "v1alpha1", nil), conversiontest.WithN(200), conversiontest.WithAPI(never))
	})
	if !strings.Contains(got, "absent, want") {
		t.Errorf("the verdict is %q", got)
	}
}
