// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conversion

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"mime"
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
	body, status, err := h.body(w, r)
	start := h.now()
	var v review
	if err == nil {
		if v, err = readReview(body.bytes()); err != nil {
			status = http.StatusBadRequest
		}
	}
	defer h.release(body)
	if err != nil {
		http.Error(w, err.Error(), status)
		h.tell(Event{Kind: Reviewed, In: len(body.bytes()), Failure: CallFailure, Err: err, Duration: h.now().Sub(start)})
		return
	}
	e := Event{Kind: Reviewed, Count: len(v.objects), In: len(body.bytes()), To: v.desired}
	if i := strings.LastIndexByte(v.desired, '/'); i >= 0 {
		e.To = v.desired[i+1:]
	}
	ctx, cancel := h.deadline(r)
	defer cancel()
	out, err := h.convert(ctx, &v, &e)
	head := v.appendAnswer(make([]byte, 0, 256+size(out, 1)), message(err))
	if err != nil {
		e.Failure, e.Err = MalformedFailure, err
	}
	e.Duration = h.now().Sub(start)
	e.Out = h.write(w, head, out, err == nil)
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
func (h *handler) write(w http.ResponseWriter, head []byte, out [][]byte, ok bool) (n int) {
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
		return n
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
	_, _ = w.Write(append(head, tail...))
	return n
}

func size(list [][]byte, each int) (n int) {
	for _, b := range list {
		n += len(b) + each
	}
	return n
}

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
	b, _ := h.bodies.Get().(*[]byte)
	if b == nil {
		b = new([]byte)
	}
	*b = (*b)[:0]
	if need := int(min(r.ContentLength, h.maxBytes)) + 1; cap(*b) < need {
		*b = make([]byte, 0, max(need, 4<<10))
	}
	for {
		if len(*b) == cap(*b) {
			*b = slices.Grow(*b, len(*b))
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

// deadline is when the API server gives up: it says so in the query, thirty seconds otherwise.
func (h *handler) deadline(r *http.Request) (context.Context, context.CancelFunc) {
	const most = 30 * time.Second
	after := most
	if q := r.URL.RawQuery; q != "" {
		if d, err := time.ParseDuration(r.URL.Query().Get("timeout")); err == nil && d > 0 && d < most {
			after = d
		}
	}
	return context.WithTimeout(r.Context(), after)
}

// convert converts the objects of a review, several at once if there is enough to do. The error is that of the first
// object that failed.
func (h *handler) convert(ctx context.Context, v *review, e *Event) ([][]byte, error) {
	out := make([][]byte, len(v.objects))
	errs := make([]error, len(v.objects))
	var hits atomic.Int64
	one := func(i int) bool {
		var hit bool
		var about Event
		out[i], about, hit, errs[i] = h.one(ctx, v.objects[i], i, v.desired)
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
		for range workers {
			wg.Go(func() {
				// What comes after a failure need not be done, what comes before it may fail, too.
				for i := next.Add(1) - 1; i < failed.Load(); i = next.Add(1) - 1 {
					if !one(int(i)) {
						failed.Store(min(failed.Load(), i))
					}
				}
			})
		}
		wg.Wait()
	}
	e.Hits = int(hits.Load())
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// one converts an object.
func (h *handler) one(ctx context.Context, raw []byte, index int, desired string) (out []byte, e Event, hit bool, err error) {
	var key cacheKey
	if h.cache != nil {
		key = keyOf(raw, desired)
		if out, e.GroupKind, e.From, hit = h.cache.get(key); hit {
			return out, e, true, nil
		}
	}
	d, _ := h.docs.Get().(*doc)
	if d == nil {
		d = &doc{}
	}
	defer h.docs.Put(d)
	group, version := "", desired
	if i := strings.IndexByte(desired, '/'); i >= 0 {
		group, version = desired[:i], desired[i+1:]
	}
	o := object{body: none, meta: none}
	defer func() {
		if p := recover(); p != nil {
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
	r, err := c.attempt(ctx, &o, version, h.quarantine)
	if err != nil {
		return nil, e, false, err
	}
	h.report(c, &o, &r)
	if h.cache != nil && r.Refused == nil {
		h.cache.put(key, r.Object, e.GroupKind, e.From)
	}
	return r.Object, e, false, nil
}

// report tells the observer what is worth knowing about an object that was converted.
func (h *handler) report(c *Converter, o *object, r *Result) {
	if h.observe == nil {
		return
	}
	e := Event{GroupKind: c.gk, From: r.From, To: r.To, Ref: o.ref()}
	if r.Refused != nil {
		e.Kind, e.Err, e.Repeated = Quarantined, r.Refused, h.repeated(o, r.Refused)
		h.tell(e)
		return
	}
	if r.Dropped > 0 {
		e.Kind, e.Count = Dropped, r.Dropped
		h.tell(e)
	}
	if r.Rejected != nil {
		e.Kind, e.Count, e.Err = Rejected, 0, r.Rejected
		h.tell(e)
	}
	if o.stash.ok() {
		if owners := owners(o); len(owners) > 0 {
			e.Kind, e.Count, e.Err, e.Managers = Applied, len(owners), nil, owners
			h.tell(e)
		}
	}
}

// repeated remembers the last few thousand failures.
func (h *handler) repeated(o *object, err error) bool {
	if h.observe == nil {
		return false
	}
	const most = 4096
	key := maphash.String(h.seed, o.ref()+"\x00"+err.Error())
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ok := h.failed[key]; ok {
		return true
	}
	if len(h.failed) >= most {
		clear(h.failed)
	}
	h.failed[key] = struct{}{}
	return false
}

func (h *handler) kinds() string {
	var out []string
	for gk := range h.converters {
		out = append(out, gk.String())
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}
