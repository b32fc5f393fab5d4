// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"encoding/binary"
	"errors"
	"iter"
	"math/bits"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/ashlar-go/ashlar/bpfmap"
)

// crowd is how many keys of each sort a churn has. Stable ones are wanted and never touched by others; wanted ones
// others change and delete; wild ones are ours but unwanted, and come again and again; foreign ones belong to somebody
// else, who never touches the first half and churns the other.
type crowd struct{ stable, wanted, wild, foreign uint32 }

func (c crowd) ours() uint32 { return c.stable + c.wanted + c.wild }

func (c crowd) desired(yield func(uint32) bool) {
	for k := range c.stable + c.wanted {
		if !yield(k) {
			return
		}
	}
}

// subject is a map under churn, whatever its face: keys are numbers here.
type subject struct {
	crowd
	// What others do goes past us: bpf(2) in bytes.
	b     bpfmap.Backend
	key   func(k uint32) []byte
	value []byte

	walk  func(ctx context.Context) iter.Seq2[uint32, error]
	plan  func(ctx context.Context) (deletes []uint32, err error)
	sync  func(ctx context.Context) (drift int, err error)
	right func(k uint32) (bool, error) // whether a wanted key has its value
	close func() error
	array bool // nothing is ever gone, only zero
}

// poke writes another value than is wanted, or the only one there is.
func (s subject) poke(k uint32) error { return s.b.Update(s.key(k), s.value, 0) }

func (s subject) kill(k uint32) error {
	if s.array {
		return s.b.Update(s.key(k), make([]byte, len(s.value)), 0)
	}
	return s.b.Delete(s.key(k))
}

// TestChurn walks, plans and syncs maps of every kind while others write to them as fast as they can.
func TestChurn(t *testing.T) {
	many, some, few := crowd{2000, 1000, 1000, 1000}, crowd{500, 250, 250, 250}, crowd{20, 10, 10, 0}
	for name, open := range map[string]func(t *testing.T) subject{
		"hash":                       func(t *testing.T) subject { return numbers(t, many, ebpf.Hash, 8192, 0) },
		"hash without preallocation": func(t *testing.T) subject { return numbers(t, many, ebpf.Hash, 8192, 1) },
		// Eight times too large: what an LRU evicts is no churn of others.
		"LRU":             func(t *testing.T) subject { return numbers(t, many, ebpf.LRUHash, 40_000, 0) },
		"array":           func(t *testing.T) subject { return numbers(t, many, ebpf.Array, 5000, 0) },
		"counters":        func(t *testing.T) subject { return counters(t, many) },
		"trie":            func(t *testing.T) subject { return prefixes(t, many) },
		"without batches": func(t *testing.T) subject { return devices(t, some) },
		"maps of maps":    func(t *testing.T) subject { return sets(t, few) },
	} {
		t.Run(name, func(t *testing.T) {
			pins(t)
			churn(t, open(t))
		})
	}
}

