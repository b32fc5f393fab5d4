// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fluxcd/pkg/ssa"

	"github.com/ashlar-go/ashlar/test/bench/canned"
	"github.com/ashlar-go/ashlar/test/bench/load"
	"github.com/ashlar-go/ashlar/test/bench/side"
)

var applyBenches = []side.Bench{{Name: "ssa.applyall", Prepare: applyAll}}

// applyAll applies the children of one owner that are on the server as declared: the server answers the dry run of each
// with the stored object.
func applyAll() (side.Work, error) {
	const prefix, manager = "/api/v1/namespaces/" + load.OwnerNamespace + "/configmaps/", "database-operator"
	stored := map[string][]byte{}
	var want []*unstructured.Unstructured
	for _, c := range load.ChildrenOf(load.Children) {
		stored[c.Name] = c.Stored(manager)
		u := &unstructured.Unstructured{}
		if err := json.Unmarshal(stored[c.Name], &u.Object); err != nil {
			return side.Work{}, err
		}
		for _, field := range []string{"uid", "resourceVersion", "creationTimestamp", "managedFields"} {
			unstructured.RemoveNestedField(u.Object, "metadata", field)
		}
		want = append(want, u)
	}
	s := &canned.Server{Answer: func(r *http.Request, _ []byte) (int, []byte) {
		name, ok := strings.CutPrefix(r.URL.Path, prefix)
		if r.Method == http.MethodPatch && r.URL.Query().Get("dryRun") == "" || !ok {
			return 0, nil
		}
		return http.StatusOK, stored[name]
	}}
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return side.Work{}, err
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	c, err := client.New(&rest.Config{Host: "https://server", QPS: -1}, client.Options{
		HTTPClient: &http.Client{Transport: s}, Scheme: scheme, Mapper: mapper,
	})
	if err != nil {
		return side.Work{}, err
	}
	m := ssa.NewResourceManager(c, nil, ssa.Owner{Field: manager, Group: "example.com"})
	ctx := context.Background()
	return side.Work{Counts: s.Counts, Do: func() error {
		set, err := m.ApplyAll(ctx, want, ssa.DefaultApplyOptions())
		if err != nil {
			return err
		}
		if len(set.Entries) != load.Children {
			return fmt.Errorf("%d entries, want %d", len(set.Entries), load.Children)
		}
		for _, e := range set.Entries {
			if e.Action != ssa.UnchangedAction {
				return fmt.Errorf("%s of %s, want unchanged", e.Action, e.Subject)
			}
		}
		return nil
	}}, nil
}
