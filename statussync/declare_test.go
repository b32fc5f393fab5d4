// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package statussync_test

import (
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ashlar-go/ashlar/statussync"
)

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	s, _ := newServer(t)
	for name, c := range map[string]struct {
		reason  string
		c       client.Client
		live    client.Reader
		manager string
		opts    []statussync.Option
		want    string
	}{
		"no client":         {"nothing could be written", nil, s, "m", nil, "client is nil"},
		"no live reader":    {"a conflict could not be judged", s, nil, "m", nil, "live reader is nil"},
		"no manager":        {"the server requires one", s, s, "", nil, "is empty"},
		"long manager":      {"the server takes 128 bytes", s, s, strings.Repeat("x", 127), nil, "longer than"},
		"control character": {"the server takes printable ones", s, s, "a\nb", nil, "cannot be printed"},
		"nil clock":         {"a bad option is an error of New", s, s, "m", []statussync.Option{statussync.WithClock(nil)}, "clock is nil"},
		"nil observer":      {"a bad option is an error of New", s, s, "m", []statussync.Option{statussync.WithObserver(nil)}, "observer is nil"},
		"nil reader":        {"a bad option is an error of New", s, s, "m", []statussync.Option{statussync.WithOpenAPI(nil)}, "OpenAPI reader is nil"},
		"negative interval": {"a bad option is an error of New", s, s, "m", []statussync.Option{statussync.WithMessageInterval(-time.Second)}, "negative"},
		"nil option":        {"a bad option is an error of New", s, s, "m", []statussync.Option{nil}, "option is nil"},
	} {
		_, err := statussync.New(c.c, c.live, c.manager, c.opts...)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s (%s): error = %v, want one with %q", name, c.reason, err, c.want)
		}
	}
}

type (
	vanishingInt struct {
		N int32 `json:"n,omitempty"`
	}
	vanishingBool struct {
		B bool `json:"b,omitzero"`
	}
	nested struct {
		Inner *struct {
			S string `json:"s,omitempty"`
		} `json:"network,omitempty"`
	}
	embedded struct{ vanishingInt }
	withList struct {
		Shards []Shard `json:"shards,omitempty"`
	}
	withCond struct {
		C []metav1.Condition `json:"conditions,omitempty"`
	}
	withObserved struct {
		G int64 `json:"observedGeneration"`
	}
	selfMade struct{ S string }
	noField  struct {
		X string `json:"missing"`
	}
	pathField struct {
		Network *Network `json:"network,omitempty"`
	}
	endpointOnly struct {
		E string `json:"endpoint"`
	}
)

func (selfMade) MarshalJSON() ([]byte, error) { return []byte("{}"), nil }

func declare[P any](kind client.Object, owns statussync.Owns) func(*statussync.Group, string) error {
	return func(g *statussync.Group, name string) error {
		_, err := statussync.For[P](g, name, kind, owns)
		return err
	}
}

func TestForRefuses(t *testing.T) {
	t.Parallel()
	s, _ := newServer(t)
	readyOnly := statussync.Owns{Conditions: []string{"Ready"}}
	bare := &unstructured.Unstructured{Object: map[string]any{}}
	many := make([]string, 257)
	for i := range many {
		many[i] = "T" + strings.Repeat("x", i)
	}
	for name, c := range map[string]struct {
		reason string
		make   func(*statussync.Group, string) error
		writer string
		want   string
	}{
		"omitempty number":      {"0 would be removed, not written", declare[vanishingInt](&Database{}, readyOnly), "w", `"n" of statussync_test.vanishingInt is of kind int32 with omitempty`},
		"omitzero bool":         {"false would be removed", declare[vanishingBool](&Database{}, readyOnly), "w", `"b"`},
		"omitempty inside":      {"the leaf is owned like any other", declare[nested](&Database{}, readyOnly), "w", `"network.s"`},
		"omitempty embedded":    {"it is inlined", declare[embedded](&Database{}, readyOnly), "w", `"n"`},
		"conditions in P":       {"they belong in Desired.Conditions", declare[withCond](&Database{}, readyOnly), "w", `"conditions"`},
		"generation in P":       {"it belongs in Desired.Generation", declare[withObserved](&Database{}, readyOnly), "w", `"observedGeneration"`},
		"P marshals itself":     {"its fields cannot be known", declare[selfMade](&Database{}, readyOnly), "w", "marshals itself"},
		"P is no struct":        {"it has no fields", declare[string](&Database{}, readyOnly), "w", "no struct"},
		"field not in the kind": {"the server would drop it", declare[noField](&Database{}, readyOnly), "w", `"missing" is no field`},
		"field holds the list":  {"the list would be written twice", declare[pathField](&Database{}, statussync.Owns{Conditions: []string{"A"}, Path: []string{"status", "network", "conditions"}}), "w", `"network" holds the condition list`},
		"bad type":              {"the server would refuse it", declare[struct{}](&Database{}, statussync.Owns{Conditions: []string{"not ready"}}), "w", `"not ready"`},
		"type twice":            {"which of them is meant", declare[struct{}](&Database{}, statussync.Owns{Conditions: []string{"A"}, Retired: []string{"A"}}), "w", "declared twice"},
		"too many types":        {"the planner's bit set is bounded", declare[struct{}](&Database{}, statussync.Owns{Conditions: many}), "w", "more than 256"},
		"nothing owned":         {"it would never write", declare[struct{}](&Database{}, statussync.Owns{}), "w", "nothing is owned"},
		"path outside status":   {"only the status is written", declare[struct{}](&Database{}, statussync.Owns{Conditions: []string{"A"}, Path: []string{"spec", "conditions"}}), "w", "below status"},
		"path not there":        {"the type has no such list", declare[struct{}](&Database{}, statussync.Owns{Conditions: []string{"A"}, Path: []string{"status", "x"}}), "w", "no field status.x"},
		"path is no list":       {"the field is something else", declare[struct{}](&Database{}, statussync.Owns{Conditions: []string{"A"}, Path: []string{"status", "shards"}}), "w", "not a list of metav1.Condition"},
		"other condition type":  {"apps/v1 has its own", declare[struct{}](&appsv1.Deployment{}, readyOnly), "w", "Deployment"},
		"unknown kind":          {"the scheme does not have it", declare[struct{}](&metav1.PartialObjectMetadata{}, readyOnly), "w", "kind"},
		"no kind set":           {"an unstructured one must say what it is", declare[struct{}](bare, readyOnly), "w", "kind"},
		"nil kind":              {"nothing to look at", declare[struct{}](nil, readyOnly), "w", "no pointer"},
		"no name":               {"it is the field manager", declare[struct{}](&Database{}, readyOnly), "", "is empty"},
		"slash in name":         {"it separates group and writer", declare[struct{}](&Database{}, readyOnly), "a/b", "holds a /"},
		"long field manager":    {"the server takes 128 bytes", declare[struct{}](&Database{}, readyOnly), strings.Repeat("x", 120), "longer than"},
	} {
		err := c.make(newGroup(t, s), c.writer)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s (%s): error = %v, want one with %q", name, c.reason, err, c.want)
		}
	}
	if _, err := statussync.For[struct{}](nil, "w", &Database{}, readyOnly); err == nil {
		t.Error("a nil group is accepted")
	}
	if err := declare[withList](&Database{}, readyOnly)(newGroup(t, s), "w"); err != nil {
		t.Errorf("items of lists may have omitempty scalars: %v", err)
	}
}

