// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ownershiptest_test

import (
	"fmt"

	"github.com/ashlar-go/ashlar/ownership"
	"github.com/ashlar-go/ashlar/ownership/ownershiptest"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func ExampleWorld() {
	set, _ := ownership.New("children", corev1.SchemeGroupVersion.WithKind("Service"), []ownership.Kind{
		{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("ConfigMap")}})
	owner := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "orders", UID: "1"}}
	config := &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "x"}}

	world := &ownershiptest.World{}
	for range 2 {
		plan, _ := set.Plan(owner, []ownership.Object{config}, world.Live(), ownership.Policy{})
		fmt.Print(plan)
		if err := world.Carry(plan); err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// Create ConfigMap team-a/x: does not exist
	// Keep ConfigMap team-a/x: as declared
}
