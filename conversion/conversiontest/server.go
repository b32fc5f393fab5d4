// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conversiontest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// API is what a walk needs of an API server: objects of one kind, at any version. Objects are JSON.
type API interface {
	Create(ctx context.Context, version string, obj []byte) error
	Get(ctx context.Context, version, name string) ([]byte, error)
	Update(ctx context.Context, version string, obj []byte) error
	// Patch takes a JSON merge patch (RFC 7386).
	Patch(ctx context.Context, version, name string, patch []byte) error
	Delete(ctx context.Context, version, name string) error
	// Watch shows what happens to an object from now on. next waits for an event, as long as ctx lasts.
	Watch(ctx context.Context, version, name string) (next func() (Event, error), err error)
}

// Applier is an API with server-side apply, which creates what is not there. Conflicts are to be forced. A server refuses
// what merging has left behind where that is not valid, null for an object that has lost its last member above all: that
// is [ErrInvalid].
type Applier interface {
	API
	Apply(ctx context.Context, version, manager string, obj []byte) error
}

// Event is what a watch shows.
type Event struct {
	Type   string // ADDED, MODIFIED or DELETED
	Object []byte // at the version of the watch
}

// ErrNotFound: a [Server] has no object of the name.
var ErrNotFound = errors.New("not found")

// ErrInvalid: an [Applier] refuses what it has merged.
var ErrInvalid = errors.New("invalid")

// Server stores objects in one version and serves them in all, as an API server does: every crossing is a review, and its
// answer is validated and its metadata put back. Storage may be changed at any time; objects then stay in the version they
// were written in. A write that changes nothing is none. It may be used by several goroutines.
//
// It does not apply: who owns a field is another matter. An [Applier] around it does.
type Server struct {
	Group   string       // of the objects
	Handler http.Handler // that answers the reviews

	mu       sync.Mutex
	storage  string
	objects  map[string]stored
	uids     int
	writes   int
	reviews  int
	watchers []*watcher
}

type stored struct {
	version string
	raw     []byte
}

// NewServer makes an empty server that stores objects of a group in a version.
func NewServer(h http.Handler, group, storage string) *Server {
	return &Server{Group: group, Handler: h, storage: storage, objects: map[string]stored{}}
}

// SetStorage changes the version that objects are written in from now on.
func (s *Server) SetStorage(version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.storage = version
}

// Reviews is how many reviews were sent.
func (s *Server) Reviews() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reviews
}

// Stored is an object as it is stored, and the version.
func (s *Server) Stored(name string) (raw []byte, version string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, ok := s.objects[name]
	return o.raw, o.version, ok
}

func (s *Server) convert(ctx context.Context, raw []byte, from, to string) ([]byte, error) {
	if from == to {
		return raw, nil
	}
	s.reviews++
	out, err := Review(ctx, s.Handler, s.Group+"/"+to, raw)
	if err != nil {
		return nil, fmt.Errorf("conversion webhook for %s/%s failed: %w", s.Group, from, err)
	}
	return out[0], nil
}

// Create stores a new object and gives it a uid.
func (s *Server) Create(ctx context.Context, version string, obj []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	name, m, err := s.request(version, obj)
	if err != nil {
		return err
	}
	if _, ok := s.objects[name]; ok {
		return fmt.Errorf("create %s: already exists", name)
	}
	s.uids++
	m["metadata"].(map[string]any)["uid"] = fmt.Sprintf("uid-%d", s.uids)
	return s.store(ctx, name, version, m)
}

// Update replaces an object. Where it has a resourceVersion, that must be the present one.
func (s *Server) Update(ctx context.Context, version string, obj []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	name, m, err := s.request(version, obj)
	if err != nil {
		return err
	}
	return s.replace(ctx, name, version, m)
}

// Patch changes an object by a JSON merge patch at a version.
func (s *Server) Patch(ctx context.Context, version, name string, patch []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, err := decode(patch)
	if err != nil {
		return fmt.Errorf("patch %s: %w", name, err)
	}
	raw, err := s.get(ctx, version, name)
	if err != nil {
		return err
	}
	m, err := decode(raw)
	if err != nil {
		return err
	}
	m, _ = applyMerge(m, p).(map[string]any)
	if _, m, err = s.request(version, encode(m)); err != nil {
		return err
	}
	return s.replace(ctx, name, version, m)
}

// request reads what is written.
func (s *Server) request(version string, obj []byte) (string, map[string]any, error) {
	m, err := decode(obj)
	if err != nil {
		return "", nil, err
	}
	metadata, ok := m["metadata"].(map[string]any)
	if !ok {
		return "", nil, errors.New("write: no metadata")
	}
	name, _ := metadata["name"].(string)
	m["apiVersion"] = s.Group + "/" + version
	return name, m, nil
}

func (s *Server) replace(ctx context.Context, name, version string, m map[string]any) error {
	old, ok := s.objects[name]
	if !ok {
		return fmt.Errorf("update %s: %w", name, ErrNotFound)
	}
	was, err := decode(old.raw)
	if err != nil {
		return err
	}
	now, before := m["metadata"].(map[string]any), was["metadata"].(map[string]any)
	if rv := now["resourceVersion"]; rv != nil && rv != before["resourceVersion"] {
		return fmt.Errorf("update %s: resourceVersion is %v, not %v", name, before["resourceVersion"], rv)
	}
	now["uid"], now["resourceVersion"] = before["uid"], before["resourceVersion"]
	return s.store(ctx, name, version, m)
}

// store writes an object, and tells those who watch, unless it is there already.
func (s *Server) store(ctx context.Context, name, version string, m map[string]any) error {
	raw, err := s.convert(ctx, encode(m), version, s.storage)
	if err != nil {
		return err
	}
	if m, err = decode(raw); err != nil {
		return err
	}
	old, there := s.objects[name]
	if was, err := decode(old.raw); err == nil && old.version == s.storage && reflect.DeepEqual(was, m) {
		return nil
	}
	s.writes++
	m["metadata"].(map[string]any)["resourceVersion"] = strconv.Itoa(s.writes)
	s.objects[name] = stored{s.storage, encode(m)}
	kind := "MODIFIED"
	if !there {
		kind = "ADDED"
	}
	s.tell(ctx, kind, name)
	return nil
}

// Get reads an object at a version.
func (s *Server) Get(ctx context.Context, version, name string) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.get(ctx, version, name)
}

func (s *Server) get(ctx context.Context, version, name string) ([]byte, error) {
	o, ok := s.objects[name]
	if !ok {
		return nil, fmt.Errorf("get %s: %w", name, ErrNotFound)
	}
	return s.convert(ctx, o.raw, o.version, version)
}

// Delete removes an object. As on a real server the version matters: the object is read at it first.
func (s *Server) Delete(ctx context.Context, version, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.get(ctx, version, name); err != nil {
		return err
	}
	s.tell(ctx, "DELETED", name)
	delete(s.objects, name)
	return nil
}

// List reads all objects at a version, in the order of their names; one that cannot be converted fails all of it.
func (s *Server) List(ctx context.Context, version string) ([][]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out [][]byte
	for _, name := range slices.SortedFunc(maps.Keys(s.objects), strings.Compare) {
		raw, err := s.get(ctx, version, name)
		if err != nil {
			return nil, err
		}
		out = append(out, raw)
	}
	return out, nil
}