// Two writers under one field manager delete each other's conditions; two owners of one field take it from each other.
func TestForRefusesSharing(t *testing.T) {
	t.Parallel()
	network := []string{"status", "network", "conditions"}
	for name, c := range map[string]struct {
		reason        string
		first, second func(*statussync.Group, string) error
		name          string
		want          string // empty: accepted
	}{
		"one name": {
			"an apply that leaves a field out removes it",
			declare[struct{}](&Database{}, statussync.Owns{Conditions: []string{"A"}}),
			declare[struct{}](&Database{}, statussync.Owns{Conditions: []string{"B"}}), "first", `a writer "first"`,
		},
		"one condition": {
			"each would force it from the other",
			declare[struct{}](&Database{}, statussync.Owns{Conditions: []string{"A"}}),
			declare[struct{}](&Database{}, statussync.Owns{Conditions: []string{"B", "A"}}), "second", "condition A",
		},
		"retired by the other": {
			"it would come and go",
			declare[struct{}](&Database{}, statussync.Owns{Conditions: []string{"A"}}),
			declare[struct{}](&Database{}, statussync.Owns{Retired: []string{"A"}}), "second", "condition A",
		},
		"one payload field": {
			"each would force it from the other",
			declare[endpointOnly](&Database{}, statussync.Owns{}),
			declare[Payload](&Database{}, statussync.Owns{}), "second", "payload field endpoint",
		},
		"two primaries": {
			"observedGeneration has one owner",
			declare[struct{}](&Database{}, statussync.Owns{Conditions: []string{"A"}, Primary: true}),
			declare[struct{}](&Database{}, statussync.Owns{Conditions: []string{"B"}, Primary: true}), "second", "both are Primary",
		},
		"payload over the other's list": {
			"the field is the list's parent",
			declare[struct{}](&Database{}, statussync.Owns{Conditions: []string{"A"}, Path: network}),
			declare[pathField](&Database{}, statussync.Owns{}), "second", "payload field network",
		},
		"unstructured beside typed": {
			"it is one kind",
			declare[struct{}](&Database{}, statussync.Owns{Conditions: []string{"A"}}),
			declare[struct{}](unstructuredKind(), statussync.Owns{Conditions: []string{"A"}}), "second", "condition A",
		},
		"different conditions": {
			"that is what writers are for",
			declare[endpointOnly](&Database{}, statussync.Owns{Conditions: []string{"A"}, Primary: true}),
			declare[struct{}](&Database{}, statussync.Owns{Conditions: []string{"B"}}), "second", "",
		},
		"one type in two lists": {
			"they are two conditions",
			declare[struct{}](&Database{}, statussync.Owns{Conditions: []string{"A"}}),
			declare[struct{}](&Database{}, statussync.Owns{Conditions: []string{"A"}, Path: network}), "second", "",
		},
	} {
		s, _ := newServer(t)
		g := newGroup(t, s)
		if err := c.first(g, "first"); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		err := c.second(g, c.name)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s (%s): error = %v, want %q", name, c.reason, err, c.want)
		}
	}
}

func TestManagerName(t *testing.T) {
	t.Parallel()
	s, _ := newServer(t)
	if got := newWriter(t, s).Manager(); got != "database-operator/main" {
		t.Errorf("Manager() = %q", got)
	}
}
