// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package reconciletest

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// learn notes from a reply which objects are terminating. Replies that hold no objects, such as logs and upgraded
// connections, are left alone; a reply that cannot be read teaches nothing and is the caller's to complain about.
func (l *laws) learn(w Write, r *http.Request, resp *http.Response) {
	resource := w.Resource.GroupResource()
	if w.Subresource != "" && w.Subresource != "status" || resp.Body == nil {
		return
	}
	if resp.StatusCode == http.StatusNotFound && w.Name != "" {
		l.forget(resource, w.Namespace, w.Name, "")
		return
	}
	media := mediaType(resp.Header)
	if resp.StatusCode < 200 || resp.StatusCode > 299 || media != "application/json" && media != protobufType {
		return
	}
	if isWatch(r) {
		resp.Body = &watchBody{ReadCloser: resp.Body, take: l.taker(resource, media), protobuf: media == protobufType}
		return
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body = &replay{Reader: io.MultiReader(bytes.NewReader(body), failing{err}), Closer: resp.Body}
	if err != nil {
		return
	}
	id, err := decodeObject(media, body)
	if err != nil {
		return
	}
	l.note(resource, id)
	for _, item := range id.Items {
		l.note(resource, item)
	}
}

func isWatch(r *http.Request) bool {
	v := r.URL.Query().Get("watch")
	return v == "true" || v == "1"
}

// replay is a body that was read and is read again.
type replay struct {
	io.Reader
	io.Closer
}

// failing ends a replay the way the original ended.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) {
	if f.err != nil {
		return 0, f.err
	}
	return 0, io.EOF
}

// taker learns from one frame of a watch.
func (l *laws) taker(resource schema.GroupResource, media string) func(frame []byte) {
	return func(frame []byte) {
		kind, raw, err := event(media, frame)
		if err != nil || kind != "ADDED" && kind != "MODIFIED" && kind != "DELETED" {
			return
		}
		id, err := decodeObject(media, raw)
		if err != nil {
			return
		}
		if kind == "DELETED" {
			l.forget(resource, id.Metadata.Namespace, id.Metadata.Name, id.Metadata.UID)
			return
		}
		l.note(resource, id)
	}
}

// event opens one watch event.
func event(media string, frame []byte) (kind string, object []byte, err error) {
	if media == protobufType {
		var e metav1.WatchEvent
		if err := e.Unmarshal(frame); err != nil {
			return "", nil, err
		}
		return e.Type, e.Object.Raw, nil
	}
	var e struct {
		Type   string          `json:"type"`
		Object json.RawMessage `json:"object"`
	}
	if err := json.Unmarshal(frame, &e); err != nil {
		return "", nil, err
	}
	return e.Type, e.Object, nil
}

// largestFrame bounds what a watch holds back; no object is larger than the store's limit of a few megabytes.
const largestFrame = 16 << 20

var errFrame = errors.New("frame is too large")

// watchBody passes a stream of events on and hands each complete frame to take. One goroutine reads a body, so it
// needs no lock.
type watchBody struct {
	io.ReadCloser
	take     func(frame []byte)
	protobuf bool
	held     []byte
	lost     bool // a frame could not be told apart: nothing more is learned
}

// Read passes bytes on unchanged.
func (b *watchBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.lost || n == 0 {
		return n, err
	}
	b.held = append(b.held, p[:n]...)
	for {
		frame, rest, ferr := b.cut()
		if ferr != nil {
			b.lost, b.held = true, nil
			break
		}
		if frame == nil {
			break
		}
		b.take(frame)
		b.held = rest
	}
	return n, err
}

// cut splits the first frame off what is held: a line of JSON, or protobuf after four bytes of length.
func (b *watchBody) cut() (frame, rest []byte, err error) {
	if len(b.held) > largestFrame {
		return nil, nil, errFrame
	}
	if !b.protobuf {
		line, rest, ok := bytes.Cut(b.held, []byte("\n"))
		if !ok {
			return nil, nil, nil
		}
		return line, rest, nil
	}
	const head = 4
	if len(b.held) < head {
		return nil, nil, nil
	}
	size := int(binary.BigEndian.Uint32(b.held))
	if size > largestFrame {
		return nil, nil, errFrame
	}
	if len(b.held) < head+size {
		return nil, nil, nil
	}
	return b.held[head : head+size], b.held[head+size:], nil
}
