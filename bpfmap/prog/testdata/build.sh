#!/bin/sh
# Copyright The Ashlar Authors
# SPDX-License-Identifier: Apache-2.0
#
# Compiles progs.c into the objects beside it, or into the folder given. The folder does not get into the objects.
# The committed ones were made by clang 14; another one makes other bytes.
set -eu
cd "$(dirname "$0")"
out=${1:-.}
object() { # name flags…
	name=$1
	shift
	clang -O2 -g -mcpu=v3 -target bpfel -Wall -Werror -fdebug-prefix-map="$PWD"=. -fdebug-compilation-dir=. "$@" \
		-c progs.c -o "$out/$name.o"
	llvm-strip -g "$out/$name.o"
}
object one -DVERSION=1 -DSTYLE=1
object two -DVERSION=2 -DSTYLE=1
object wide -DVERSION=3 -DSTYLE=2
object slow -DVERSION=1 -DSTYLE=1 -DSLOW
object other -DVERSION=5 -DSTYLE=3
object broken -DVERSION=4 -DSTYLE=1 -DBROKEN
object tails -DVERSION=1 -DSTYLE=1 -DTAILS
object tails2 -DVERSION=2 -DSTYLE=1 -DTAILS
# What belongs together: a test without clang sees from it that somebody forgot to compile.
cp progs.c build.sh "$out" 2>/dev/null || true
(cd "$out" && sha256sum progs.c build.sh ./*.o) | sed 's|\./||' >"$out/SHA256SUMS"
