// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package statussync

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// maxManager is the API server's bound on a field manager's length, in bytes.
const maxManager = 128

// Group holds the status writers of one process, so that two of them cannot own the same thing. It is safe for
// concurrent use.
type Group struct {
	client   client.Client
	live     client.Reader
	manager  string
	settings settings

	mu      sync.Mutex
	writers []*core
}

// New returns a Group whose writers apply as field manager <manager>/<writer>. c writes; live reads past the cache
// (mgr.GetAPIReader()) and is asked only after a conflict. manager names the program, never a pod or a replica: apply
// managers are not capped on the server, so a changing name grows every object for ever.
func New(c client.Client, live client.Reader, manager string, opts ...Option) (*Group, error) {
	g := &Group{client: c, live: live, manager: manager, settings: settings{
		now: time.Now, interval: spacing, remember: maxMemory,
	}}
	var errs []error
	if c == nil {
		errs = append(errs, errors.New("client is nil"))
	}
	if live == nil {
		errs = append(errs, errors.New("live reader is nil"))
	}
	if err := checkName(manager); err != nil {
		errs = append(errs, fmt.Errorf("manager %q: %w", manager, err))
	}
	for _, o := range opts {
		if o == nil {
			errs = append(errs, errors.New("option is nil"))
			continue
		}
		if err := o.apply(&g.settings); err != nil {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("make status writer group: %w", err)
	}
	return g, nil
}

func checkName(s string) error {
	if s == "" {
		return errors.New("is empty")
	}
	if len(s) > maxManager-2 {
		return fmt.Errorf("is longer than %d bytes", maxManager-2)
	}
	if strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return errors.New("holds a character that cannot be printed")
	}
	return nil
}

// add registers a writer, or says why it cannot be one beside those there are. Versions of a kind share a status, so
// they are one kind here.
func (g *Group) add(w *core) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, o := range g.writers {
		if o.gvk.GroupKind() != w.gvk.GroupKind() {
			continue
		}
		if o.name == w.name {
			return fmt.Errorf("a writer %q of %s exists: under one field manager each would remove what the other wrote", w.name, w.gvk.GroupKind())
		}
		if both := w.owned.overlap(&o.owned); len(both) > 0 {
			return fmt.Errorf("writer %q of %s owns it too: %s", o.name, w.gvk.GroupKind(), strings.Join(both, ", "))
		}
	}
	g.writers = append(g.writers, w)
	return nil
}

// list returns the writers in the order in which they were made.
func (g *Group) list() []*core {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]*core(nil), g.writers...)
}
