// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package bpfmaptest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"syscall"

	"github.com/cilium/ebpf"

	"github.com/ashlar-go/ashlar/bpfmap"
)

// kinds are the maps that Differ uses. An LRU is not among them: which entries it evicts is nobody's contract.
var kinds = []ebpf.MapSpec{
	{Type: ebpf.Hash, KeySize: 4, ValueSize: 4},
	{Type: ebpf.PerCPUHash, KeySize: 4, ValueSize: 5},
	{Type: ebpf.Array, KeySize: 4, ValueSize: 4},
	{Type: ebpf.PerCPUArray, KeySize: 4, ValueSize: 12},
	{Type: ebpf.LPMTrie, KeySize: 8, ValueSize: 4, Flags: flagNoPrealloc},
}

// Differ runs the same calls on two systems and describes the first answer that differs, "" when none does. Script
// decides everything: the first bytes the type and size of the map, the others the calls. It is what the differential
// fuzz test of this package feeds with random bytes. Systems must have the same number of CPUs.
func Differ(a, b bpfmap.System, script []byte) (string, error) {
	if len(script) < 2 {
		return "", nil
	}
	spec := kinds[int(script[0])%len(kinds)]
	spec.Name, spec.MaxEntries = "differ", 1+uint32(script[1])%12
	one, err := a.Create(&spec)
	if err != nil {
		return "", err
	}
	defer one.Close()
	two, err := b.Create(&spec)
	if err != nil {
		return "", err
	}
	defer two.Close()
	cpus, err := a.CPUs()
	if err != nil {
		return "", err
	}
	d := differ{spec: spec, vs: int(spec.ValueSize), script: script[2:]}
	if spec.Type == ebpf.PerCPUHash || spec.Type == ebpf.PerCPUArray {
		d.vs = cpus * stride(d.vs)
	}
	for step := 0; len(d.script) > 0; step++ {
		call, x, y := d.call(one, two)
		if x != y {
			return fmt.Sprintf("%s map of %d, step %d, %s: %s on one, %s on the other", spec.Type, spec.MaxEntries, step, call, x, y), nil
		}
	}
	x, err := contents(one, d.ks(), d.vs, int(spec.MaxEntries))
	if err != nil {
		return "", err
	}
	y, err := contents(two, d.ks(), d.vs, int(spec.MaxEntries))
	if err != nil {
		return "", err
	}
	if !slices.EqualFunc(x, y, bytes.Equal) {
		return fmt.Sprintf("%s map of %d: at the end % x on one, % x on the other", spec.Type, spec.MaxEntries, x, y), nil
	}
	return "", nil
}

type differ struct {
	spec   ebpf.MapSpec
	vs     int
	script []byte
}

func (d *differ) ks() int { return int(d.spec.KeySize) }

func (d *differ) next() byte {
	if len(d.script) == 0 {
		return 0
	}
	c := d.script[0]
	d.script = d.script[1:]
	return c
}

// key is one of few, so that calls meet.
func (d *differ) key() []byte {
	c := d.next()
	if d.spec.Type != ebpf.LPMTrie {
		return n32(uint32(c) % 16)
	}
	// Prefixes of all lengths in a small space, some with host bits, some too long.
	return prefix(10, c&0xc0, d.next()&0x81, c&0x03, []uint32{0, 8, 9, 10, 16, 23, 24, 31, 32, 33}[int(d.next())%10])
}

func (d *differ) value() []byte { return bytes.Repeat([]byte{d.next()}, d.vs) }

