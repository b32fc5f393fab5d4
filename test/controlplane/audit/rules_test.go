// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package audit_test

import (
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/ashlar-go/ashlar/test/controlplane/audit"
)

func rule(groups, resources, verbs string, names ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{
		APIGroups: strings.Split(groups, ","), Resources: strings.Split(resources, ","), Verbs: strings.Split(verbs, ","), ResourceNames: names,
	}
}

func TestUncovered(t *testing.T) {
	t.Parallel()
	get := audit.Request{Verb: "get", Resource: "configmaps", Namespace: "demo", Name: "a", Code: 200}
	status := audit.Request{Verb: "patch", Group: "apps", Resource: "deployments", Subresource: "status", Name: "d", Code: 200}
	for name, test := range map[string]struct {
		reason  string
		r       audit.Request
		rules   []rbacv1.PolicyRule
		covered bool
	}{
		"exact":                {"the plain case", get, []rbacv1.PolicyRule{rule("", "configmaps", "get")}, true},
		"nothing":              {"no rules allow nothing", get, nil, false},
		"other verb":           {"list is not get", get, []rbacv1.PolicyRule{rule("", "configmaps", "list")}, false},
		"other group":          {"core is not apps", get, []rbacv1.PolicyRule{rule("apps", "configmaps", "get")}, false},
		"wildcards":            {"* is everything", get, []rbacv1.PolicyRule{rule("*", "*", "*")}, true},
		"not across rules":     {"one rule must hold it all", get, []rbacv1.PolicyRule{rule("", "pods", "get"), rule("", "configmaps", "list")}, false},
		"its name":             {"the name is listed", get, []rbacv1.PolicyRule{rule("", "configmaps", "get", "a")}, true},
		"other name":           {"another name is listed", get, []rbacv1.PolicyRule{rule("", "configmaps", "get", "b")}, false},
		"subresource":          {"spelled out", status, []rbacv1.PolicyRule{rule("apps", "deployments/status", "patch")}, true},
		"main resource only":   {"a right on the resource is none on its subresources", status, []rbacv1.PolicyRule{rule("apps", "deployments", "patch")}, false},
		"any with subresource": {"*/status is status of everything", status, []rbacv1.PolicyRule{rule("apps", "*/status", "patch")}, true},
		"apply that created": {
			"the server asks for create too when a patch creates",
			audit.Request{Verb: "patch", Resource: "configmaps", Name: "a", Code: 201},
			[]rbacv1.PolicyRule{rule("", "configmaps", "patch")}, false,
		},
		"apply that changed": {
			"and does not when it does not",
			audit.Request{Verb: "patch", Resource: "configmaps", Name: "a", Code: 200},
			[]rbacv1.PolicyRule{rule("", "configmaps", "patch")}, true,
		},
		"create by name": {
			"the authorizer does not see the name of what is created",
			audit.Request{Verb: "create", Resource: "configmaps", Name: "a", Code: 403},
			[]rbacv1.PolicyRule{rule("", "configmaps", "create", "a")}, false,
		},
		"create below a name": {
			"but that of the parent of a subresource",
			audit.Request{Verb: "create", Resource: "serviceaccounts", Subresource: "token", Name: "a", Code: 201},
			[]rbacv1.PolicyRule{rule("", "serviceaccounts/token", "create", "a")}, true,
		},
		"deletecollection by name": {
			"it has none",
			audit.Request{Verb: "deletecollection", Resource: "configmaps", Code: 200},
			[]rbacv1.PolicyRule{rule("", "configmaps", "deletecollection", "a")}, false,
		},
		"discovery":   {"everybody may", audit.Request{Verb: "get", URI: "/apis/apps/v1?timeout=32s", Code: 200}, nil, true},
		"self review": {"everybody may", audit.Request{Verb: "create", Group: "authorization.k8s.io", Resource: "selfsubjectaccessreviews", Code: 201}, nil, true},
		"review":      {"not everybody may ask about others", audit.Request{Verb: "create", Group: "authorization.k8s.io", Resource: "subjectaccessreviews", Code: 201}, nil, false},
		"path":        {"paths outside the API have rules of their own", audit.Request{Verb: "get", URI: "/metrics", Code: 200}, []rbacv1.PolicyRule{{NonResourceURLs: []string{"/metr*"}, Verbs: []string{"get"}}}, true},
		"other path":  {"without a star they are exact", audit.Request{Verb: "get", URI: "/metrics/slis", Code: 200}, []rbacv1.PolicyRule{{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			left := audit.Requests{test.r}.Uncovered(test.rules)
			if covered := len(left) == 0; covered != test.covered {
				t.Errorf("%s: covered is %t", test.reason, covered)
			}
		})
	}
}

func TestRulesCoverAndHaveNothingSpare(t *testing.T) {
	t.Parallel()
	all, err := audit.Open(recorded).Everything(audit.Mark{})
	if err != nil {
		t.Fatal(err)
	}
	rules := all.Rules()
	var got []string
	for _, r := range rules {
		got = append(got, strings.Join(r.APIGroups, ",")+" "+strings.Join(r.Resources, ",")+": "+strings.Join(r.Verbs, " "))
	}
	equal(t, got, []string{
		" configmaps: create delete get list patch watch",
		" namespaces: create get",
		" nodes: list",
		" pods: create get watch",
		" pods/log: get",
	})
	if left := all.Uncovered(rules); len(left) > 0 {
		t.Errorf("not covered: %v", left)
	}
	if spare := all.Unused(rules); len(spare) > 0 {
		t.Errorf("not used: %v", spare)
	}
	spare := all.Unused(append(slices.Clone(rules), rule("", "secrets,pods", "get,delete")))
	got = nil
	for _, r := range spare {
		got = append(got, r.Resources[0]+" "+r.Verbs[0])
	}
	equal(t, got, []string{"secrets get", "secrets delete", "pods delete"})
}
