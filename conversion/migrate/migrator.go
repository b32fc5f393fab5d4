// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"errors"
	"fmt"
	"iter"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Migrator migrates one CustomResourceDefinition. It is safe for concurrent use, but a second run at the same time only
// doubles the work.
type Migrator struct {
	c         client.Client
	live      client.Reader
	crd       string
	converter Converter
	page      int64
	parallel  int
	status    bool
	alone     bool
	observe   func(Progress)
}

// New makes a Migrator for the CRD of that name, such as databases.example.com. live is an uncached reader
// (mgr.GetAPIReader()); c writes. New sends nothing.
func New(c client.Client, live client.Reader, crd string, opts ...Option) (*Migrator, error) {
	if c == nil || live == nil || crd == "" {
		return nil, errors.New("new migrator: client, live reader and the name of the CRD are required")
	}
	m := &Migrator{c: c, live: live, crd: crd, page: 500, parallel: 4, observe: func(Progress) {}}
	for _, o := range opts {
		if o != nil {
			o.applyMigrator(m)
		}
	}
	if m.page < 1 {
		return nil, fmt.Errorf("new migrator of %s: WithPageSize(%d): at least 1", crd, m.page)
	}
	if m.parallel < 1 {
		return nil, fmt.Errorf("new migrator of %s: WithParallel(%d): at least 1", crd, m.parallel)
	}
	if m.observe == nil {
		m.observe = func(Progress) {}
	}
	return m, nil
}

// pages lists all objects in the server's order, a page at a time, from the one after resume. A token that expires on the
// way costs the pages before it again, metadata or not, and no write: callers pass over what they have seen.
func pages[L interface {
	client.ObjectList
	metav1.ListInterface
}](ctx context.Context, m *Migrator, empty func() L, p *Progress) iter.Seq2[L, error] {
	return func(yield func(L, error) bool) {
		token := ""
		for {
			list := empty()
			err := m.retry(ctx, func() error {
				return m.live.List(ctx, list, client.Limit(m.page), client.Continue(token))
			})
			if apierrors.IsResourceExpired(err) && token != "" {
				token = ""
				continue
			}
			if err != nil {
				yield(list, fmt.Errorf("list %s: %w", m.crd, err))
				return
			}
			if left := list.GetRemainingItemCount(); left != nil && token == "" {
				p.Total = int(*left) + int(m.page)
			}
			if !yield(list, nil) {
				return
			}
			if token = list.GetContinue(); token == "" {
				return
			}
		}
	}
}
