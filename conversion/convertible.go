// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conversion

import (
	"context"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/runtime"
)

// FromConvertible makes pairs of types that have the methods ConvertTo and ConvertFrom of controller-runtime's package
// conversion: H is its Hub and S its Convertible.
//
//	conversion.FromConvertible[ctrlconv.Hub, ctrlconv.Convertible](b, &v1.Database{}, &v1alpha1.Database{}, &v1beta1.Database{})
//
// A context does not reach the methods. What they keep in annotations of their own they go on keeping.
func FromConvertible[H any, S interface {
	runtime.Object
	ConvertTo(H) error
	ConvertFrom(H) error
}](b *Builder, hub H, spokes ...S) {
	for _, spoke := range spokes {
		b.spoke(hub, spoke, func(_ context.Context, in, out any) error {
			return in.(S).ConvertTo(out.(H))
		}, func(_ context.Context, in, out any) error {
			return out.(S).ConvertFrom(in.(H))
		})
	}
}

// SpokeConverter has the methods of controller-runtime's conversion.SpokeConverter.
type SpokeConverter[H runtime.Object] interface {
	GetSpoke() runtime.Object
	ConvertHubToSpoke(ctx context.Context, hub H, spoke runtime.Object) error
	ConvertSpokeToHub(ctx context.Context, spoke runtime.Object, hub H) error
}

// FromSpokes makes pairs of what controller-runtime's conversion.NewSpokeConverter returns.
func FromSpokes[H runtime.Object](b *Builder, hub H, spokes ...SpokeConverter[H]) {
	for _, s := range spokes {
		b.spoke(hub, s.GetSpoke(), func(ctx context.Context, in, out any) error {
			return s.ConvertSpokeToHub(ctx, in.(runtime.Object), out.(H))
		}, func(ctx context.Context, in, out any) error {
			return s.ConvertHubToSpoke(ctx, in.(H), out.(runtime.Object))
		})
	}
}

func (b *Builder) spoke(hub, spoke any, up, down func(context.Context, any, any) error) {
	from, err := b.versionOf(spoke)
	if err != nil {
		b.errs = append(b.errs, fmt.Errorf("from convertible: %w", err))
		return
	}
	to, err := b.versionOf(hub)
	if err != nil {
		b.errs = append(b.errs, fmt.Errorf("from convertible: the hub: %w", err))
		return
	}
	b.pair(from, to, maker(spoke), maker(hub), up, down)
}

// maker makes empty objects of the type of a prototype.
func maker(prototype any) func() any {
	t := reflect.TypeOf(prototype).Elem()
	return func() any { return reflect.New(t).Interface() }
}
