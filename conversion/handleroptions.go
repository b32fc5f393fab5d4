// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conversion

import (
	"errors"
	"fmt"
	"time"
)

// HandlerOption configures [Handler]. Later options win; a bad value is an error of Handler.
type HandlerOption interface{ applyHandler(*handler) }

type handlerOption func(*handler)

func (o handlerOption) applyHandler(h *handler) { o(h) }

// DefaultMaxBytes is how long the body of a review may be by default. An API server's holds one object, and etcd takes no
// object beyond 1.5 MiB.
const DefaultMaxBytes = 16 << 20

// WithMaxBytes sets how long the body of a review may be; a longer one is answered by 413. The default is DefaultMaxBytes.
func WithMaxBytes(n int64) HandlerOption {
	return handlerOption(func(h *handler) {
		if n <= 0 {
			h.errs = append(h.errs, fmt.Errorf("WithMaxBytes(%d): must be above zero", n))
			return
		}
		h.maxBytes = n
	})
}

// WithObserver sets a function that is told what happens. It is called while the review is answered, by several goroutines
// at once, and must not block. The default is nobody.
func WithObserver(observe func(Event)) HandlerOption {
	return handlerOption(func(h *handler) { h.observe = observe })
}

// WithClock sets the clock that durations are measured with. The default is [time.Now].
func WithClock(now func() time.Time) HandlerOption {
	return handlerOption(func(h *handler) {
		if now == nil {
			h.errs = append(h.errs, errors.New("WithClock: the clock is nil"))
			return
		}
		h.now = now
	})
}

// WithCache keeps results up to so many bytes, the least used leave first. The key is a digest of the object's bytes and
// the target: an API server asks the same questions again within one write, after every restart and change of the CRD,
// and every few minutes of idleness. Only for pairs whose functions depend on nothing but their arguments. The default is
// no cache. Every result counts with about 200 bytes more than it has.
func WithCache(bytes int) HandlerOption {
	return handlerOption(func(h *handler) {
		if bytes <= 0 {
			h.errs = append(h.errs, fmt.Errorf("WithCache(%d): must be above zero", bytes))
			return
		}
		h.cache = newCache(bytes)
	})
}

// WithQuarantine answers with something even for an object that cannot be converted: its metadata, what both versions have
// in common of the rest, and the original in [Annotation]. By default such an object fails every review it is in, so that
// LIST, namespace deletion and garbage collection of its kind fail with it, and the API server refills its cache for ever.
//
// Nothing is lost: the way back gives the original, with what has been edited on the copy. An object too large for its
// annotation still fails. The observer is told of every object that is answered in this way.
func WithQuarantine() HandlerOption {
	return handlerOption(func(h *handler) { h.quarantine = true })
}