// call makes one call on both and returns what they answered, as text.
func (d *differ) call(one, two bpfmap.Backend) (call, x, y string) {
	op := d.next() % 9
	switch op {
	case 0, 1, 2:
		k, v, flags := d.key(), d.value(), ebpf.MapUpdateFlags(d.next()%4)
		return fmt.Sprintf("update % x with flags %d", k, flags), answer(one.Update(k, v, flags)), answer(two.Update(k, v, flags))
	case 3:
		k := d.key()
		return fmt.Sprintf("delete % x", k), answer(one.Delete(k)), answer(two.Delete(k))
	case 4, 5:
		k, v, w := d.key(), make([]byte, d.vs), make([]byte, d.vs)
		look := bpfmap.Backend.Lookup
		if op == 5 {
			look = bpfmap.Backend.LookupDelete
		}
		x, y = answer(look(one, k, v)), answer(look(two, k, w))
		return fmt.Sprintf("lookup % x (delete: %t)", k, op == 5), fmt.Sprintf("%s % x", x, v), fmt.Sprintf("%s % x", y, w)
	case 6, 7:
		n := int(d.next()%5) + 1
		var keys, values []byte
		for range n {
			keys, values = append(keys, d.key()...), append(values, d.value()...)
		}
		if op == 6 {
			i, err := one.UpdateBatch(keys, values, n)
			j, err2 := two.UpdateBatch(keys, values, n)
			return fmt.Sprintf("update batch % x", keys), fmt.Sprint(i, answer(err)), fmt.Sprint(j, answer(err2))
		}
		i, err := one.DeleteBatch(keys, n)
		j, err2 := two.DeleteBatch(keys, n)
		return fmt.Sprintf("delete batch % x", keys), fmt.Sprint(i, answer(err)), fmt.Sprint(j, answer(err2))
	default:
		how := d.next()
		// The order of a hash table is its own business: it is read as a whole.
		if d.spec.Type == ebpf.Hash || d.spec.Type == ebpf.PerCPUHash {
			return fmt.Sprintf("read all (delete: %t)", how%2 == 1), d.batch(one, nil, int(d.spec.MaxEntries), how%2 == 1), d.batch(two, nil, int(d.spec.MaxEntries), how%2 == 1)
		}
		k := d.key()
		if how%2 == 1 {
			n := 1 + int(how/2)%6
			return fmt.Sprintf("read %d after % x", n, k), d.batch(one, k, n, false), d.batch(two, k, n, false)
		}
		v, w := make([]byte, d.ks()), make([]byte, d.ks())
		x, y = answer(one.NextKey(k, v)), answer(two.NextKey(k, w))
		return fmt.Sprintf("next key after % x", k), fmt.Sprintf("%s % x", x, v), fmt.Sprintf("%s % x", y, w)
	}
}

// batch reads up to n elements after a cursor and returns the answer as text: in the order they came, or sorted where
// there is none.
func (d *differ) batch(m bpfmap.Backend, cursor []byte, n int, take bool) string {
	read := m.LookupBatch
	if take {
		read = m.LookupDeleteBatch
	}
	out, keys, values := make([]byte, max(4, d.ks())), make([]byte, n*d.ks()), make([]byte, n*d.vs)
	got, err := read(cursor, out, keys, values, n)
	elems := split(keys, values, d.ks(), d.vs, got)
	if cursor == nil {
		slices.SortFunc(elems, bytes.Compare)
	} else if err == nil { // at the end it is nothing to go on from
		elems = append(elems, out)
	}
	return fmt.Sprintf("%d %s % x", got, answer(err), elems)
}

// answer is an errno by number, so that wrapping does not matter.
func answer(err error) string {
	var errno syscall.Errno
	if err == nil || !errors.As(err, &errno) {
		return fmt.Sprint(err)
	}
	return fmt.Sprintf("errno %d", uintptr(errno))
}

// contents reads everything, sorted.
func contents(m bpfmap.Backend, ks, vs, most int) ([][]byte, error) {
	keys, values := make([]byte, (most+1)*ks), make([]byte, (most+1)*vs)
	n, err := m.LookupBatch(nil, make([]byte, max(4, ks)), keys, values, most+1)
	if err != nil && !errors.Is(err, syscall.ENOENT) {
		return nil, err
	}
	out := split(keys, values, ks, vs, n)
	slices.SortFunc(out, bytes.Compare)
	return out, nil
}

// split makes one slice of each key and its value.
func split(keys, values []byte, ks, vs, n int) (out [][]byte) {
	for i := range n {
		out = append(out, slices.Concat(keys[i*ks:(i+1)*ks], values[i*vs:(i+1)*vs]))
	}
	return out
}
