// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"encoding/binary"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/ashlar-go/ashlar/bpfmap"
)

// Keys of the churn: stable ones are wanted and never touched by others; wanted ones others change and delete; wild
// ones are ours but unwanted, and come again and again; foreign ones belong to somebody else.
const (
	stable  = 2000
	wanted  = 1000
	wild    = 1000
	foreign = 1000
)

func TestChurn(t *testing.T) {
	for name, typ := range map[string]ebpf.MapType{"hash": ebpf.Hash, "hash without preallocation": ebpf.Hash} {
		t.Run(name, func(t *testing.T) { churn(t, typ, name != "hash") })
	}
}

func churn(t *testing.T, typ ebpf.MapType, dynamic bool) {
	pins(t)
	flags := uint32(0)
	if dynamic {
		flags = 1
	}
	m, err := bpfmap.Open[uint32, uint64](bpfmap.Spec{Name: "churn", Type: typ, MaxEntries: 8192, Flags: flags},
		bpfmap.WithOwned(func(k uint32) bool { return k < stable+wanted+wild }))
	ok(t, err)
	defer m.Close()
	length := 5 * time.Second
	if os.Getenv("SOAK") != "" {
		length = 30 * time.Second
	}
	first := uint32(stable + wanted + wild)
	for k := first; k < first+foreign/2; k++ { // the foreign ones that stay
		ok(t, m.Put(k, 1))
	}
	desired := func(yield func(uint32, uint64) bool) {
		for k := range uint32(stable + wanted) {
			if !yield(k, uint64(k)) {
				return
			}
		}
	}
	_, err = m.Sync(t.Context(), desired)
	ok(t, err)

	var stop atomic.Bool
	defer stop.Store(true) // also when the test ends early: the descriptor's number will be another map's
	var writes atomic.Int64
	var wg sync.WaitGroup
	for w := range 2 {
		wg.Go(func() {
			key, value := make([]byte, 4), make([]byte, 8)
			for i := uint32(w); !stop.Load(); i += 2 {
				for _, k := range []uint32{stable + i%wanted, stable + wanted + i%wild, first + foreign/2 + i%(foreign/2)} {
					binary.NativeEndian.PutUint32(key, k)
					err := m.Backend().Update(key, value, 0)
					if err == nil && i%3 == 0 {
						err = m.Backend().Delete(key)
					}
					if err != nil && !errors.Is(err, syscall.ENOENT) && !errors.Is(err, syscall.E2BIG) {
						t.Errorf("writer: %v", err)
						return
					}
					writes.Add(1)
				}
			}
		})
	}
	passes, walks, drift := 0, 0, 0
	for end := time.Now().Add(length); time.Now().Before(end) && !t.Failed(); {
		seen := make(map[uint32]int, 8192)
		for e, err := range m.All(t.Context()) {
			ok(t, err)
			seen[e.Key]++
		}
		walks++
		for k := range uint32(stable) {
			if seen[k] != 1 {
				t.Fatalf("walk %d: the stable key %d came %d times", walks, k, seen[k])
			}
		}
		for k := first; k < first+foreign/2; k++ {
			if seen[k] != 1 {
				t.Fatalf("walk %d: the foreign key %d came %d times", walks, k, seen[k])
			}
		}
		for k, n := range seen {
			if n > 1 {
				t.Fatalf("walk %d: key %d came %d times", walks, k, n)
			}
		}
		res, err := m.Sync(t.Context(), desired)
		if err != nil && !errors.Is(err, bpfmap.ErrNotConverging) {
			t.Fatal(err)
		}
		passes++
		drift += res.Drift
	}
	stop.Store(true)
	wg.Wait()
	if drift == 0 || passes < 10 {
		t.Fatalf("%d passes found %d drifted entries: there was no churn", passes, drift)
	}
	for range 2 {
		_, err = m.Sync(t.Context(), desired)
		if err != nil && !errors.Is(err, bpfmap.ErrNotConverging) {
			t.Fatal(err)
		}
	}
	got := map[uint32]uint64{}
	for e, err := range m.All(t.Context()) {
		ok(t, err)
		got[e.Key] = e.Value
	}
	for k := range uint32(stable + wanted) {
		if got[k] != uint64(k) {
			t.Fatalf("at rest, key %d is %d", k, got[k])
		}
	}
	for k := range uint32(wild) {
		if _, there := got[stable+wanted+k]; there {
			t.Fatalf("at rest, the unwanted key %d is there", stable+wanted+k)
		}
	}
	t.Logf("%d walks, %d passes, %d writes of others, %d drifted entries found", walks, passes, writes.Load(), drift)
}

// TestChurnTrie deletes and adds prefixes while the trie is walked: the kernel's cursor is a key, and starts over when
// that is gone.
func TestChurnTrie(t *testing.T) {
	pins(t)
	m, err := bpfmap.OpenLPM[uint32](bpfmap.Spec{Name: "churn", MaxEntries: 4096}, 32)
	ok(t, err)
	defer m.Close()
	key := func(k uint32) []byte {
		b := binary.NativeEndian.AppendUint32(nil, 32)
		return binary.BigEndian.AppendUint32(b, k)
	}
	const keep = 1000
	for k := range uint32(keep) {
		ok(t, m.Backend().Update(key(2*k), make([]byte, 4), 0))
	}
	var stop atomic.Bool
	defer stop.Store(true) // also when the test ends early: the descriptor's number will be another map's
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := uint32(0); !stop.Load(); i++ {
			_ = m.Backend().Update(key(2*(i%keep)+1), make([]byte, 4), 0)
			_ = m.Backend().Delete(key(2*((i+keep/2)%keep) + 1))
		}
	})
	walks, unstable := 0, 0
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end) && !t.Failed(); walks++ {
		seen := map[uint32]int{}
		var werr error
		for e, err := range m.All(t.Context()) {
			if werr = err; err != nil {
				break
			}
			a := e.Key.Addr().As4()
			seen[binary.BigEndian.Uint32(a[:])]++
		}
		if errors.Is(werr, bpfmap.ErrUnstable) {
			unstable++
			continue
		}
		ok(t, werr)
		for k := range uint32(keep) {
			if seen[2*k] != 1 {
				t.Fatalf("walk %d: the stable prefix %d came %d times", walks, k, seen[2*k])
			}
		}
		for k, n := range seen {
			if n > 1 {
				t.Fatalf("walk %d: prefix %d came %d times", walks, k, n)
			}
		}
	}
	stop.Store(true)
	wg.Wait()
	if walks < 10 || unstable > walks/2 {
		t.Fatalf("%d walks, %d of them gave up", walks, unstable)
	}
	t.Logf("%d walks, %d gave up", walks, unstable)
}