func churn(t *testing.T, s subject) {
	defer func() { ok(t, s.close()) }()
	length := 2 * time.Second
	if os.Getenv("SOAK") != "" {
		length = 60 * time.Second
	}
	foreign := s.ours() // the first one
	for k := range s.foreign / 2 {
		ok(t, s.poke(foreign+k))
	}
	_, err := s.sync(t.Context())
	ok(t, err)

	var stop atomic.Bool
	var writes atomic.Int64
	var wg sync.WaitGroup
	defer wg.Wait() // before the map is closed: its descriptor's number will be another map's
	defer stop.Store(true)
	for w := range uint32(2) {
		wg.Go(func() {
			for i := w; !stop.Load(); i += 2 {
				keys := []uint32{s.stable + i%s.wanted, s.stable + s.wanted + i%s.wild}
				if s.foreign > 0 {
					keys = append(keys, foreign+s.foreign/2+i%(s.foreign/2))
				}
				for _, k := range keys {
					err := s.poke(k)
					if err == nil && i%3 == 0 {
						err = s.kill(k)
					}
					if err != nil && !errors.Is(err, syscall.ENOENT) {
						t.Errorf("writer: %v", err)
						return
					}
					writes.Add(1)
				}
			}
		})
	}
	walks, plans, passes, drift, gaveUp := 0, 0, 0, 0, 0
	// unstable counts what a kind that is walked by keys may say instead of a wrong answer.
	unstable := func(err error) bool {
		if errors.Is(err, bpfmap.ErrUnstable) {
			gaveUp++
			return true
		}
		if err != nil && !errors.Is(err, bpfmap.ErrNotConverging) {
			t.Fatal(err)
		}
		return false
	}
	for end := time.Now().Add(length); time.Now().Before(end) && !t.Failed(); {
		seen, err := s.count(t.Context())
		if walks++; !unstable(err) {
			s.whole(t, walks, seen)
		}
		deletes, err := s.plan(t.Context())
		if plans++; !unstable(err) {
			for _, k := range deletes {
				if k < s.stable+s.wanted || k >= foreign {
					t.Fatalf("plan %d deletes key %d", plans, k)
				}
			}
		}
		n, err := s.sync(t.Context())
		if passes++; !unstable(err) {
			drift += n
		}
	}
	stop.Store(true)
	wg.Wait()
	if drift == 0 || passes < 10 {
		t.Fatalf("%d passes found %d drifted entries: there was no churn", passes, drift)
	}
	if gaveUp > (walks+plans+passes)/2 {
		t.Fatalf("gave up %d times in %d walks, %d plans, %d passes", gaveUp, walks, plans, passes)
	}
	if _, err = s.sync(t.Context()); err != nil && !errors.Is(err, bpfmap.ErrNotConverging) {
		t.Fatal(err)
	}
	seen, err := s.count(t.Context())
	ok(t, err)
	for k := range s.desired {
		if seen[k] != 1 {
			t.Fatalf("at rest, key %d is there %d times", k, seen[k])
		}
		if right, err := s.right(k); err != nil || !right {
			t.Fatalf("at rest, key %d has not the value that is wanted: %v", k, err)
		}
	}
	for k := range s.wild {
		if seen[s.stable+s.wanted+k] != 0 {
			t.Fatalf("at rest, the unwanted key %d is there", s.stable+s.wanted+k)
		}
	}
	t.Logf("%d walks, %d plans, %d passes, %d writes of others, %d drifted entries found, gave up %d times",
		walks, plans, passes, writes.Load(), drift, gaveUp)
}

// count walks once and says how often each key came.
func (s subject) count(ctx context.Context) (map[uint32]int, error) {
	seen := make(map[uint32]int, 8192)
	for k, err := range s.walk(ctx) {
		if err != nil {
			return nil, err
		}
		seen[k]++
	}
	return seen, nil
}

// whole holds a walk to what it promises.
func (s subject) whole(t *testing.T, walk int, seen map[uint32]int) {
	t.Helper()
	for k := range s.stable {
		if seen[k] != 1 {
			t.Fatalf("walk %d: the stable key %d came %d times", walk, k, seen[k])
		}
	}
	for k := s.ours(); k < s.ours()+s.foreign/2; k++ {
		if seen[k] != 1 {
			t.Fatalf("walk %d: the foreign key %d came %d times", walk, k, seen[k])
		}
	}
	for k, n := range seen {
		if n > 1 {
			t.Fatalf("walk %d: key %d came %d times", walk, k, n)
		}
	}
}

// face is the subject of a map with keys K and values V.
func face[K, V comparable](c crowd, m *bpfmap.Map[K, V], array bool, key func(uint32) K, number func(K) uint32, value func(uint32) V) subject {
	desired := func(yield func(K, V) bool) {
		for k := range c.desired {
			if !yield(key(k), value(k)) {
				return
			}
		}
	}
	var zero V
	s := subject{crowd: c, b: m.Backend(), close: m.Close, array: array}
	s.walk = func(ctx context.Context) iter.Seq2[uint32, error] {
		return func(yield func(uint32, error) bool) {
			for e, err := range m.All(ctx) {
				if (err != nil || !array || e.Value != zero) && !yield(number(e.Key), err) {
					return
				}
			}
		}
	}
	s.plan = func(ctx context.Context) (deletes []uint32, err error) {
		p, err := m.Plan(ctx, desired)
		for _, d := range p.Delete {
			deletes = append(deletes, number(d.Key))
		}
		return deletes, err
	}
	s.sync = func(ctx context.Context) (int, error) {
		res, err := m.Sync(ctx, desired)
		return res.Drift, err
	}
	s.right = func(k uint32) (bool, error) {
		v, there, err := m.Get(key(k))
		return there && v == value(k), err
	}
	return s
}

func same[T any](v T) T { return v }

func native(k uint32) []byte { return binary.NativeEndian.AppendUint32(nil, k) }

func numbers(t *testing.T, c crowd, typ ebpf.MapType, room, flags uint32) subject {
	m, err := bpfmap.Open[uint32, uint64](bpfmap.Spec{Name: "churn", Type: typ, MaxEntries: room, Flags: flags},
		bpfmap.WithOwned(func(k uint32) bool { return k < c.ours() }))
	ok(t, err)
	s := face(c, m, typ == ebpf.Array, same, same, func(k uint32) uint64 { return uint64(k) + 1 })
	s.key, s.value = native, []byte{0, 0, 0, 0, 0, 0, 0, 1}
	return s
}

