// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conversion

import (
	"bytes"
	"errors"
	"fmt"
	"hash/maphash"
	"net/http"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

type handler struct {
	converters map[schema.GroupKind]*Converter
	maxBytes   int64
	observe    func(Event)
	now        func() time.Time
	cache      *cache
	quarantine bool
	errs       []error

	docs   sync.Pool // *doc
	bodies sync.Pool // *[]byte
	seed   maphash.Seed
	mu     sync.Mutex
	failed map[uint64]struct{} // what was said of whom
}

// Handler answers the ConversionReviews (v1 and v1beta1) of an API server. It mounts on controller-runtime's webhook
// server and on any other mux:
//
//	mgr.GetWebhookServer().Register("/convert", h)
//
// It needs no cache, no client and no leadership: serve on every replica, from the start. An object that cannot be
// converted is an answer 200 with status Failure, whose message names it; nothing of the review is converted then. What is
// no review is a 4xx. A panic in a pair fails its review. A handler never holds a goroutine when it has answered.
func Handler(cs []*Converter, opts ...HandlerOption) (http.Handler, error) {
	h := &handler{
		converters: map[schema.GroupKind]*Converter{}, maxBytes: DefaultMaxBytes, now: time.Now,
		seed: maphash.MakeSeed(), failed: map[uint64]struct{}{},
	}
	for _, o := range opts {
		o.applyHandler(h)
	}
	if len(cs) == 0 {
		h.errs = append(h.errs, errors.New("no converter"))
	}
	for _, c := range cs {
		if c == nil {
			h.errs = append(h.errs, errors.New("a converter is nil"))
			continue
		}
		if h.converters[c.gk] != nil {
			h.errs = append(h.errs, fmt.Errorf("two converters for %s", c.gk))
		}
		h.converters[c.gk] = c
	}
	if len(h.errs) > 0 {
		return nil, fmt.Errorf("make conversion handler: %w", errors.Join(h.errs...))
	}
	return h, nil
}

func (h *handler) tell(e Event) {
	if h.observe != nil {
		h.observe(e)
	}
}

// ServeHTTP answers one review.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	read, status, err := h.body(w, r)
	start := h.now()
	var v review
	if err == nil {
		d := h.doc()
		if v, err = readReview(read.bytes(), d); err != nil {
			status = http.StatusBadRequest
		}
		h.put(d)
	}
	defer h.release(read)
	if err != nil {
		http.Error(w, err.Error(), status)
		h.tell(Event{Kind: Reviewed, In: len(read.bytes()), Failure: CallFailure, Err: err, Duration: h.now().Sub(start)})
		return
	}
	e := Event{Kind: Reviewed, Count: len(v.objects), In: len(read.bytes()), To: v.desired}
	if i := strings.LastIndexByte(v.desired, '/'); i >= 0 {
		e.To = v.desired[i+1:]
	}
	later := deadline{r: r}
	defer later.over()
	out, err := h.convert(&later, &v, &e)
	answer := h.buffer()
	defer h.release(body{answer})
	head := v.appendAnswer((*answer)[:0], message(err))
	if err != nil {
		e.Failure, e.Err = MalformedFailure, err
	}
	e.Duration = h.now().Sub(start)
	e.Out, *answer = h.write(w, head, out, err == nil)
	if h.cache != nil {
		e.CacheSize = h.cache.bytes()
	}
	h.tell(e)
}

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error() + " (the stored object is intact: repair the converter or the object, do not delete it)"
}

// write sends the answer: in one piece if it is short, as the pieces it is made of if it is long.
// It returns how much, and the memory of head.
func (h *handler) write(w http.ResponseWriter, head []byte, out [][]byte, ok bool) (n int, mem []byte) {
	w.Header().Set("Content-Type", "application/json")
	const tail = "]}}"
	n = len(head)
	if ok {
		n += size(out, 1) + len(tail)
		if len(out) > 0 {
			n-- // one comma fewer than objects
		}
	}
	w.Header().Set("Content-Length", strconv.Itoa(n))
	if !ok {
		_, _ = w.Write(head) // nobody is left to be told
		return n, head
	}
	const short = 64 << 10
	for i, o := range out {
		if i > 0 {
			head = append(head, ',')
		}
		if n > short {
			_, _ = w.Write(head)
			_, _ = w.Write(o)
			head = head[:0]
			continue
		}
		head = append(head, o...)
	}
	head = append(head, tail...)
	_, _ = w.Write(head)
	return n, head
}

func size(list [][]byte, each int) (n int) {
	for _, b := range list {
		n += len(b) + each
	}
	return n
}

