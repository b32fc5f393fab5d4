// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"fmt"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/ashlar-go/ashlar/test/controlplane/internal/assets"
)

// masters is the group that may do everything, whatever RBAC says.
const masters = "system:masters"

// controllerManagerUnit runs the default set of controllers, each under its own service account, as in production.
func (cp *ControlPlane) controllerManagerUnit() (*unit, error) {
	kubeconfig, err := cp.componentKubeconfig(ControllerManager, "system:kube-controller-manager")
	if err != nil {
		return nil, err
	}
	u := cp.program(ControllerManager)
	u.args = func(int) []string {
		return append([]string{
			"--kubeconfig=" + kubeconfig,
			"--leader-elect=false", "--secure-port=0",
			"--use-service-account-credentials=true",
			"--service-account-private-key-file=" + cp.keys.tokenKey, "--root-ca-file=" + cp.keys.ca,
			"--flex-volume-plugin-dir=" + filepath.Join(cp.dir.data, "flexvolume"), // its default is below /usr
			// The rate at which controllers write is no subject of these tests, nor is a node lost on a busy machine.
			"--kube-api-qps=500", "--kube-api-burst=1000", "--node-monitor-grace-period=10m",
		}, cp.opts.args[ControllerManager]...)
	}
	var canary string
	u.ready = func(ctx context.Context, _ int) (err error) {
		canary, err = cp.collects(ctx, canary)
		return err
	}
	return u, nil
}

// collects returns nil when a namespace has its default service account, and when the garbage collector has removed a
// ConfigMap whose owner does not exist: the canary, which is made when its name is "".
func (cp *ControlPlane) collects(ctx context.Context, canary string) (string, error) {
	if _, err := cp.client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{}); err != nil {
		return canary, err
	}
	maps := cp.client.CoreV1().ConfigMaps(metav1.NamespaceDefault)
	if canary == "" {
		cm, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			GenerateName:    "garbage-canary-",
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "nobody", UID: uuid.NewUUID()}},
		}}, metav1.CreateOptions{})
		if err != nil {
			return "", err
		}
		canary = cm.Name
	}
	if _, err := maps.Get(ctx, canary, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		if err == nil {
			err = fmt.Errorf("the garbage collector has not yet removed ConfigMap default/%s", canary)
		}
		return canary, err
	}
	return "", nil // a later start needs a canary of its own
}

func (cp *ControlPlane) schedulerUnit() (*unit, error) {
	kubeconfig, err := cp.componentKubeconfig(Scheduler, "system:kube-scheduler")
	if err != nil {
		return nil, err
	}
	u := cp.program(Scheduler)
	u.port = true
	u.args = func(port int) []string {
		return append([]string{
			"--kubeconfig=" + kubeconfig, "--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
			"--leader-elect=false",
			"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port),
			"--tls-cert-file=" + cp.keys.cert, "--tls-private-key-file=" + cp.keys.key,
			"--kube-api-qps=500", "--kube-api-burst=1000",
		}, cp.opts.args[Scheduler]...)
	}
	u.ready = func(ctx context.Context, port int) error {
		_, err := get(ctx, cp.probe, fmt.Sprintf("https://127.0.0.1:%d/readyz", port))
		return err
	}
	return u, nil
}

func (cp *ControlPlane) kwokUnit() (*unit, error) {
	kubeconfig, err := cp.componentKubeconfig(Kwok, "kwok", masters)
	if err != nil {
		return nil, err
	}
	u := cp.program(Kwok)
	u.args = func(int) []string {
		return append([]string{
			"--kubeconfig=" + kubeconfig,
			"--manage-all-nodes=true",
			"--config=" + cp.assets.Path(assets.Stages),
		}, cp.opts.args[Kwok]...)
	}
	var canary string
	u.ready = func(ctx context.Context, _ int) (err error) {
		canary, err = cp.simulates(ctx, canary)
		return err
	}
	return u, nil
}

// simulates returns nil when kwok has made a new node ready: the canary, which is made when its name is "" and takes no
// pods. Nodes that were ready before a restart would prove nothing.
func (cp *ControlPlane) simulates(ctx context.Context, canary string) (string, error) {
	nodes := cp.client.CoreV1().Nodes()
	if canary == "" {
		node, err := nodes.Create(ctx, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "kwok-canary-"},
			Spec:       corev1.NodeSpec{Unschedulable: true},
		}, metav1.CreateOptions{})
		if err != nil {
			return "", err
		}
		canary = node.Name
	}
	node, err := nodes.Get(ctx, canary, metav1.GetOptions{})
	if err != nil {
		return canary, err
	}
	if !nodeReady(node) {
		return canary, fmt.Errorf("kwok has not yet made node %s ready", canary)
	}
	if err := nodes.Delete(ctx, canary, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return canary, err
	}
	return "", nil
}

func nodeReady(node *corev1.Node) bool {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// furnish makes what kwok plays with: the nodes, and the storage class whose claims its stages provision.
func (cp *ControlPlane) furnish(ctx context.Context) error {
	_, err := cp.client.StorageV1().StorageClasses().Create(ctx, &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{
			Name:        "kwok-volume",
			Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"},
		},
		Provisioner: "kwok.x-k8s.io/volume",
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create StorageClass kwok-volume: %w", err)
	}
	for i := range cp.opts.nodes {
		name := fmt.Sprintf("node-%d", i)
		_, err := cp.client.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{corev1.LabelHostname: name, corev1.LabelOSStable: "linux"},
		}}, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("create Node %s: %w", name, err)
		}
	}
	return nil
}

// furnished returns nil when every node is ready and, as far as the controller manager decides it, takes pods: a new node
// is tainted until that has seen it ready.
func (cp *ControlPlane) furnished(ctx context.Context) error {
	for i := range cp.opts.nodes {
		name := fmt.Sprintf("node-%d", i)
		node, err := cp.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if !nodeReady(node) {
			return fmt.Errorf("node %s is not ready", name)
		}
		if len(node.Spec.Taints) > 0 && !cp.opts.without[ControllerManager] {
			return fmt.Errorf("node %s still has the taint %s", name, node.Spec.Taints[0].Key)
		}
	}
	return nil
}
