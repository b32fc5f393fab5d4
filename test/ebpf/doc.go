// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

// Package ebpf holds the tests of bpfmap/prog that need a kernel: programs under traffic, crashes at every step, two
// upgraders, missing capabilities. They need root and skip with a reason without; nothing outside the bpf file systems,
// network namespaces and cgroups that they make is touched.
package ebpf
