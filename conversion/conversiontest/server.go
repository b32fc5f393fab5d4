// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conversiontest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// API is what a walk needs of an API server: objects of one kind, at any version. Objects are JSON.
type API interface {
	Create(ctx context.Context, version string, obj []byte) error
	Get(ctx context.Context, version, name string) ([]byte, error)
	Update(ctx context.Context, version string, obj []byte) error
	Delete(ctx context.Context, version, name string) error
}

// ErrNotFound: a [Server] has no object of the name.
var ErrNotFound = errors.New("not found")

// Server stores objects in one version and serves them in all, as an API server does: every crossing is a review, and its
// answer is validated and its metadata put back. Storage may be changed at any time; objects then stay in the version they
// were written in. It may be used by several goroutines.
type Server struct {
	Group   string       // of the objects
	Handler http.Handler // that answers the reviews

	mu      sync.Mutex
	storage string
	objects map[string]stored
	uids    int
	reviews int
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
	return s.write(ctx, version, obj, func(name string, m map[string]any) error {
		if _, ok := s.objects[name]; ok {
			return fmt.Errorf("create %s: already exists", name)
		}
		s.uids++
		m["uid"] = fmt.Sprintf("uid-%d", s.uids)
		return nil
	})
}

// Update replaces an object.
func (s *Server) Update(ctx context.Context, version string, obj []byte) error {
	return s.write(ctx, version, obj, func(name string, m map[string]any) error {
		old, ok := s.objects[name]
		if !ok {
			return fmt.Errorf("update %s: %w", name, ErrNotFound)
		}
		was, err := decode(old.raw)
		if err != nil {
			return err
		}
		m["uid"] = was["metadata"].(map[string]any)["uid"]
		return nil
	})
}

func (s *Server) write(ctx context.Context, version string, obj []byte, admit func(string, map[string]any) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, err := decode(obj)
	if err != nil {
		return err
	}
	metadata, ok := m["metadata"].(map[string]any)
	if !ok {
		return errors.New("write: no metadata")
	}
	name, _ := metadata["name"].(string)
	if err := admit(name, metadata); err != nil {
		return err
	}
	m["apiVersion"] = s.Group + "/" + version
	raw, err := s.convert(ctx, encode(m), version, s.storage)
	if err != nil {
		return err
	}
	s.objects[name] = stored{s.storage, raw}
	return nil
}

// Get reads an object at a version.
func (s *Server) Get(ctx context.Context, version, name string) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, ok := s.objects[name]
	if !ok {
		return nil, fmt.Errorf("get %s: %w", name, ErrNotFound)
	}
	return s.convert(ctx, o.raw, o.version, version)
}

// Delete removes an object. As on a real server the version matters: the object is read at it first.
func (s *Server) Delete(ctx context.Context, version, name string) error {
	if _, err := s.Get(ctx, version, name); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.objects, name)
	return nil
}

// List reads all objects at a version, in the order of their names; one that cannot be converted fails all of it.
func (s *Server) List(ctx context.Context, version string) ([][]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for name := range s.objects {
		names = append(names, name)
	}
	slices.SortFunc(names, strings.Compare)
	var out [][]byte
	for _, name := range names {
		o := s.objects[name]
		raw, err := s.convert(ctx, o.raw, o.version, version)
		if err != nil {
			return nil, err
		}
		out = append(out, raw)
	}
	return out, nil
}
