// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package reconciletest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
)

const protobufType = "application/vnd.kubernetes.protobuf"

// protobufMagic starts every Kubernetes protobuf message; a runtime.Unknown follows.
var protobufMagic = []byte("k8s\x00")

// identity is what names an incarnation in a body.
type identity struct {
	Metadata struct {
		UID               types.UID    `json:"uid"`
		ResourceVersion   string       `json:"resourceVersion"`
		Name              string       `json:"name"`
		Namespace         string       `json:"namespace"`
		DeletionTimestamp *metav1.Time `json:"deletionTimestamp"`
	} `json:"metadata"`
	Items []identity `json:"items"`
}

// fill reads the identity that a write names from its body.
func (w *Write) fill(media string, body []byte) error {
	switch w.Verb {
	case VerbJSONPatch:
		return w.fillFromTests(body)
	case VerbApply:
		if media == string(types.ApplyCBORPatchType) {
			return fmt.Errorf("read %s body: not supported", media)
		}
		asJSON, err := yaml.ToJSON(body)
		if err != nil {
			return fmt.Errorf("read apply body: %w", err)
		}
		return w.fillFromObject("application/json", asJSON)
	case VerbMergePatch:
		return w.fillFromObject("application/json", body)
	default:
		return w.fillFromObject(media, body)
	}
}

func (w *Write) fillFromObject(media string, body []byte) error {
	id, err := decodeObject(media, body)
	if err != nil {
		return err
	}
	w.UID, w.ResourceVersion = id.Metadata.UID, id.Metadata.ResourceVersion
	return nil
}

// fillFromTests reads the test operations of a JSON Patch: the server evaluates them on the stored object.
func (w *Write) fillFromTests(body []byte) error {
	var ops []struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value"`
	}
	if err := json.Unmarshal(body, &ops); err != nil {
		return fmt.Errorf("read json patch: %w", err)
	}
	for _, op := range ops {
		value, isText := op.Value.(string)
		if op.Op != "test" || !isText {
			continue
		}
		switch op.Path {
		case "/metadata/uid":
			w.UID = types.UID(value)
		case "/metadata/resourceVersion":
			w.ResourceVersion = value
		}
	}
	return nil
}

// decodeObject reads the metadata of an object or a list.
func decodeObject(media string, body []byte) (identity, error) {
	switch media {
	case "", "application/json":
		var id identity
		if err := json.Unmarshal(body, &id); err != nil {
			return identity{}, fmt.Errorf("read json body: %w", err)
		}
		return id, nil
	case "application/yaml":
		asJSON, err := yaml.ToJSON(body)
		if err != nil {
			return identity{}, fmt.Errorf("read yaml body: %w", err)
		}
		return decodeObject("application/json", asJSON)
	case protobufType:
		raw, isList, err := envelope(body)
		if err != nil {
			return identity{}, err
		}
		return decodeProtobuf(raw, isList)
	default:
		return identity{}, fmt.Errorf("read %s body: not supported", media)
	}
}

// envelope opens a Kubernetes protobuf message.
func envelope(body []byte) (raw []byte, isList bool, err error) {
	rest, ok := bytes.CutPrefix(body, protobufMagic)
	if !ok {
		return nil, false, errors.New("read protobuf body: not a Kubernetes message")
	}
	var u runtime.Unknown
	if err := u.Unmarshal(rest); err != nil {
		return nil, false, fmt.Errorf("read protobuf body: %w", err)
	}
	const list = "List"
	isList = len(u.Kind) > len(list) && u.Kind[len(u.Kind)-len(list):] == list
	return u.Raw, isList, nil
}

// decodeProtobuf relies on metadata being field 1 of every object and items field 2 of every list; the rest is
// skipped.
func decodeProtobuf(raw []byte, isList bool) (identity, error) {
	if !isList {
		var m metav1.PartialObjectMetadata
		if err := m.Unmarshal(raw); err != nil {
			return identity{}, fmt.Errorf("read protobuf body: %w", err)
		}
		return identityOf(&m), nil
	}
	var l metav1.PartialObjectMetadataList
	if err := l.Unmarshal(raw); err != nil {
		return identity{}, fmt.Errorf("read protobuf body: %w", err)
	}
	var id identity
	for i := range l.Items {
		id.Items = append(id.Items, identityOf(&l.Items[i]))
	}
	return id, nil
}

func identityOf(m *metav1.PartialObjectMetadata) identity {
	var id identity
	id.Metadata.UID, id.Metadata.ResourceVersion = m.UID, m.ResourceVersion
	id.Metadata.Name, id.Metadata.Namespace = m.Name, m.Namespace
	id.Metadata.DeletionTimestamp = m.DeletionTimestamp
	return id
}

// deleteOptions reads the options of a delete: from the body, or, when that is empty, from the query, which can carry
// a policy but no preconditions.
func deleteOptions(r *http.Request, media string, body []byte) (metav1.DeleteOptions, error) {
	var o metav1.DeleteOptions
	if len(bytes.TrimSpace(body)) == 0 {
		if p := r.URL.Query().Get("propagationPolicy"); p != "" {
			policy := metav1.DeletionPropagation(p)
			o.PropagationPolicy = &policy
		}
		if v := r.URL.Query().Get("orphanDependents"); v != "" {
			orphan := v == "true"
			//lint:ignore SA1019 it is deprecated, and still obeyed by the server
			o.OrphanDependents = &orphan
		}
		return o, nil
	}
	switch media {
	case "", "application/json", "application/yaml":
		asJSON, err := yaml.ToJSON(body)
		if err == nil {
			err = json.Unmarshal(asJSON, &o)
		}
		if err != nil {
			return o, fmt.Errorf("read delete options: %w", err)
		}
	case protobufType:
		raw, _, err := envelope(body)
		if err == nil {
			err = o.Unmarshal(raw)
		}
		if err != nil {
			return o, fmt.Errorf("read delete options: %w", err)
		}
	default:
		return o, fmt.Errorf("read delete options: %s is not supported", media)
	}
	return o, nil
}

// peek returns the body of a request and a request that still has it: a RoundTripper must not change the one it got.
func peek(r *http.Request) ([]byte, *http.Request, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return nil, r, nil
	}
	body, err := io.ReadAll(r.Body)
	if cerr := r.Body.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read request body: %w", err)
	}
	c := r.Clone(r.Context())
	c.Body = io.NopCloser(bytes.NewReader(body))
	c.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	c.ContentLength = int64(len(body))
	return body, c, nil
}
