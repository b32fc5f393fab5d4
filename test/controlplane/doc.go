// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

// Package controlplane starts a real Kubernetes control plane for tests: etcd, kube-apiserver,
// kube-controller-manager with its garbage collector, kube-scheduler, and kwok in the place of nodes. A reconciler that
// was only tested against a fake client has never met server-side apply, finalizers, admission or cascading deletion.
//
//	func TestMain(m *testing.M) {
//		cp, err := controlplane.Start(context.Background())
//		if err != nil {
//			fmt.Fprintln(os.Stderr, err)
//			os.Exit(1)
//		}
//		code := m.Run() // cp.Config() in a package variable or a helper
//		cp.Stop()
//		os.Exit(code)
//	}
//
// Nothing prebuilt is downloaded: the programs are compiled from their Go modules, once, into the user's cache, which
// takes about as long as compiling Kubernetes does (some ten minutes on two cores). `go test` buffers what it prints and
// stops a test after ten minutes, so on a new machine run this first; a build that was stopped resumes:
//
//	go run ./cmd/controlplane build
//
// # Guarantees
//
// [Start] returns when every component has proven that it works: the API server is ready; the service account, the
// garbage-collection and the scheduling controllers act; kwok makes a node ready. Nothing waits a fixed time.
//
// Nothing outlives the process that called Start, however it ends, SIGKILL included, on Linux and macOS; the temporary
// directory it could not remove is removed by the next Start. Two control planes do not meet: ports, sockets, keys and
// directories are their own, and nothing listens beyond loopback.
//
// A component that dies is named with the end of its log: by the error of Start, later by [ControlPlane.Err]. It is not
// restarted.
//
// Requests are counted by the server itself, see package audit.
//
// # Assumptions
//
// A Unix system with sh; the go command while something has to be built. Programs found in the directory
// KUBEBUILDER_ASSETS are used instead of built ones.
//
// # Cost
//
// A start takes seconds when the programs are there, a control plane about 0.6 GB of memory, the cache 0.4 GB. There is no
// kube-proxy, DNS, image pull or container: a webhook must be given by url, a pod runs in name only. The real
// controllers keep their real periods: a namespace takes five seconds to go, and the garbage collector learns new kinds
// every thirty seconds (see [WithSetup]).
//
// # RBAC
//
// [ControlPlane.Config] is cluster-admin. [ControlPlane.AddUser] and [ControlPlane.ServiceAccount] are not: whatever
// they may do has to be granted, so that a test can prove a role to be sufficient.
//
// # Not for
//
// Anything that must survive: etcd does not sync to disk. Anything about a kubelet, a network or a container.
package controlplane
