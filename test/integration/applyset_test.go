// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ashlar-go/ashlar/ownership"
	"github.com/ashlar-go/ashlar/ownership/apply"
)

func background(t *testing.T) context.Context { return context.WithoutCancel(t.Context()) }

func mergePatch(body string) client.Patch { return client.RawPatch(types.MergePatchType, []byte(body)) }

// bundle is an owner whose children are an ApplySet, beside one of kubectl in the same namespace.
type bundle struct {
	*childLab
	a *apply.Applier
}

func newBundle(t *testing.T) bundle {
	t.Helper()
	l := newChildLab(t)
	set, err := ownership.New("bundle", corev1.SchemeGroupVersion.WithKind("ConfigMap"), []ownership.Kind{
		{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Secret"), Carrier: ownership.ApplySet},
		{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("ServiceAccount"), Carrier: ownership.ApplySet},
	}, ownership.WithFinalizer(ownershipFinalizer))
	if err != nil {
		t.Fatal(err)
	}
	a, err := apply.New(l.c, cluster.Client, set)
	if err != nil {
		t.Fatal(err)
	}
	return bundle{l, a}
}

func (b bundle) sync(desired ...client.Object) error {
	b.Helper()
	b.get(b.owner)
	_, err := b.a.Sync(b.Context(), b.owner, desired, ownership.Policy{AllowEmpty: true})
	return err
}

// kubectl applies Secrets of these names as the ApplySet of a ConfigMap.
func (b bundle) kubectl(parent string, secrets ...string) (string, error) {
	b.Helper()
	dir := b.TempDir()
	for _, name := range secrets {
		text := "apiVersion: v1\nkind: Secret\nmetadata:\n  name: " + name + "\nstringData:\n  by: kubectl\n"
		if err := os.WriteFile(filepath.Join(dir, name+".yaml"), []byte(text), 0o600); err != nil {
			b.Fatal(err)
		}
	}
	cmd := exec.CommandContext(b.Context(), cluster.Kubectl(), "--kubeconfig", cluster.Kubeconfig(), "-n", b.ns,
		"apply", "--prune", "--applyset=configmaps/"+parent, "-f", dir)
	cmd.Env = append(os.Environ(), "KUBECTL_APPLYSET=true", "HOME="+b.TempDir())
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	err := cmd.Run()
	return said.String(), err
}

func (b bundle) mustKubectl(parent string, secrets ...string) {
	b.Helper()
	if said, err := b.kubectl(parent, secrets...); err != nil {
		b.Fatalf("kubectl apply: %v\n%s", err, said)
	}
}

func (b bundle) parent(name string) *corev1.ConfigMap {
	b.Helper()
	p := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: b.ns, Name: name}}
	b.get(p)
	return p
}

// names are the Secrets there are.
func (b bundle) names() string {
	b.Helper()
	list := &corev1.SecretList{}
	if err := cluster.Client.List(b.Context(), list, client.InNamespace(b.ns)); err != nil {
		b.Fatal(err)
	}
	var out []string
	for _, s := range list.Items {
		out = append(out, s.Name)
	}
	return strings.Join(out, " ")
}

func (b bundle) ref(name string) ownership.Ref {
	return ownership.Ref{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Secret"), Namespace: b.ns, Name: name}
}

// TestApplySetToolsRefuseEachOther: neither touches the parent or the members of the other, and each says so.
func TestApplySetToolsRefuseEachOther(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	if err := b.sync(b.secret("ours")); err != nil {
		t.Fatal(err)
	}
	b.mustKubectl("theirs", "a")

	// The ids are those that kubectl computes.
	for _, parent := range []string{"theirs", b.owner.Name} {
		want := ownership.ApplySetID(ownership.Ref{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("ConfigMap"), Namespace: b.ns, Name: parent})
		if got := b.parent(parent).Labels["applyset.kubernetes.io/id"]; got != want {
			t.Errorf("the id of %s is %q, want %q", parent, got, want)
		}
	}

	said, err := b.kubectl(b.owner.Name, "b")
	if err == nil || !strings.Contains(said, "bundle.configmap") || !strings.Contains(said, "kubectl") {
		t.Errorf("kubectl should refuse our ApplySet and name both tools, said %v: %s", err, said)
	}
	theirs := b.parent("theirs")
	theirs.Finalizers = []string{ownershipFinalizer}
	if err := cluster.Client.Update(t.Context(), theirs); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cluster.Client.Patch(background(t), theirs, mergePatch(`{"metadata":{"finalizers":null}}`))
	})
	_, err = b.a.Sync(t.Context(), theirs, []client.Object{b.secret("c")}, ownership.Policy{})
	if !errors.Is(err, ownership.ErrForeignTooling) || !strings.Contains(err.Error(), "kubectl/v1.37") {
		t.Errorf("we should refuse the ApplySet of kubectl and name it, said %v", err)
	}
	if got := b.names(); got != "a ours" {
		t.Errorf("Secrets: %s", got)
	}
}

// TestApplySetHandOver: once a member is handed over, the other tool prunes it, and only the other.
func TestApplySetHandOver(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	if err := b.sync(b.secret("ours-1"), b.secret("ours-2")); err != nil {
		t.Fatal(err)
	}
	b.mustKubectl("theirs", "theirs-1", "theirs-2")
	theirs := b.parent("theirs")
	res, err := b.a.HandOver(t.Context(), theirs, b.owner, b.ref("theirs-1"))
	if err != nil || res.Decisions[0].Verb != ownership.Update {
		t.Fatalf("from kubectl to us: %v, %v", res.Decisions, err)
	}
	if res, err = b.a.HandOver(t.Context(), b.owner, theirs, b.ref("ours-1")); err != nil || res.Decisions[0].Verb != ownership.Update {
		t.Fatalf("from us to kubectl: %v, %v", res.Decisions, err)
	}

	// Each applies what it has now; nothing is lost and nothing is pruned.
	b.mustKubectl("theirs", "theirs-2", "ours-1")
	if err := b.sync(b.secret("ours-2"), b.secret("theirs-1")); err != nil {
		t.Fatal(err)
	}
	if got := b.names(); got != "ours-1 ours-2 theirs-1 theirs-2" {
		t.Fatalf("after the hand-over: %s", got)
	}
	b.mustKubectl("theirs", "theirs-2") // prunes what was ours
	if got := b.names(); got != "ours-2 theirs-1 theirs-2" {
		t.Errorf("kubectl pruned wrongly, left: %s", got)
	}
	if err := b.sync(b.secret("ours-2")); err != nil { // prunes what was kubectl's
		t.Fatal(err)
	}
	if got := b.names(); got != "ours-2 theirs-2" {
		t.Errorf("we pruned wrongly, left: %s", got)
	}
	left := b.secret("theirs-1")
	if err := cluster.Client.Get(t.Context(), client.ObjectKeyFromObject(left), left); !apierrors.IsNotFound(err) {
		t.Errorf("got %v", err)
	}
}