func counters(t *testing.T, c crowd) subject {
	m, err := bpfmap.OpenPerCPU[uint32, uint64](bpfmap.Spec{Name: "churn", MaxEntries: 8192},
		bpfmap.WithOwned(func(k uint32) bool { return k < c.ours() }))
	ok(t, err)
	s := subject{crowd: c, b: m.Backend(), key: native, value: make([]byte, 8*m.CPUs()), close: m.Close}
	s.walk = func(ctx context.Context) iter.Seq2[uint32, error] {
		return func(yield func(uint32, error) bool) {
			for e, err := range m.All(ctx) {
				if !yield(e.Key, err) {
					return
				}
			}
		}
	}
	s.plan = func(ctx context.Context) (deletes []uint32, err error) {
		p, err := m.Plan(ctx, c.desired)
		for _, d := range p.Delete {
			deletes = append(deletes, d.Key)
		}
		return deletes, err
	}
	s.sync = func(ctx context.Context) (int, error) {
		res, err := m.Sync(ctx, c.desired)
		return res.Drift, err
	}
	s.right = func(k uint32) (bool, error) {
		_, there, err := m.Get(k, nil)
		return there, err // the values are the programs'
	}
	return s
}

// prefixes makes every second key a /16 and the one after it a /32 inside, and spreads neighbours over the whole trie.
func prefixes(t *testing.T, c crowd) subject {
	address := func(k uint32) []byte { return binary.BigEndian.AppendUint32(nil, bits.Reverse32(k>>1)) }
	length := func(k uint32) int { return 16 + 16*int(k&1) }
	prefix := func(k uint32) netip.Prefix { return netip.PrefixFrom(netip.AddrFrom4([4]byte(address(k))), length(k)) }
	number := func(p netip.Prefix) uint32 {
		a := p.Addr().As4()
		return bits.Reverse32(binary.BigEndian.Uint32(a[:]))<<1 | uint32(p.Bits()>>5)
	}
	m, err := bpfmap.OpenLPM[uint32](bpfmap.Spec{Name: "churn", MaxEntries: 8192}, 32,
		bpfmap.WithOwned(func(p netip.Prefix) bool { return number(p) < c.ours() }))
	ok(t, err)
	s := face(c, m.Map, false, prefix, number, func(k uint32) uint32 { return k + 1 })
	s.key = func(k uint32) []byte { return append(native(uint32(length(k))), address(k)...) }
	s.value = make([]byte, 4)
	return s
}

// devices are walked with one call a key. The only value is lo.
func devices(t *testing.T, c crowd) subject {
	m, err := bpfmap.Open[uint32, uint32](bpfmap.Spec{Name: "churn", Type: ebpf.DevMapHash, MaxEntries: 2048},
		bpfmap.WithOwned(func(k uint32) bool { return k < c.ours() }))
	ok(t, err)
	s := face(c, m, false, same, same, func(uint32) uint32 { return 1 })
	s.key, s.value = native, native(1)
	return s
}

// sets are maps in slots. Others put one that nobody wants into them; each write waits for a grace period.
func sets(t *testing.T, c crowd) subject {
	m, err := bpfmap.OpenNested[uint32, uint32, uint32](bpfmap.Spec{Name: "churn", MaxEntries: 64}, bpfmap.Spec{Name: "inner", MaxEntries: 4})
	ok(t, err)
	theirs, err := m.NewInner()
	ok(t, err)
	s := subject{crowd: c, b: m.Backend(), key: native, value: native(uint32(theirs.Backend().FD()))}
	s.walk = func(ctx context.Context) iter.Seq2[uint32, error] {
		return func(yield func(uint32, error) bool) {
			for e, err := range m.IDs(ctx) {
				if !yield(e.Key, err) {
					return
				}
			}
		}
	}
	s.plan = func(context.Context) ([]uint32, error) { return nil, nil } // a map of maps has none
	s.sync = func(ctx context.Context) (int, error) {
		r, err := m.Sync(ctx, func(yield func(uint32, seq) bool) {
			for k := range c.desired {
				if !yield(k, func(yield func(uint32, uint32) bool) { yield(k, k) }) {
					return
				}
			}
		})
		return r.Written + r.Deleted, err
	}
	s.right = func(k uint32) (bool, error) {
		inner, there, err := m.Inner(k)
		if err != nil || !there {
			return false, err
		}
		v, there, err := inner.Get(k)
		return there && v == k, err
	}
	s.close = func() error { return errors.Join(theirs.Close(), m.Close()) }
	return s
}
