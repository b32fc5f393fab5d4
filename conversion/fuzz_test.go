// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conversion_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	kjson "sigs.k8s.io/json"

	"github.com/ashlar-go/ashlar/conversion"
)

// twice reports whether an object in a document has a name twice, by another reader than ours.
func twice(raw []byte) bool {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	type level struct {
		object, name bool
		seen         map[string]bool
	}
	var stack []*level
	for {
		tok, err := d.Token()
		if err != nil {
			return false
		}
		top := func() *level {
			if len(stack) == 0 {
				return nil
			}
			return stack[len(stack)-1]
		}
		if delim, ok := tok.(json.Delim); ok {
			if delim == '}' || delim == ']' {
				stack = stack[:len(stack)-1]
				continue
			}
			if l := top(); l != nil {
				l.name = l.object
			}
			stack = append(stack, &level{object: delim == '{', name: delim == '{', seen: map[string]bool{}})
			continue
		}
		l := top()
		if l == nil || !l.object {
			continue
		}
		if l.name {
			if s := tok.(string); l.seen[s] {
				return true
			} else {
				l.seen[s] = true
			}
		}
		l.name = !l.name
	}
}

var documents = []string{
	`{}`, `[]`, `null`, `true`, `0`, `-1.5e+10`, `"a\u0041\n\ud83d\ude00"`, `{"a":[1,{"b":null}],"c":"d"}`, ` { "x" : [ ] } `,
	`{"a":1,"a":2}`, `{"a":1,"\u0061":2}`, `[1,]`, `{"a"}`, `01`, `1.`, `"\x"`, "\"\x01\"", "\"\xff\"", `{"b":1,"a":2}`, `nul`, `[[[[]]]]`, `1e400`, `-`, `"\ud800"`, `{"a":{"z":1,"y":{"z":[]}}}`,
}

func FuzzScanner(f *testing.F) {
	for _, d := range documents {
		f.Add([]byte(d))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		err := conversion.Valid(raw)
		want := json.Valid(raw)
		if want && err != nil && !(strings.Contains(err.Error(), "twice") && twice(raw)) {
			t.Fatalf("refused: %v: %q", err, raw)
		}
		if !want && err == nil {
			t.Fatalf("accepted %q", raw)
		}
		if want && err == nil && twice(raw) {
			t.Fatalf("a name is there twice in %q", raw)
		}
		if err != nil {
			return
		}
		once, err := conversion.Canonical(raw)
		if err != nil || !json.Valid(once) {
			t.Fatalf("canonical %q: %v", once, err)
		}
		again, err := conversion.Canonical(once)
		if err != nil || !bytes.Equal(once, again) {
			t.Fatalf("canonical twice: %q, then %q: %v", once, again, err)
		}
		if eq, err := conversion.Equal(raw, once); err != nil || !eq {
			t.Fatalf("%q is not equal to %q: %v", raw, once, err)
		}
		var a, b any
		if err := unmarshalNumbers(raw, &a); err != nil {
			t.Skip(err)
		}
		if err := unmarshalNumbers(once, &b); err != nil || !reflect.DeepEqual(a, b) {
			t.Fatalf("canonical means something else: %q, %q: %v", raw, once, err)
		}
	})
}

func unmarshalNumbers(raw []byte, into *any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	return d.Decode(into)
}

// everything has every kind of field the codec knows.
type everything struct {
	metav1.TypeMeta `json:",inline"`
	inner
	*Shared
	S     string            `json:"s,omitempty"`
	B     bool              `json:"b"`
	I8    int8              `json:"i8,omitempty"`
	I64   int64             `json:"i64"`
	U16   uint16            `json:"u16,omitempty"`
	F32   float32           `json:"f32,omitempty"`
	F64   float64           `json:"f64"`
	P     *int32            `json:"p,omitempty"`
	PP    **string          `json:"pp,omitempty"`
	L     []string          `json:"l"`
	LP    []*nested         `json:"lp,omitempty"`
	LL    [][]int           `json:"ll,omitempty"`
	M     map[string]string `json:"m,omitempty"`
	MS    map[string]nested `json:"ms,omitempty"`
	MK    map[kindOf][]bool `json:"mk,omitempty"`
	N     nested            `json:"n,omitempty"`
	Z     nested            `json:"z,omitzero"`
	Any   any               `json:"any,omitempty"`
	Bytes []byte            `json:"bytes,omitempty"`
	T     metav1.Time       `json:"t,omitempty"`
	TP    *metav1.Time      `json:"tp,omitempty"`
	MT    metav1.MicroTime  `json:"mt,omitzero"`
	D     *metav1.Duration  `json:"d,omitempty"`
	IS    intstr.IntOrString
	Raw   json.RawMessage `json:"raw,omitempty"`
	Skip  string          `json:"-"`
	Self  *everything     `json:"self,omitempty"`
	Arr   [2]int          `json:"arr,omitempty"`
}

