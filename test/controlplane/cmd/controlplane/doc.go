// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

// Command controlplane builds and runs a Kubernetes control plane from Go modules.
//
//	controlplane build                build what is missing, print the directory of the programs
//	controlplane run [flags] [-- command args...]
//	                                  start a control plane; without a command until interrupted, else as long as the
//	                                  command, which finds it in KUBECONFIG
//
// Programs found in the directory KUBEBUILDER_ASSETS are used by run instead of built ones.
package main
