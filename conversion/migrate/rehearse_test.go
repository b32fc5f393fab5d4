// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package migrate_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ashlar-go/ashlar/conversion"
	"github.com/ashlar-go/ashlar/conversion/migrate"
)

// The kind at two versions: the old one has no color.
type (
	oldWidget struct {
		Spec oldSpec `json:"spec"`
	}
	oldSpec struct {
		Width int64 `json:"width,omitempty"`
	}
	newWidget struct {
		Spec newSpec `json:"spec"`
	}
	newSpec struct {
		Size  int64  `json:"size,omitempty"`
		Color string `json:"color,omitempty"`
	}
)

var errNarrow = errors.New("spec.size: too large for v1alpha1")

func converter(t testing.TB) *conversion.Converter {
	t.Helper()
	b := conversion.New(schema.GroupKind{Group: "example.com", Kind: "Widget"})
	conversion.Pair(b, "v1alpha1", "v1",
		func(_ context.Context, in *oldWidget, out *newWidget) error {
			out.Spec.Size = in.Spec.Width
			return nil
		},
		func(_ context.Context, in *newWidget, out *oldWidget) error {
			if in.Spec.Size > 1000 {
				return errNarrow
			}
			out.Spec.Width = in.Spec.Size
			return nil
		})
	c, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// planted loses a word on the way back, as a converter with a mistake does.
type planted struct{ migrate.Converter }

func (p planted) Trial(ctx context.Context, raw []byte, to string) (conversion.Result, error) {
	r, err := p.Converter.Trial(ctx, raw, to)
	if to == "v1" {
		r.Object = bytes.ReplaceAll(r.Object, []byte("green"), []byte("grey"))
	}
	return r, err
}

func TestRehearse(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false, "v1")
	w.widget("plain", map[string]any{"size": int64(1)})
	w.widget("red", map[string]any{"size": int64(2), "color": "red"})
	w.widget("leaf", map[string]any{"size": int64(2), "color": "green"})
	w.taken()

	r, err := w.migrator(migrate.WithConverter(converter(t)), migrate.WithPageSize(2)).Rehearse(t.Context())
	w.must(err)
	if !r.Empty() || r.Objects != 3 || len(r.Trips) != 1 || r.Trips[0].Kept != 2 || r.Trips[0].Largest.Value == 0 || r.Trips[0].Slowest.Value == 0 {
		t.Errorf("a converter that keeps everything: %v", r)
	}

	w.widget("zoom", map[string]any{"size": int64(2000)})
	w.taken()
	r, err = w.migrator(migrate.WithConverter(planted{converter(t)})).Rehearse(t.Context())
	w.must(err)
	trip := r.Trips[0]
	if r.Empty() || trip.Failed != 1 || trip.Lossy != 1 || len(trip.Faults) != 2 {
		t.Fatalf("a planted loss and a refusal: %v", r)
	}
	if f := trip.Faults[0]; f.Name != "leaf" || f.Path != "spec.color" || f.Err != nil {
		t.Errorf("the loss: %+v", f)
	}
	if f := trip.Faults[1]; f.Name != "zoom" || !errors.Is(f.Err, errNarrow) {
		t.Errorf("the refusal: %+v", f)
	}
	for _, want := range []string{"4 objects at v1", "v1alpha1 and back: 1 failed, 1 lossy, 2 need the annotation", "shop/leaf: spec.color comes back", "too large"} {
		if !strings.Contains(r.String(), want) {
			t.Errorf("the report does not say %q:\n%v", want, r)
		}
	}
	if writes := w.taken(); len(writes) > 0 {
		t.Errorf("a rehearsal wrote %q", writes)
	}
}
