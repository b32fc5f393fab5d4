// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

// Command cilium holds the side of Cilium's reconciler for BPF maps.
package main

import "github.com/ashlar-go/ashlar/test/bench/side"

func main() { side.Main(benches...) }
