// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"errors"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ashlar-go/ashlar/ownership"
	"github.com/ashlar-go/ashlar/ownership/apply"
	"github.com/ashlar-go/ashlar/reconciletest"
	"github.com/ashlar-go/ashlar/test/controlplane"
)

// TestOwnerReferencesPermissionEnforcement runs on a control plane of its own with the admission plugin that OpenShift
// has on: a reference may block the owner's deletion only for somebody who may update the owner's finalizers.
func TestOwnerReferencesPermissionEnforcement(t *testing.T) {
	t.Parallel()
	cp, err := controlplane.Start(t.Context(), controlplane.WithProgress(os.Stderr),
		controlplane.WithArgs(controlplane.APIServer, "--enable-admission-plugins=OwnerReferencesPermissionEnforcement"),
		controlplane.Without(controlplane.Scheduler, controlplane.Kwok, controlplane.ControllerManager))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cp.Stop(); err != nil {
			t.Error(err)
		}
	})
	admin, err := client.New(cp.Config(), client.Options{Scheme: cluster.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	set, err := ownership.New("children", corev1.SchemeGroupVersion.WithKind("ConfigMap"), []ownership.Kind{
		{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Secret")},
	})
	if err != nil {
		t.Fatal(err)
	}
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "owner"}}
	if err := admin.Create(t.Context(), owner); err != nil {
		t.Fatal(err)
	}
	secret := func(name string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, StringData: map[string]string{"k": "v"}}
	}
	// user is somebody with these rights, seen through a client that counts refusals.
	user := func(t *testing.T, name string, rules ...rbacv1.PolicyRule) (client.Client, *atomic.Int64) {
		t.Helper()
		role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}
		binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: name}}}
		if err := errors.Join(admin.Create(t.Context(), role), admin.Create(t.Context(), binding)); err != nil {
			t.Fatal(err)
		}
		config, err := cp.AddUser(name)
		if err != nil {
			t.Fatal(err)
		}
		refused := &atomic.Int64{}
		laws := reconciletest.NewLawTransport(t, nil)
		config.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return answers{laws.Wrap(next), func(code int) {
				if code == http.StatusForbidden {
					refused.Add(1)
				}
			}}
		})
		c, err := client.New(rest.CopyConfig(config), client.Options{Scheme: cluster.Scheme})
		if err != nil {
			t.Fatal(err)
		}
		return c, refused
	}
	rule := func(resource string, verbs ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{resource}, Verbs: verbs}
	}
	blocks := func(t *testing.T, name string) bool {
		t.Helper()
		s := secret(name)
		if err := admin.Get(t.Context(), client.ObjectKeyFromObject(s), s); err != nil {
			t.Fatal(err)
		}
		if len(s.OwnerReferences) != 1 || s.OwnerReferences[0].UID != owner.UID {
			t.Fatalf("owner references of %s: %+v", name, s.OwnerReferences)
		}
		return *s.OwnerReferences[0].BlockOwnerDeletion
	}

	t.Run("without the right the reference does not block", func(t *testing.T) {
		c, refused := user(t, "weak", rule("secrets", "get", "list", "watch", "create", "patch", "delete"), rule("configmaps", "get"))
		a, err := apply.New(c, c, set)
		if err != nil {
			t.Fatal(err)
		}
		res, err := a.Sync(t.Context(), owner, []client.Object{secret("weak-1")}, ownership.Policy{})
		if err != nil || blocks(t, "weak-1") || refused.Load() != 1 {
			t.Errorf("got %v, %v, %d refusals", res.Decisions, err, refused.Load())
		}
		if res, err = a.Sync(t.Context(), owner, []client.Object{secret("weak-1"), secret("weak-2")}, ownership.Policy{}); err != nil ||
			blocks(t, "weak-2") || refused.Load() != 1 {
			t.Errorf("the second child should not be refused first: %v, %v, %d refusals", res.Decisions, err, refused.Load())
		}
		if plan, err := a.Plan(t.Context(), owner, []client.Object{secret("weak-1"), secret("weak-2")}, ownership.Policy{}); err != nil || !plan.Empty() {
			t.Errorf("not converged: %v, %v", plan, err)
		}
	})
	t.Run("with the right it blocks", func(t *testing.T) {
		c, refused := user(t, "strong", rule("secrets", "get", "list", "watch", "create", "patch", "delete"), rule("configmaps", "get"),
			rule("configmaps/finalizers", "update"))
		a, err := apply.New(c, c, set)
		if err != nil {
			t.Fatal(err)
		}
		res, err := a.Sync(t.Context(), owner, []client.Object{secret("weak-1"), secret("weak-2"), secret("strong")}, ownership.Policy{})
		if err != nil || !blocks(t, "strong") || refused.Load() != 0 {
			t.Errorf("got %v, %v, %d refusals", res.Decisions, err, refused.Load())
		}
	})
	t.Run("changing references needs delete on the child", func(t *testing.T) {
		orphan := secret("orphan")
		if err := admin.Create(t.Context(), orphan); err != nil {
			t.Fatal(err)
		}
		c, _ := user(t, "undeleting", rule("secrets", "get", "list", "watch", "create", "patch"), rule("configmaps", "get"),
			rule("configmaps/finalizers", "update"))
		a, err := apply.New(c, c, set)
		if err != nil {
			t.Fatal(err)
		}
		_, err = a.Sync(t.Context(), owner, []client.Object{secret("orphan")}, ownership.Policy{Adopt: true})
		if !errors.Is(err, apply.ErrForbiddenReference) || !strings.Contains(err.Error(), "needs delete on secrets") {
			t.Errorf("got %v", err)
		}
	})
}

// answers tells the code of every reply.
type answers struct {
	next http.RoundTripper
	told func(code int)
}

func (a answers) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := a.next.RoundTrip(r)
	if err == nil {
		a.told(resp.StatusCode)
	}
	return resp, err
}