type (
	inner  struct{ Deep string }
	Shared struct {
		Deep string `json:"deep,omitempty"`
		S    string // hidden by everything.S
	}
	nested struct {
		A string `json:"a,omitempty"`
		B *bool  `json:"b,omitempty"`
	}
	kindOf string
)

// The codec reads and writes what sigs.k8s.io/json and encoding/json do.
func FuzzCodec(f *testing.F) {
	f.Add([]byte(`{"apiVersion":"v1","kind":"K","Deep":"x","deep":"y","s":"é\u2028<","b":true,"i8":-128,"i64":9007199254740993,"u16":7,"f32":1.5,"f64":1e-9,"p":1,"pp":"z","l":[],"lp":[null,{"a":"q","b":false}],"ll":[[1],null],"m":{"k":"v","n":null},"ms":{"x":{"a":"1"}},"mk":{"t":[true]},"n":{},"z":{},"any":{"a":[1,1.5,"x",null,true]},"bytes":"aGk=","t":"2026-03-01T10:00:00Z","tp":null,"mt":"2026-03-01T10:00:00.000001Z","d":"60s","IS":"80%","raw":{"x":1},"self":{"s":"in"},"arr":[1,2]}`))
	f.Add([]byte(`{"s":null,"b":null,"l":null,"m":null,"p":null,"n":null,"any":null,"t":null,"IS":null,"raw":null,"self":null}`))
	f.Add([]byte(`{"i8":128}`))
	f.Add([]byte(`{"i64":1.0}`))
	f.Add([]byte(`{"t":"x"}`))
	f.Add([]byte(`{"f64":1e400}`))
	f.Add([]byte(`{"l":{}}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if conversion.Valid(raw) != nil {
			return
		}
		var want, got everything
		werr := kjson.UnmarshalCaseSensitivePreserveInts(raw, &want)
		ok, gerr := conversion.Decode(raw, &got)
		if !ok {
			t.Fatal("the codec does not know the type")
		}
		if (werr == nil) != (gerr == nil) {
			t.Fatalf("error %v, want %v for %q", gerr, werr, raw)
		}
		if werr != nil {
			return
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(everything{}, inner{}), cmp.Comparer(func(a, b time.Time) bool { return a.Equal(b) })); diff != "" {
			t.Fatalf("%q (-want +got)\n%s", raw, diff)
		}
		wout, werr := json.Marshal(&want)
		gout, gerr := conversion.Encode(&got)
		if (werr == nil) != (gerr == nil) {
			t.Fatalf("write: error %v, want %v for %q", gerr, werr, raw)
		}
		if werr != nil {
			return
		}
		var compact bytes.Buffer
		if err := json.Compact(&compact, wout); err != nil {
			t.Fatal(err)
		}
		if eq, err := conversion.Equal(compact.Bytes(), gout); err != nil || !eq {
			t.Fatalf("wrote %s, want %s (%v)", gout, wout, err)
		}
	})
}

// Whatever a spec holds, converting it writes a document whose index is the one that reading it gives.
func FuzzOverlay(f *testing.F) {
	c := build(f)
	for _, spec := range []string{
		`{"replicas":3,"rules":[{"name":"a","port":1,"x":[{"y":[]},{}]},{"port":2}],"u":{"n\u006f":[1,{"\"":null}]},"config":{"\t":"\u00e9","a":"b"}}`,
		`{"endpoint":"a:1","note":"é","grants":[{"role":"r","new":{}}],"at":"2026-03-01T10:00:00.000000Z","paused":false,"timeoutSeconds":1e2}`,
		`{"scalePolicy":{"min":3,"max":5},"address":{"host":"h","port":0},"timeout":"30s","tier":"","big":9007199254740993,"debug":{}}`,
		`{"rules":[],"config":{},"":{"":[[],[[]],""]}}`,
		`{"endpoint":"a\"\n:1"}`,
	} {
		f.Add(spec)
	}
	f.Fuzz(func(t *testing.T, spec string) {
		for _, way := range [][2]string{{"v1alpha1", "v1"}, {"v1", "v1alpha1"}} {
			in := []byte(`{"apiVersion":"example.com/` + way[0] + `","kind":"Widget","metadata":{"name":"a"},"spec":` + spec + `,"status":{"extra":[1]}}`)
			if out, err := conversion.Steps(t.Context(), c, in, way[1]); errors.Is(err, conversion.ErrIndex) {
				t.Fatalf("%v\n%s\n%s", err, in, out)
			}
		}
	})
}

// Whatever is in the annotation: no panic, no invalid answer, and an input that is not modified.
func FuzzStash(f *testing.F) {
	c := build(f)
	spec := `{"scalePolicy":{"min":3,"max":5},"rules":[{"port":1,"cidr":"x"},{"port":1},{"name":"n","cidr":"y"}],"tier":"gold"}`
	there := convert(f, c, newWidget(spec), "v1alpha1")
	f.Add(stashOf(f, there))
	f.Add(`{"v1":[{"p":"/spec/rules","a":"","n":{}}]}`)
	f.Add(`{"v1":[{"p":"","o":{},"n":[]}]}`)
	f.Add(`{"v1":[{"p":"/spec/rules/#x.1","n":1},{"p":"/spec/rules","d":["x","x"]}]}`)
	f.Add(`{"#from":"v1","#body":{"spec":{"tier":"x"}},"#stash":"{}"}`)
	f.Add(`{"#from":"v1alpha1","#body":{"spec":[]}}`)
	f.Add(`{"#from":"v1alpha1","#body":{"spec":{"note":"x","rules":[{"port":1}]}},"#left":["/spec/note","/spec/rules/0/port","/spec/rules/7","",3]}`)
	f.Add(`{"v1":null}`)
	f.Add(`{"v1":[{"p":"/metadata/labels/a","n":1}]}`)
	f.Fuzz(func(t *testing.T, stash string) {
		text, err := json.Marshal(stash)
		if err != nil {
			t.Fatal(err)
		}
		in := []byte(`{"apiVersion":"example.com/v1alpha1","kind":"Widget","metadata":{"name":"a","annotations":{"` + conversion.Annotation + `":` + string(text) + `}},"spec":{"replicas":3,"rules":[{"port":1},{"port":1},{"name":"n"}]}}`)
		before := bytes.Clone(in)
		r, err := c.Trial(t.Context(), in, "v1")
		if !bytes.Equal(in, before) {
			t.Fatal("the input was modified")
		}
		if err != nil {
			return
		}
		if !json.Valid(r.Object) || conversion.Valid(r.Object) != nil {
			t.Fatalf("answer %s", r.Object)
		}
	})
}

// A document and its changed form: the changes make one of the other, exactly.
func FuzzRestore(f *testing.F) {
	f.Add([]byte(`{"a":1,"l":[{"n":1},{"n":2}]}`), []byte(`{"a":2,"l":[{"n":2,"x":null},{"n":3}]}`))
	f.Add([]byte(`{"l":[1,1,2]}`), []byte(`{"l":[2,1,1],"m":{}}`))
	f.Add([]byte(`{"l":[{"k":1},{"k":1}]}`), []byte(`{"l":[{"k":1,"v":1},{"k":1,"v":2}]}`))
	f.Add([]byte(`{"a/b":{"~":1}}`), []byte(`{"a/b":{"~":2,"":3}}`))
	f.Add([]byte(`{"l":[1]}`), []byte(`{"l":[0,1,2,3]}`))
	f.Fuzz(func(t *testing.T, old, new []byte) {
		if conversion.Valid(old) != nil || conversion.Valid(new) != nil || old[0] != '{' || new[0] != '{' {
			return
		}
		changes, err := conversion.Diff(old, new, nil)
		if err != nil {
			t.Fatal(err)
		}
		got, dropped, err := conversion.Restore(old, nil, changes)
		if err != nil || !json.Valid(got) {
			t.Fatalf("%s: %v", got, err)
		}
		if eq, err := conversion.Equal(new, got); dropped > 0 || err != nil || !eq {
			t.Fatalf("%s is not %s: %d dropped (%v) %v", got, new, dropped, err, changes)
		}
	})
}

// Whatever is posted: a 4xx, or an answer that an API server can read, never half of one.
func FuzzReview(f *testing.F) {
	h := handler(f, build(f), conversion.WithQuarantine(), conversion.WithCache(1<<16))
	f.Add([]byte(reviewOf("example.com/v1", oldWidget(`{"replicas":1}`))))
	f.Add([]byte(reviewOf("example.com/v1alpha1", newWidget(`{"tier":"x"}`), newWidget(`{}`))))
	f.Add([]byte(reviewOf("example.com/v1", oldWidget(`{"endpoint":"a:b"}`))))
	f.Add([]byte(reviewOf("example.com/v1", `1`, `"a,]"`, `[{}]`)))
	f.Add([]byte(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","request":{"uid":"1","desiredAPIVersion":"v1","objects":[,]}}`))
	f.Add([]byte(`{"request":{"objects":["\`))
	f.Fuzz(func(t *testing.T, body []byte) {
		w := post(t, h, "application/json", string(body))
		if w.Code >= 400 && w.Code < 500 {
			return
		}
		var v struct {
			Response struct {
				Result  struct{ Status, Message string }
				Objects []json.RawMessage `json:"convertedObjects"`
			}
		}
		var asked struct {
			Request struct {
				Objects []json.RawMessage `json:"objects"`
			} `json:"request"`
		}
		if w.Code != 200 || json.Unmarshal(w.Body.Bytes(), &v) != nil {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		switch v.Response.Result.Status {
		case "Failure":
			if v.Response.Result.Message == "" || len(v.Response.Objects) != 0 {
				t.Fatalf("%s", w.Body)
			}
		case "Success":
			if kjson.UnmarshalCaseSensitivePreserveInts(body, &asked) == nil && len(asked.Request.Objects) != len(v.Response.Objects) {
				t.Fatalf("%d objects for %d: %s", len(v.Response.Objects), len(asked.Request.Objects), w.Body)
			}
		default:
			t.Fatalf("%s", w.Body)
		}
	})
}
