// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

// Package progs holds the objects that the tests load. They are those of bpfmap/prog, whose testdata has the source.
package progs

import (
	"os"
	"path/filepath"
	"runtime"
)

// The objects. One and Two differ in the counter that they add to, and the socket filter of Two drops; Wide has larger
// values in its flow tables, Other has values of the same size with other fields,
// Slow takes its time for each packet; Broken has a program that the verifier rejects; Tails and Tails2 have one, head,
// that jumps to the one that counts.
var (
	One    = read("one")
	Two    = read("two")
	Wide   = read("wide")
	Other  = read("other")
	Slow   = read("slow")
	Broken = read("broken")
	Tails  = read("tails")
	Tails2 = read("tails2")
)

func read(name string) []byte {
	_, here, _, _ := runtime.Caller(0)
	data, err := os.ReadFile(filepath.Join(filepath.Dir(here), "../../../bpfmap/prog/testdata", name+".o"))
	if err != nil {
		panic(err) // a test that cannot read its object has nothing to say
	}
	return data
}
