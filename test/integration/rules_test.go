// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/ashlar-go/ashlar/test/controlplane/audit"
	"github.com/ashlar-go/ashlar/test/integration/lab"
)

// unusedRules are the rules that a run of the test suite may leave unused, each with
// the reason why the operator has it all the same.
var unusedRules = map[string]string{
	"databases.db.example.com/finalizers update":           "admission plugin OwnerReferencesPermissionEnforcement asks for it when blockOwnerDeletion is set, and that leaves no request",
	"databases.db.example.com list":                        lists,
	"configmaps list":                                      lists,
	"services list":                                        lists,
	"statefulsets.apps list":                               lists,
	"jobs.batch list":                                      lists,
	"persistentvolumeclaims list":                          lists,
	"persistentvolumeclaims get":                           "a delete that is refused because the volume changed meanwhile is decided anew on a live read",
	"events.events.k8s.io patch":                           "an event that is said again becomes a series by a patch",
	"customresourcedefinitions.apiextensions.k8s.io get":   versions,
	"customresourcedefinitions.apiextensions.k8s.io patch": versions,
	"secrets create":                                       versions,
	"secrets get":                                          versions,
	"secrets update":                                       "the certificate authority of the webhook is renewed a year before it ends",
	"events patch":                                         "an event of the leader election that is said again is counted by a patch",
}

const versions = "TestVersions runs the webhook in a control plane of its own"

const lists = "the cache fills by a watch where the server streams lists, and by a list where it does not"

// operatorRules are the rules of the operator's service account, as installed.
func operatorRules(ctx context.Context) (rules []rbacv1.PolicyRule, err error) {
	ours := func(subjects []rbacv1.Subject) bool {
		return slices.ContainsFunc(subjects, func(s rbacv1.Subject) bool {
			return s.Kind == "ServiceAccount" && s.Namespace == lab.SystemNamespace && s.Name == lab.ServiceAccount
		})
	}
	bindings, local := &rbacv1.ClusterRoleBindingList{}, &rbacv1.RoleBindingList{}
	clusterRoles, roles := &rbacv1.ClusterRoleList{}, &rbacv1.RoleList{}
	if err := errors.Join(cluster.Client.List(ctx, bindings), cluster.Client.List(ctx, local),
		cluster.Client.List(ctx, clusterRoles), cluster.Client.List(ctx, roles)); err != nil {
		return nil, err
	}
	for _, b := range bindings.Items {
		for _, role := range clusterRoles.Items {
			if ours(b.Subjects) && b.RoleRef.Name == role.Name {
				rules = append(rules, role.Rules...)
			}
		}
	}
	for _, b := range local.Items {
		for _, role := range roles.Items {
			if ours(b.Subjects) && b.RoleRef.Kind == "Role" && b.RoleRef.Name == role.Name && b.Namespace == role.Namespace {
				rules = append(rules, role.Rules...)
			}
		}
	}
	if len(rules) == 0 {
		return nil, errors.New("the operator has no rule")
	}
	return rules, nil
}

// TestRulesHaveNoWildcard reads what is installed.
func TestRulesHaveNoWildcard(t *testing.T) {
	t.Parallel()
	rules, err := operatorRules(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range rules {
		if all := slices.Concat(rule.APIGroups, rule.Resources, rule.Verbs, rule.NonResourceURLs); slices.Contains(all, "*") {
			t.Errorf("a wildcard in %v", rule)
		}
	}
}

// judgeRules compares the rules with the requests of the whole run: nothing that was
// asked is missing, and nothing that is there was never asked without a reason.
func judgeRules(out io.Writer, everything bool) error {
	rules, err := operatorRules(context.Background())
	if err != nil {
		return err
	}
	requests, err := cluster.Audit().Everything(audit.Mark{}, audit.User(lab.User))
	if err != nil {
		return err
	}
	var faults []error
	for _, r := range requests.Uncovered(rules) {
		faults = append(faults, fmt.Errorf("asked without a rule: %s", r))
	}
	for _, r := range requests.Filter(audit.Code(403), func(r audit.Request) bool { return r.Verb != "create" && r.Verb != "patch" }) {
		faults = append(faults, fmt.Errorf("refused: %s", r))
	}
	if !everything {
		return errors.Join(faults...)
	}
	fmt.Fprintf(out, "the operator's %d requests, by what they asked:\n%s", len(requests), requests.Table())
	for _, rule := range requests.Unused(rules) {
		name := spell(rule)
		reason, ok := unusedRules[name]
		if !ok {
			faults = append(faults, fmt.Errorf("never used and no reason given: %s", name))
			continue
		}
		fmt.Fprintf(out, "never used: %s: %s\n", name, reason)
	}
	granted := map[string]bool{}
	for _, rule := range (audit.Requests{}).Unused(rules) { // all of them, one by one
		granted[spell(rule)] = true
	}
	for name := range unusedRules {
		if !granted[name] {
			faults = append(faults, fmt.Errorf("has a reason for being unused and is not granted: %s", name))
		}
	}
	return errors.Join(faults...)
}

// spell names a rule of one resource and one verb as kubectl would.
func spell(rule rbacv1.PolicyRule) string {
	resource, subresource, found := strings.Cut(rule.Resources[0], "/")
	if group := rule.APIGroups[0]; group != "" {
		resource += "." + group
	}
	if found {
		resource += "/" + subresource
	}
	return resource + " " + rule.Verbs[0]
}
