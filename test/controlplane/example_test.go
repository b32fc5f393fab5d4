// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane_test

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/ashlar-go/ashlar/test/controlplane"
	"github.com/ashlar-go/ashlar/test/controlplane/audit"
)

func ExampleStart() {
	ctx := context.Background()
	cp, err := controlplane.Start(ctx,
		controlplane.WithArgs(controlplane.APIServer, "--enable-admission-plugins=OwnerReferencesPermissionEnforcement"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer cp.Stop()

	client := kubernetes.NewForConfigOrDie(cp.Config())
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(cp.Version(), "with", len(nodes.Items), "node")
	// Output: v1.37.2 with 1 node
}

// An operator runs under its own service account, so that a missing rule shows.
func ExampleControlPlane_ServiceAccount() {
	ctx := context.Background()
	cfg, err := cp.ServiceAccount(ctx, "default", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	mark := cp.Audit().Mark()
	_, err = kubernetes.NewForConfigOrDie(cfg).CoreV1().Secrets("default").List(ctx, metav1.ListOptions{})
	fmt.Println(err)

	reqs, err := cp.Audit().Since(mark, audit.ServiceAccount("default", "example"))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, rule := range reqs.Uncovered(nil).Rules() {
		fmt.Println("it lacks", rule.Verbs, rule.Resources)
	}
	// Output:
	// secrets is forbidden: User "system:serviceaccount:default:example" cannot list resource "secrets" in API group "" in the namespace "default"
	// it lacks [list] [secrets]
}

func ExampleControlPlane_WriteKubeconfig() {
	cfg, err := cp.AddUser("jane", "developers")
	if err != nil {
		fmt.Println(err)
		return
	}
	path, err := cp.WriteKubeconfig(cfg)
	if err != nil {
		fmt.Println(err)
		return
	}
	out, err := exec.Command(cp.Kubectl(), "--kubeconfig", path, "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}").Output()
	fmt.Println(string(out), err)
	// Output: jane <nil>
}

func ExampleExisting() {
	other, err := controlplane.Existing(cp.Kubeconfig()) // os.Getenv("KUBECONFIG")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer other.Stop() // removes what the handle wrote, stops nothing

	_, err = other.Audit().Since(other.Audit().Mark())
	fmt.Println(err, errors.Is(err, audit.ErrNotCounted))
	// Output: requests are not counted on this control plane true
}

func ExampleBuild() {
	dir, err := controlplane.Build(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = exec.LookPath(filepath.Join(dir, "kube-apiserver")) // dir can be KUBEBUILDER_ASSETS
	fmt.Println(err)
	// Output: <nil>
}
