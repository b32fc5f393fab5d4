// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package audit_test

import (
	"fmt"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/ashlar-go/ashlar/test/controlplane/audit"
)

func ExampleLog_Since() {
	log := audit.Open("testdata/kubectl.log") // cp.Audit()
	mark := audit.Mark{}                      // log.Mark()
	reqs, err := log.Since(mark, audit.Object("", "configmaps", "demo", "b"))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, r := range reqs {
		fmt.Println(r)
	}
	fmt.Println(len(reqs.Writes()), "of them are writes")
	// Output:
	// patch configmaps demo/b 201 by admin
	// patch configmaps demo/b 200 by admin
	// delete configmaps demo/b 200 by admin
	// get configmaps demo/b 404 by admin
	// 2 of them are writes
}

func ExampleLog_Everything() {
	reqs, err := audit.Open("testdata/kubectl.log").Everything(audit.Mark{}, audit.Noise)
	fmt.Println(len(reqs), "requests are noise", err)
	// Output: 8 requests are noise <nil>
}

func ExampleRequests_Table() {
	reqs, err := audit.Open("testdata/kubectl.log").Since(audit.Mark{}, audit.Not(audit.Resource("", "configmaps")))
	if err != nil {
		fmt.Println(err)
		return
	}
	for line := range strings.Lines(reqs.Table()) {
		fmt.Println(strings.TrimRight(line, "\n"))
	}
	// Output:
	// VERB    RESOURCE    CODE   COUNT
	// get     pods        200        2
	// create  namespaces  201        1
	// get     namespaces  200        1
	// list    nodes       403        1
	// create  pods        201        1
	// watch   pods        200        1
	// get     pods/log    500        1
	//                     total      8
}

func ExampleRequests_Rules() {
	reqs, err := audit.Open("testdata/kubectl.log").Everything(audit.Mark{}, audit.Resource("", "configmaps"))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, rule := range reqs.Rules() {
		fmt.Println(rule.Resources, rule.Verbs)
	}
	// Output: [configmaps] [create delete get list patch watch]
}

func ExampleRequests_Uncovered() {
	role := []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list", "watch", "update"}}}
	reqs := audit.Requests{
		{Verb: "get", Resource: "configmaps", Name: "a", Code: 200, User: "op"},
		{Verb: "patch", Resource: "configmaps", Name: "a", Code: 403, User: "op"},
	}
	fmt.Println("missing:", reqs.Uncovered(role))
	for _, rule := range reqs.Unused(role) {
		fmt.Println("spare:", rule.Resources, rule.Verbs)
	}
	// Output:
	// missing: [patch configmaps a 403 by op]
	// spare: [configmaps] [list]
	// spare: [configmaps] [watch]
	// spare: [configmaps] [update]
}
