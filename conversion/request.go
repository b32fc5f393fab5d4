// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conversion

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"sync"
	"time"
)

// body is what was read, in memory that is used again unless it is large.
type body struct{ b *[]byte }

func (b body) bytes() []byte {
	if b.b == nil {
		return nil
	}
	return *b.b
}

func (h *handler) release(b body) {
	const large = 256 << 10
	if b.b != nil && cap(*b.b) <= large {
		h.bodies.Put(b.b)
	}
}

func (h *handler) buffer() *[]byte {
	if b, ok := h.bodies.Get().(*[]byte); ok {
		return b
	}
	return new([]byte)
}

func (h *handler) body(w http.ResponseWriter, r *http.Request) (body, int, error) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return body{}, http.StatusMethodNotAllowed, fmt.Errorf("read the request: the method is %s, not POST", r.Method)
	}
	if ct := r.Header.Get("Content-Type"); ct != "application/json" {
		if media, _, err := mime.ParseMediaType(ct); err != nil || media != "application/json" {
			return body{}, http.StatusUnsupportedMediaType, fmt.Errorf("read the request: the content type is %q, not application/json", ct)
		}
	}
	tooLong := func() (body, int, error) {
		return body{}, http.StatusRequestEntityTooLarge, fmt.Errorf("read the body: it is longer than %d bytes", h.maxBytes)
	}
	if r.ContentLength > h.maxBytes {
		return tooLong()
	}
	b := h.buffer()
	*b = (*b)[:0]
	if need := int(min(r.ContentLength, h.maxBytes)) + 1; cap(*b) < need {
		*b = make([]byte, 0, max(need, 4<<10))
	}
	for {
		if len(*b) == cap(*b) {
			*b = slices.Grow(*b, max(4<<10, len(*b)))
		}
		n, err := r.Body.Read((*b)[len(*b):cap(*b)])
		*b = (*b)[:len(*b)+n]
		if int64(len(*b)) > h.maxBytes {
			return tooLong()
		}
		if errors.Is(err, io.EOF) {
			return body{b}, 0, nil
		}
		if err != nil {
			return body{b}, http.StatusBadRequest, fmt.Errorf("read the body: %w", err)
		}
	}
}

// deadline is when the API server gives up: it says so in the query, thirty seconds otherwise. Most reviews of identities
// and repeats never ask for it.
type deadline struct {
	r      *http.Request
	once   sync.Once
	ctx    context.Context
	cancel context.CancelFunc
}

func (d *deadline) context() context.Context {
	d.once.Do(func() {
		const most = 30 * time.Second
		after := most
		if q := d.r.URL.RawQuery; q != "" {
			if t, err := time.ParseDuration(d.r.URL.Query().Get("timeout")); err == nil && t > 0 && t < most {
				after = t
			}
		}
		d.ctx, d.cancel = context.WithTimeout(d.r.Context(), after)
	})
	return d.ctx
}

func (d *deadline) over() {
	if d.cancel != nil {
		d.cancel()
	}
}
