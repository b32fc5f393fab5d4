// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane_test

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/ashlar-go/ashlar/test/controlplane"
	"github.com/ashlar-go/ashlar/test/controlplane/audit"
)

// grant gives a subject rules in a namespace.
func grant(t *testing.T, ns, name string, subject rbacv1.Subject, rules ...rbacv1.PolicyRule) {
	t.Helper()
	_, err := client.RbacV1().Roles(ns).Create(t.Context(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.RbacV1().RoleBindings(ns).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Subjects:   []rbacv1.Subject{subject},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

func user(name string) rbacv1.Subject {
	return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}
}

func configMapRule(verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: verbs}
}

func addUser(t *testing.T, handle *controlplane.ControlPlane, name string, groups ...string) kubernetes.Interface {
	t.Helper()
	cfg, err := handle.AddUser(name, groups...)
	if err != nil {
		t.Fatal(err)
	}
	return kubernetes.NewForConfigOrDie(cfg)
}

func whoAmI(t *testing.T, cfg *rest.Config) authenticationv1.UserInfo {
	t.Helper()
	review, err := kubernetes.NewForConfigOrDie(cfg).AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return review.Status.UserInfo
}

func TestUsers(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	account, err := cp.ServiceAccount(t.Context(), ns, "operator")
	if err != nil {
		t.Fatal(err)
	}
	again, err := cp.ServiceAccount(t.Context(), ns, "operator")
	if err != nil {
		t.Fatalf("an account that is there already: %v", err)
	}
	alice, err := cp.AddUser("alice", "admins", "others")
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		reason string
		cfg    *rest.Config
		want   string
		groups string
	}{
		"admin":   {"members of system:masters may do everything", cp.Config(), "admin", "system:masters,system:authenticated"},
		"alice":   {"the certificate has name and groups", alice, "alice", "admins,others,system:authenticated"},
		"account": {"the token is the account's", account, "system:serviceaccount:" + ns + ":operator", "system:serviceaccounts,system:serviceaccounts:" + ns + ",system:authenticated"},
		"again":   {"so is the second", again, "system:serviceaccount:" + ns + ":operator", "system:serviceaccounts,system:serviceaccounts:" + ns + ",system:authenticated"},
	} {
		got := whoAmI(t, test.cfg)
		if got.Username != test.want || strings.Join(got.Groups, ",") != test.groups {
			t.Errorf("%s: %s: got %s of %v", name, test.reason, got.Username, got.Groups)
		}
		if test.cfg.QPS >= 0 {
			t.Errorf("%s: the client is limited to %v requests a second", name, test.cfg.QPS)
		}
	}
	if _, err := cp.AddUser(""); err == nil {
		t.Error("a user without a name is no error")
	}
	if _, err := cp.ServiceAccount(t.Context(), "nowhere", "operator"); !apierrors.IsNotFound(err) || !strings.Contains(err.Error(), "ServiceAccount nowhere/operator") {
		t.Errorf("an account in a namespace that does not exist: %v", err)
	}

	// Nothing is allowed before it is granted, and what is granted is enough: through a kubeconfig and kubectl.
	path, err := cp.WriteKubeconfig(account)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{path, cp.Kubeconfig()} {
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: mode %v, %v", file, info.Mode(), err)
		}
	}
	kubectl := func() (string, error) {
		out, err := exec.CommandContext(t.Context(), cp.Kubectl(), "--kubeconfig", path, "-n", ns, "get", "configmaps").CombinedOutput()
		return string(out), err
	}
	if out, err := kubectl(); err == nil || !strings.Contains(out, "Forbidden") {
		t.Errorf("before the grant: %v\n%s", err, out)
	}
	grant(t, ns, "operator", rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: ns, Name: "operator"}, configMapRule("list"))
	eventuallyAllowed(t, func() error {
		_, err := kubectl()
		return err
	})
}

