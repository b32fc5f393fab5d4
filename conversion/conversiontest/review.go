// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conversiontest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"regexp"
	"strings"

	"github.com/ashlar-go/ashlar/conversion"
)

// ResponseError is why an API server refuses an answer, and the label it counts it under.
type ResponseError struct {
	Failure conversion.Failure // the label
	Err     error              // the sentence
}

// Error is the text a client of the API server sees, without what the server puts in front.
func (e *ResponseError) Error() string { return e.Err.Error() }

// Unwrap is the reason.
func (e *ResponseError) Unwrap() error { return e.Err }

type review struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Request    *struct {
		UID     string            `json:"uid"`
		Desired string            `json:"desiredAPIVersion"`
		Objects []json.RawMessage `json:"objects"`
	} `json:"request,omitempty"`
	Response *struct {
		UID    string `json:"uid"`
		Result struct {
			Status  string `json:"status"`
			Message string `json:"message"`
		} `json:"result"`
		Objects []json.RawMessage `json:"convertedObjects"`
	} `json:"response,omitempty"`
}

// Validate judges the answer to a ConversionReview as an API server does, by the same rules in the same order, and returns
// the objects as the server goes on with them: with the metadata of the request, but for labels and annotations. A bad
// answer is a [*ResponseError].
func Validate(request, response []byte) ([][]byte, error) {
	var asked, got review
	if err := json.Unmarshal(request, &asked); err != nil || asked.Request == nil {
		return nil, fmt.Errorf("read the request: not a ConversionReview (%w)", err)
	}
	malformed := func(format string, args ...any) ([][]byte, error) {
		return nil, &ResponseError{conversion.MalformedFailure, fmt.Errorf(format, args...)}
	}
	if err := json.Unmarshal(response, &got); err != nil {
		return nil, &ResponseError{conversion.CallFailure, fmt.Errorf("couldn't get version/kind; json parse error: %w", err)}
	}
	if asked.APIVersion == "apiextensions.k8s.io/v1" {
		if got.APIVersion != asked.APIVersion || got.Kind != "ConversionReview" {
			return malformed("expected webhook response of %s, Kind=ConversionReview, got %s, Kind=%s", asked.APIVersion, got.APIVersion, got.Kind)
		}
		if got.Response != nil && got.Response.UID != asked.Request.UID {
			return malformed("expected response.uid=%q, got %q", asked.Request.UID, got.Response.UID)
		}
	}
	if got.Response == nil {
		return malformed("no response provided")
	}
	if s := got.Response.Result; s.Status != "Success" {
		if s.Message != "" {
			return malformed("%s", s.Message)
		}
		return malformed("response.result.status was '%s', not 'Success'", s.Status)
	}
	if a, b := len(got.Response.Objects), len(asked.Request.Objects); a != b {
		return nil, &ResponseError{conversion.PartialFailure, fmt.Errorf("returned %d objects, expected %d", a, b)}
	}
	out := make([][]byte, len(got.Response.Objects))
	for i, raw := range got.Response.Objects {
		obj, err := accept(asked.Request.Objects[i], raw, asked.Request.Desired)
		if err != nil {
			return nil, &ResponseError{conversion.InvalidFailure, fmt.Errorf("invalid object at index %d: %w", i, err)}
		}
		out[i] = obj
	}
	return out, nil
}

func decode(raw []byte) (map[string]any, error) {
	var m map[string]any
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&m); err != nil {
		return nil, err
	}
	if m == nil {
		return nil, errors.New("null is no object")
	}
	return m, nil
}

// encode marshals what was decoded from JSON or generated as JSON, so that there is no error.
func encode(x any) []byte {
	raw, _ := json.Marshal(x)
	return raw
}

