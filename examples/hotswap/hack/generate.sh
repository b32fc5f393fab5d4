#!/bin/sh
# Copyright The Ashlar Authors
# SPDX-License-Identifier: Apache-2.0
#
# Compiles bpf/counter.c, once for each version, and writes the Go bindings. What it writes is committed, so that nobody
# needs clang to build this; it was made by clang 14, and other versions make other bytes.
set -eu
cd "$(dirname "$0")/.."
if ! clang --version 2>/dev/null | grep -q 'clang version 14\.' || ! command -v llvm-strip >/dev/null; then
	echo "hotswap: the objects stay as they are: clang 14 and llvm-strip are not installed"
	exit 0
fi
version() { # name flags…
	name=$1
	shift
	GOPACKAGE=main go tool bpf2go -target bpfel -cc clang -strip llvm-strip "$name" bpf/counter.c -- \
		-O2 -mcpu=v3 -Wall -Werror "$@" >/dev/null
	{
		printf '// Copyright The Ashlar Authors\n// SPDX-License-Identifier: Apache-2.0\n\n'
		cat "${name}_bpfel.go"
	} >"${name}_bpfel.new"
	mv "${name}_bpfel.new" "${name}_bpfel.go"
}
version one -DVERSION=1
version two -DVERSION=2
version wide -DVERSION=3 -DWIDE
version broken -DVERSION=4 -DWIDE -DBROKEN
# What belongs together: a test without clang sees from it that somebody forgot to compile.
sha256sum bpf/counter.c hack/generate.sh ./*_bpfel.* | sed 's|\./||' >bpf/SHA256SUMS
