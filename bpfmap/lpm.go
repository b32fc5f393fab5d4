// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package bpfmap

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"syscall"

	"github.com/cilium/ebpf"
)

// LPM is a trie of IP prefixes. Host bits of a prefix are cleared on the way down and in what is read, because the
// kernel keeps them and compares without them: 10.0.1.99/24 and 10.0.1.0/24 are one entry. A map holds either family;
// IPv4 addresses mapped into IPv6 (::ffff:0:0/96) are IPv6 here.
//
// While others write, the kernel's walk of a trie can pass over prefixes that are there all the time, and does not say so
// (seen once in some hundred walks beside a busy writer). A whole reading is therefore repeated, and once more when the
// second one finds something new.
type LPM[V any] struct {
	*Map[netip.Prefix, V]
	bits int
}

// OpenLPM is [Open] for a trie of IPv4 (bits 32) or IPv6 (bits 128) prefixes.
func OpenLPM[V any](s Spec, bits int, opts ...Option) (*LPM[V], error) {
	c, kc, vc, err := prepareLPM[V](bits, opts, openTakes)
	if err != nil {
		return nil, &Error{Op: "open", Map: s.Name, Err: err}
	}
	m, err := open(s, lpmFace, c, kc, vc)
	return lpmOf(m, bits, err)
}

// WrapLPM is [Wrap] for a trie; the size of its key says which family it holds.
func WrapLPM[V any](m *ebpf.Map, opts ...Option) (*LPM[V], error) {
	if m == nil {
		return nil, &Error{Op: "wrap", Map: "map", Err: errors.New("the map is nil")}
	}
	bits := 8 * (int(m.KeySize()) - 4)
	c, kc, vc, err := prepareLPM[V](bits, opts, wrapTakes)
	if err != nil {
		return nil, &Error{Op: "wrap", Map: "map", Err: err}
	}
	w, err := wrap(m, lpmFace, c, kc, vc)
	return lpmOf(w, bits, err)
}

func lpmOf[V any](m *Map[netip.Prefix, V], bits int, err error) (*LPM[V], error) {
	if err != nil {
		return nil, err
	}
	return &LPM[V]{m, bits}, nil
}

func prepareLPM[V any](bits int, opts []Option, takes []string) (*config, codec[netip.Prefix], codec[V], error) {
	c, err := configure(opts, takes)
	vc, verr := direct[V]("value")
	if bits != 32 && bits != 128 {
		err = errors.Join(err, fmt.Errorf("a prefix has 32 or 128 bits, not %d", bits))
	}
	return c, prefixCodec(bits), vc, errors.Join(err, verr)
}

// prefixCodec writes a prefix as the kernel wants it: the length in host order, then the address in network order.
func prefixCodec(bits int) codec[netip.Prefix] {
	return codec[netip.Prefix]{
		size: 4 + bits/8,
		btf:  trieKey(bits),
		enc: func(dst []byte, p netip.Prefix) error {
			if !p.IsValid() {
				return errors.New("the prefix is not valid")
			}
			if p.Addr().BitLen() != bits {
				return fmt.Errorf("the prefix %s has %d bits, the map's have %d", p, p.Addr().BitLen(), bits)
			}
			binary.NativeEndian.PutUint32(dst, uint32(p.Bits()))
			if bits == 32 {
				a := p.Masked().Addr().As4()
				copy(dst[4:], a[:])
			} else {
				a := p.Masked().Addr().As16()
				copy(dst[4:], a[:])
			}
			return nil
		},
		dec: func(src []byte) netip.Prefix {
			addr, _ := netip.AddrFromSlice(src[4 : 4+bits/8])
			return netip.PrefixFrom(addr, int(binary.NativeEndian.Uint32(src))).Masked()
		},
	}
}

// maskKey clears the host bits of a key that somebody else wrote: with others it is the same entry.
func maskKey(key []byte) {
	bits := int(binary.NativeEndian.Uint32(key))
	for i := range key[4:] {
		switch keep := bits - 8*i; {
		case keep <= 0:
			key[4+i] = 0
		case keep < 8:
			key[4+i] &= 0xff << (8 - keep)
		}
	}
}

// trieKey is the key for BTF, which the kernel wants to be a struct.
func trieKey(bits int) reflect.Type {
	if bits == 32 {
		return reflect.TypeFor[struct {
			Prefixlen uint32
			Data      [4]uint8
		}]()
	}
	return reflect.TypeFor[struct {
		Prefixlen uint32
		Data      [16]uint8
	}]()
}

// Match reads the value of the longest prefix that holds the address. One call, no allocation.
func (m *LPM[V]) Match(a netip.Addr) (V, bool, error) {
	return m.Map.Get(netip.PrefixFrom(a, a.BitLen()))
}

// Get reads the value of this very prefix. The kernel's lookup takes the longest match instead, so the prefix is
// confirmed by asking for the key after it: five calls, and more when others write at the same moment. Kernels between
// 4.16 and the fix of 6.13 (stable ones have it) may take a prefix of the same length for this one.
func (m *LPM[V]) Get(p netip.Prefix) (v V, ok bool, err error) {
	key := block(m.ks)
	if err := m.kc.put(key, p); err != nil {
		return v, false, m.fail("get", err)
	}
	for range 8 {
		before, err := m.has(key)
		if err != nil || !before {
			return v, false, m.fail("get", err)
		}
		v, ok, err = m.Map.Get(p)
		if err != nil {
			return v, false, err
		}
		after, err := m.has(key)
		if err != nil || after && ok {
			return v, ok, m.fail("get", err)
		}
	}
	return v, false, m.fail("get", fmt.Errorf("%w: %s came and went", ErrUnstable, p))
}

// has says whether the trie has this key. After a key that is not there comes the first one, and the first one comes
// after none that is there.
func (m *LPM[V]) has(key []byte) (bool, error) {
	first, next := block(m.ks), block(m.ks)
	again := block(m.ks)
	for range 8 {
		if err := m.b.NextKey(nil, first); errors.Is(err, syscall.ENOENT) {
			return false, nil // empty
		} else if err != nil {
			return false, err
		}
		err := m.b.NextKey(key, next)
		if errors.Is(err, syscall.ENOENT) {
			return true, nil // the last one
		}
		if err != nil {
			return false, err
		}
		if err := m.b.NextKey(nil, again); err == nil && string(again) == string(first) {
			return string(next) != string(first), nil
		}
	}
	return false, ErrUnstable
}