// accept is what the server does with one object of an answer.
func accept(in, out []byte, desired string) ([]byte, error) {
	original, err := decode(in)
	if err != nil {
		return nil, err
	}
	converted, err := decode(out)
	if err != nil {
		return nil, err
	}
	if converted["apiVersion"] != desired {
		return nil, fmt.Errorf("invalid groupVersion (expected %v, received %v)", desired, converted["apiVersion"])
	}
	if converted["kind"] != original["kind"] {
		return nil, fmt.Errorf("invalid kind (expected %v, received %v)", original["kind"], converted["kind"])
	}
	before, _ := original["metadata"].(map[string]any)
	after, isMap := converted["metadata"].(map[string]any)
	for _, key := range []string{"name", "namespace", "uid"} {
		a, _ := before[key].(string)
		b, _ := after[key].(string)
		if a != b {
			return nil, fmt.Errorf("must have the same %s: %v != %v", map[string]string{"name": "name", "namespace": "namespace", "uid": "UID"}[key], a, b)
		}
	}
	if _, ok := converted["metadata"]; !ok {
		return nil, errors.New("missing metadata in converted object")
	}
	if !isMap {
		return nil, fmt.Errorf("invalid metadata of type %T in converted object", converted["metadata"])
	}
	metadata := map[string]any{}
	maps.Copy(metadata, before)
	for _, field := range []string{"labels", "annotations"} {
		if after[field] == nil {
			delete(metadata, field)
			continue
		}
		m, ok := after[field].(map[string]any)
		if !ok {
			return nil, fmt.Errorf("invalid metadata.%s of type %T in converted object", field, after[field])
		}
		for k, v := range m {
			if _, ok := v.(string); !ok {
				return nil, fmt.Errorf("metadata.%s[%s] must be a string, but is %T in converted object", field, k, v)
			}
		}
		if !reflect.DeepEqual(metadata[field], after[field]) {
			if err := legal(field, m); err != nil {
				return nil, err
			}
		}
		metadata[field] = m
	}
	converted["metadata"] = metadata
	return encode(converted), nil
}

// legal is the validation of changed labels and annotations.
func legal(field string, m map[string]any) error {
	const limit = 256 << 10
	name := regexp.MustCompile(`^([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]$`)
	total := 0
	for k, v := range m {
		value := v.(string)
		total += len(k) + len(value)
		prefix, base, found := strings.Cut(k, "/")
		if !found {
			base, prefix = prefix, ""
		}
		if !name.MatchString(base) || len(prefix) > 253 || found && prefix == "" {
			return fmt.Errorf("metadata.%s: invalid value: %q", field, k)
		}
		if field == "labels" && value != "" && !name.MatchString(value) {
			return fmt.Errorf("metadata.labels: invalid value: %q", value)
		}
	}
	if field == "annotations" && total > limit {
		return fmt.Errorf("metadata.annotation: Too long: may not be more than %d bytes", limit)
	}
	return nil
}

// Review asks a handler to convert objects, as an API server would in one v1 review, and validates the answer.
func Review(ctx context.Context, h http.Handler, desired string, objects ...[]byte) ([][]byte, error) {
	list := make([]json.RawMessage, len(objects))
	for i, o := range objects {
		list[i] = o
	}
	body := encode(map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
		"request":  map[string]any{"uid": "705ab4f5-6393-11e8-b7cc-42010a800002", "desiredAPIVersion": desired, "objects": list},
		"response": map[string]any{"uid": "", "convertedObjects": nil, "result": map[string]any{"metadata": map[string]any{}}},
	})
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, (&url.URL{Path: "/convert", RawQuery: "timeout=30s"}).String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	w := &recorder{code: http.StatusOK, header: http.Header{}}
	h.ServeHTTP(w, r)
	if w.code < 200 || w.code > 299 {
		return nil, &ResponseError{conversion.CallFailure, fmt.Errorf("%d: %s", w.code, strings.TrimSpace(w.body.String()))}
	}
	return Validate(body, w.body.Bytes())
}

type recorder struct {
	code   int
	header http.Header
	body   bytes.Buffer
}

var _ io.Writer = (*recorder)(nil)

func (r *recorder) Header() http.Header         { return r.header }
func (r *recorder) WriteHeader(code int)        { r.code = code }
func (r *recorder) Write(b []byte) (int, error) { return r.body.Write(b) }