// convert converts the objects of a review, several at once if there is enough to do. The error is that of the first
// object that failed.
func (h *handler) convert(later *deadline, v *review, e *Event) ([][]byte, error) {
	out := make([][]byte, len(v.objects))
	errs := make([]error, len(v.objects))
	var hits atomic.Int64
	one := func(i int) bool {
		var hit bool
		var about Event
		out[i], about, hit, errs[i] = h.one(later, v.objects[i], i, v.desired)
		if hit {
			hits.Add(1)
		}
		if i == 0 {
			e.GroupKind, e.From = about.GroupKind, about.From
		}
		return errs[i] == nil
	}
	const enough = 64 << 10
	if workers := min(runtime.GOMAXPROCS(0), len(v.objects)); workers < 2 || size(v.objects, 0) < enough {
		for i := range v.objects {
			if !one(i) {
				break
			}
		}
	} else {
		var next, failed atomic.Int64
		failed.Store(int64(len(v.objects)))
		var wg sync.WaitGroup
		var panicked atomic.Pointer[PanicError]
		for range workers {
			wg.Go(func() {
				defer func() {
					if p := recover(); p != nil { // of the observer
						panicked.Store(&PanicError{Value: p, Stack: debug.Stack()})
					}
				}()
				// What comes after a failure need not be done, what comes before it may fail, too.
				for i := next.Add(1) - 1; i < failed.Load(); i = next.Add(1) - 1 {
					if !one(int(i)) {
						failed.Store(min(failed.Load(), i))
					}
				}
			})
		}
		wg.Wait()
		if p := panicked.Load(); p != nil {
			return nil, p
		}
	}
	e.Hits = int(hits.Load())
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (h *handler) doc() *doc {
	if d, ok := h.docs.Get().(*doc); ok {
		return d
	}
	return &doc{}
}

// put gives a document back. What it was read from may be large and must not be held.
func (h *handler) put(d *doc) {
	d.raw, d.copy = nil, ""
	h.docs.Put(d)
}

// one converts an object, and may write the answer where the object was.
func (h *handler) one(later *deadline, raw []byte, index int, desired string) (out []byte, e Event, hit bool, err error) {
	var key cacheKey
	if h.cache != nil {
		key = keyOf(raw, desired)
		if out, e.GroupKind, e.From, hit = h.cache.get(key); hit {
			return out, e, true, nil
		}
	}
	d := h.doc()
	defer h.put(d)
	group, version := "", desired
	if i := strings.IndexByte(desired, '/'); i >= 0 {
		group, version = desired[:i], desired[i+1:]
	}
	o := object{body: none, meta: none}
	defer func() {
		if p := recover(); p != nil { // a bug of ours, in a goroutine of ours, must not end the process either
			err = &PanicError{Value: p, Stack: debug.Stack()}
		}
		if err != nil {
			err = failure(&o, version, err)
			var fe *Error
			if errors.As(err, &fe) {
				numbered := *fe
				numbered.Index = index
				err = &numbered
			}
			h.tell(Event{Kind: Failed, GroupKind: e.GroupKind, From: e.From, To: version, Ref: o.ref(), Err: err, Repeated: h.repeated(&o, err)})
		}
	}()
	if err := d.parse(raw); err != nil {
		return nil, e, false, err
	}
	if o, err = readObject(d, group); err != nil {
		return nil, e, false, err
	}
	e.GroupKind, e.From = schema.GroupKind{Group: group, Kind: o.kind}, o.version
	if o.version == version {
		return raw, e, false, nil
	}
	c := h.converters[e.GroupKind]
	if c == nil {
		return nil, e, false, fmt.Errorf("%w: %s; known are %s", ErrUnknownKind, e.GroupKind, h.kinds())
	}
	if c.same(o.version, version) && o.meta.ok() { // an answer without metadata would be refused
		return respell(d, desired), e, false, nil
	}
	o.mem = c.arena()
	defer c.free(o.mem)
	r, err := c.attempt(later.context(), &o, version, h.quarantine)
	if err != nil {
		return nil, e, false, err
	}
	h.report(c, &o, &r)
	if h.cache != nil && r.Refused == nil {
		out = bytes.Clone(r.Object)
		h.cache.put(key, out, e.GroupKind, e.From)
		return out, e, false, nil
	}
	// Nobody reads the input again. With the answer in its place a large list is in memory once, not twice.
	return append(raw[:0:len(raw)], r.Object...), e, false, nil
}

// respell is a document with another apiVersion and not another byte changed.
func respell(d *doc, apiVersion string) []byte {
	v := ref{d, 0}.get("apiVersion").n()
	out := make([]byte, 0, len(d.raw)+len(apiVersion))
	out = appendString(append(out, d.raw[:v.start]...), apiVersion)
	return append(out, d.raw[v.end:]...)
}

func (h *handler) kinds() string {
	var out []string
	for gk := range h.converters {
		out = append(out, gk.String())
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}
