// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conversion

import (
	"container/list"
	"crypto/sha256"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// cacheKey names a question. It is a cryptographic digest because a collision would answer with somebody else's object.
type cacheKey struct {
	sum     [sha256.Size]byte
	desired string
}

func keyOf(raw []byte, desired string) cacheKey {
	return cacheKey{sha256.Sum256(raw), desired}
}

// cache keeps the answers used last, up to a number of bytes.
type cache struct {
	mu    sync.Mutex
	most  int
	size  int
	by    map[cacheKey]*list.Element
	order *list.List // of *cached, the one used last in front
}

type cached struct {
	key  cacheKey
	out  []byte
	gk   schema.GroupKind
	from string
}

// overhead is about what an entry costs beside its bytes.
const overhead = 200

func newCache(most int) *cache {
	return &cache{most: most, by: map[cacheKey]*list.Element{}, order: list.New()}
}

func (c *cache) get(key cacheKey) ([]byte, schema.GroupKind, string, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.by[key]
	if e == nil {
		return nil, schema.GroupKind{}, "", false
	}
	c.order.MoveToFront(e)
	v := e.Value.(*cached)
	return v.out, v.gk, v.from, true
}

func (c *cache) put(key cacheKey, out []byte, gk schema.GroupKind, from string) {
	cost := len(out) + overhead
	if cost > c.most {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.by[key]; ok {
		return // two requests asked at once
	}
	for c.size+cost > c.most {
		last := c.order.Back()
		v := c.order.Remove(last).(*cached)
		delete(c.by, v.key)
		c.size -= len(v.out) + overhead
	}
	c.by[key] = c.order.PushFront(&cached{key, out, gk, from})
	c.size += cost
}

func (c *cache) bytes() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.size
}
