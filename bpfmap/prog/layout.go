// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package prog

import (
	"crypto/sha256"
	"fmt"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// maxLayout is what a symbolic link holds, with room to spare; a longer description is kept as its digest.
const maxLayout = 2000

// layoutOf describes what the keys and values of a map are made of, names and offsets, as far as the object says; "" when
// it does not. Two declarations of the same sizes whose fields are in another order are told apart by it: the kernel and
// the library look at sizes only, and reading the BTF of a loaded map needs CAP_SYS_ADMIN.
// https://github.com/cilium/ebpf/issues/821
func layoutOf(spec *ebpf.MapSpec) string {
	if spec.Key == nil && spec.Value == nil {
		return ""
	}
	var b strings.Builder
	describeType(&b, spec.Key, 0)
	b.WriteString(" → ")
	describeType(&b, spec.Value, 0)
	if b.Len() > maxLayout {
		return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(b.String())))
	}
	return b.String()
}

func describeType(b *strings.Builder, t btf.Type, depth int) {
	if depth > 16 || b.Len() > 16*maxLayout {
		b.WriteString("…")
		return
	}
	members := func(kind string, list []btf.Member) {
		b.WriteString(kind + "{")
		for i, m := range list {
			if i > 0 {
				b.WriteString("; ")
			}
			fmt.Fprintf(b, "%s ", m.Name)
			describeType(b, m.Type, depth+1)
			fmt.Fprintf(b, " @%d", m.Offset)
			if m.BitfieldSize > 0 {
				fmt.Fprintf(b, ":%d", m.BitfieldSize)
			}
		}
		b.WriteString("}")
	}
	switch t := btf.UnderlyingType(t).(type) {
	case nil:
		b.WriteString("?")
	case *btf.Struct:
		members("struct", t.Members)
	case *btf.Union:
		members("union", t.Members)
	case *btf.Array:
		fmt.Fprintf(b, "[%d]", t.Nelems)
		describeType(b, t.Type, depth+1)
	case *btf.Int:
		fmt.Fprintf(b, "%s%d", map[bool]string{true: "s", false: "u"}[t.Encoding == btf.Signed], 8*t.Size)
	default:
		size, err := btf.Sizeof(t)
		if err != nil {
			size = 0
		}
		fmt.Fprintf(b, "%d bytes", size)
	}
}