// eventuallyAllowed: the authorizer learns a new role from its own cache, a moment later.
func eventuallyAllowed(t *testing.T, try func() error) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if err = try(); err == nil {
			return
		}
	}
	t.Fatalf("still not allowed: %v", err)
}

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// TestExactCount does so many requests, and no more, and wants to see just these at once.
func TestExactCount(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	grant(t, ns, "counter", user("counter"), configMapRule("create", "get", "watch", "delete"))
	maps := addUser(t, cp, "counter").CoreV1().ConfigMaps(ns)
	eventuallyAllowed(t, func() error {
		_, err := maps.Create(t.Context(), configMap("first"), metav1.CreateOptions{})
		return err
	})

	log := cp.Audit()
	for round := range 20 { // a count that came late would show now and then only
		mark := log.Mark()
		for _, name := range []string{"a", "b", "c"} {
			if _, err := maps.Create(t.Context(), configMap(name), metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		reqs, err := log.Since(mark, audit.User("counter"), audit.Namespace(ns))
		if err != nil {
			t.Fatal(err)
		}
		if len(reqs) != 3 || len(reqs.Writes()) != 3 {
			t.Fatalf("round %d: three creates are counted as\n%s", round, reqs.Table())
		}
		for i, name := range []string{"a", "b", "c"} {
			r := reqs[i]
			if r.Verb != "create" || r.Resource != "configmaps" || r.Version != "v1" || r.Name != name || r.Code != 201 {
				t.Errorf("round %d: request %d is %s", round, i, r)
			}
			if err := maps.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}

	mark := log.Mark()
	if _, err := maps.Get(t.Context(), "nothing", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Error(err)
	}
	if _, err := maps.List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Error(err)
	}
	w, err := maps.Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w.Stop()
	if err := log.Settle(t.Context(), 200*time.Millisecond, audit.User("counter")); err != nil {
		t.Error(err)
	}
	reqs, err := log.Since(mark, audit.User("counter"))
	if err != nil {
		t.Fatal(err)
	}
	const want = `VERB   RESOURCE    CODE   COUNT
get    configmaps  404        1
list   configmaps  403        1
watch  configmaps  200        1
                   total      3
`
	if got := reqs.Table(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if len(reqs.Writes()) != 0 {
		t.Errorf("of these are writes: %v", reqs.Writes())
	}
}

// TestApplyThatCreatesNeedsCreate holds package audit to what the server really asks for.
func TestApplyThatCreatesNeedsCreate(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	patchOnly := configMapRule("patch")
	grant(t, ns, "patcher", user("patcher"), patchOnly)
	maps := addUser(t, cp, "patcher").CoreV1().ConfigMaps(ns)
	apply := func() error {
		_, err := maps.Apply(t.Context(), corev1ac.ConfigMap("a", ns).WithData(map[string]string{"k": "v"}), metav1.ApplyOptions{FieldManager: "test", Force: true})
		return err
	}
	if _, err := client.CoreV1().ConfigMaps(ns).Create(t.Context(), configMap("a"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventuallyAllowed(t, apply)
	if err := client.CoreV1().ConfigMaps(ns).Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := apply(); !apierrors.IsForbidden(err) {
		t.Fatalf("an apply that would create, with patch alone: %v", err)
	}
	grant(t, ns, "creator", user("patcher"), configMapRule("create"))
	eventuallyAllowed(t, apply)
	reqs, err := cp.Audit().Since(audit.Mark{}, audit.User("patcher"), audit.Code(201))
	if err != nil {
		t.Fatal(err)
	}
	if len(reqs) != 1 || len(reqs.Uncovered([]rbacv1.PolicyRule{patchOnly})) != 1 {
		t.Errorf("patch alone is said to cover %v", reqs)
	}
	if left := reqs.Uncovered([]rbacv1.PolicyRule{patchOnly, configMapRule("create")}); len(left) != 0 {
		t.Errorf("patch and create are said not to cover %v", left)
	}
}

func TestExisting(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	other, err := controlplane.Existing(cp.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Stop()
	if got := whoAmI(t, other.Config()).Username; got != "admin" {
		t.Errorf("it is %s", got)
	}
	bob, err := other.AddUser("bob", "admins")
	if err != nil {
		t.Fatal(err)
	}
	if got := whoAmI(t, bob); got.Username != "bob" || got.Groups[0] != "admins" {
		t.Errorf("the added user is %s of %v", got.Username, got.Groups)
	}
	account, err := other.ServiceAccount(t.Context(), ns, "operator")
	if err != nil {
		t.Fatal(err)
	}
	if got := whoAmI(t, account).Username; got != "system:serviceaccount:"+ns+":operator" {
		t.Errorf("the service account is %s", got)
	}
	path, err := other.WriteKubeconfig(bob)
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), cp.Kubectl(), "--kubeconfig", path, "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}").CombinedOutput()
	if err != nil || string(out) != "bob" {
		t.Errorf("kubectl as the added user: %s, %v", out, err)
	}
	if _, err := other.Audit().Since(other.Audit().Mark()); !errors.Is(err, audit.ErrNotCounted) {
		t.Errorf("counting: got %v", err)
	}
	if err := other.Halt(controlplane.APIServer); !errors.Is(err, controlplane.ErrNotOurs) {
		t.Errorf("halting: got %v", err)
	}
	if _, err := other.EtcdMetrics(t.Context()); !errors.Is(err, controlplane.ErrNotOurs) {
		t.Errorf("etcd: got %v", err)
	}
	if other.Version() != "" || other.Pid(controlplane.Etcd) != 0 || other.Log(controlplane.Etcd) != "" {
		t.Error("it claims to know what it did not start")
	}
	if err := other.Stop(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the kubeconfig after Stop: %v", err)
	}
	if _, err := client.CoreV1().Namespaces().Get(t.Context(), ns, metav1.GetOptions{}); err != nil {
		t.Errorf("the control plane after Stop: %v", err)
	}
	for _, path := range []string{"", "/nowhere/kubeconfig"} {
		if _, err := controlplane.Existing(path); err == nil {
			t.Errorf("Existing(%q) is no error", path)
		}
	}
}
