// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conversiontest

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ashlar-go/ashlar/conversion"
)

// Option configures [Laws] and [Walks].
type Option interface{ apply(*config) }

type option func(*config)

func (o option) apply(c *config) { o(c) }

type config struct {
	n, steps int
	seed     uint64
	versions []string
	trace    func(string)
	wrap     func(*Server) API
	except   []string
}

// WithN sets how many objects or walks there are. The default is 200, a quarter of it under -short.
func WithN(n int) Option { return option(func(c *config) { c.n = n }) }

// WithSteps sets how many edits a walk has. The default is 6.
func WithSteps(n int) Option { return option(func(c *config) { c.steps = n }) }

// WithSeed sets where randomness begins. The default is 1: the same objects every time.
func WithSeed(seed uint64) Option { return option(func(c *config) { c.seed = seed }) }

// WithVersions limits what is tested to some of the versions. The default is all of the definition.
func WithVersions(versions ...string) Option {
	return option(func(c *config) { c.versions = versions })
}

// WithTrace calls f with every step of a walk and with what every version shows after it, one line each. The default is
// nobody. Two servers that do the same have the same trace.
func WithTrace(f func(line string)) Option { return option(func(c *config) { c.trace = f }) }

// WithAPI puts something between [Walks] and its servers: an [Applier], or one that counts. The default is the server
// itself.
func WithAPI(wrap func(*Server) API) Option { return option(func(c *config) { c.wrap = wrap }) }

// WithExcept names fields that both versions of a pair have and that mean something else in each, so that [Laws] does not
// look for what one says in the other: "spec.mode". The default is none.
func WithExcept(paths ...string) Option {
	return option(func(c *config) { c.except = append(c.except, paths...) })
}

func configure(d *definition, opts []Option) config {
	c := config{n: 200, steps: 6, seed: 1, versions: d.versions, trace: func(string) {}, wrap: func(s *Server) API { return s }}
	if testing.Short() {
		c.n /= 4
	}
	for _, o := range opts {
		o.apply(&c)
	}
	return c
}

// Laws tests a converter with random objects of every version in a CustomResourceDefinition (JSON), complete and partial:
//
//   - Conversion works, twice the same, and leaves its input alone.
//   - An API server accepts the answer.
//   - The way back gives the object again, exactly.
//   - A field that both versions have, by the same name and with the same type, is in the answer: a function that forgets
//     to copy one hides it from every client of the other version.
//   - There is an annotation if and only if the object without it would not come back.
//   - A partial object stays partial: without metadata it gets no annotation, and no field it had is lost for good where
//     it has metadata.
func Laws(t testing.TB, c *conversion.Converter, crd []byte, opts ...Option) {
	t.Helper()
	d, err := readDefinition(crd)
	if err != nil {
		t.Fatal(err)
	}
	cfg := configure(d, opts)
	h, err := conversion.Handler([]*conversion.Converter{c})
	if err != nil {
		t.Fatal(err)
	}
	for _, from := range cfg.versions {
		for _, to := range cfg.versions {
			if from == to {
				continue
			}
			r := rand.New(rand.NewPCG(cfg.seed, 0))
			for i := range cfg.n {
				body := d.object(r, from)
				meta := metadata(r, "a")
				meta["uid"] = "6c1e"
				raw := d.complete(body, meta, from)
				if err := law(t, c, raw, from, to); err != nil {
					t.Fatalf("object %d of seed %d, %s to %s: %v\n%s", i, cfg.seed, from, to, err, raw)
				}
				if err := copied(t, c, d, raw, from, to, cfg.except); err != nil {
					t.Fatalf("object %d of seed %d, %s to %s: %v\n%s", i, cfg.seed, from, to, err, raw)
				}
				if _, err := Review(t.Context(), h, d.group+"/"+to, raw); err != nil {
					t.Fatalf("object %d of seed %d, %s to %s: the API server refuses it: %v\n%s", i, cfg.seed, from, to, err, raw)
				}
				for _, part := range parts(d, body, from) {
					if err := law(t, c, part, from, to); err != nil {
						t.Fatalf("object %d of seed %d, %s to %s, a partial object: %v\n%s", i, cfg.seed, from, to, err, part)
					}
					if _, err := Review(t.Context(), h, d.group+"/"+to, part); err != nil {
						t.Fatalf("object %d of seed %d, %s to %s, a partial object: the API server refuses it: %v\n%s", i, cfg.seed, from, to, err, part)
					}
				}
			}
		}
	}
}

// parts are what server-side apply asks about.
func parts(d *definition, body map[string]any, version string) [][]byte {
	out := [][]byte{d.complete(map[string]any{"status": map[string]any{}}, nil, version)}
	status := map[string]any{}
	if s, ok := body["status"]; ok {
		status["status"] = s
		out = append(out, d.complete(status, nil, version))
	}
	return append(out,
		d.complete(status, map[string]any{"name": "a", "namespace": "default"}, version),
		d.complete(map[string]any{}, map[string]any{"name": "a", "labels": map[string]any{"app": "x"}}, version),
	)
}

func law(t testing.TB, c *conversion.Converter, raw []byte, from, to string) error {
	before := bytes.Clone(raw)
	there, err := c.Convert(t.Context(), raw, to)
	if err != nil {
		return err
	}
	again, err := c.Convert(t.Context(), raw, to)
	switch {
	case err != nil:
		return fmt.Errorf("the second time: %w", err)
	case !bytes.Equal(before, raw):
		return errors.New("the input was modified")
	case !bytes.Equal(there, again):
		return fmt.Errorf("the second answer differs: %s, then %s", there, again)
	}
	in, err := decode(raw)
	if err != nil {
		return err
	}
	out, err := decode(there)
	if err != nil {
		return err
	}
	if _, had := in["metadata"]; !had {
		if m, ok := out["metadata"].(map[string]any); !ok || len(m) > 0 {
			return fmt.Errorf("an object without metadata got %v", out["metadata"])
		}
		return nil // nothing can be kept
	}
	back, err := c.Convert(t.Context(), there, from)
	if err != nil {
		return fmt.Errorf("the way back: %w\n%s", err, there)
	}
	got, err := decode(back)
	if err != nil {
		return err
	}
	if diff := differs(in, got, ""); diff != "" {
		return fmt.Errorf("the way back: %s\n%s", diff, there)
	}
	bare := strip(out)
	if len(encode(bare)) == len(encode(out)) {
		return nil
	}
	back, err = c.Convert(t.Context(), encode(bare), from)
	if err != nil {
		return nil // then the annotation was needed
	}
	if got, err = decode(back); err != nil {
		return err
	}
	if differs(strip(in), strip(got), "") == "" {
		return fmt.Errorf("the annotation keeps nothing that is lost: %s", there)
	}
	return nil
}

// copied looks for a field that a function forgot.
func copied(t testing.TB, c *conversion.Converter, d *definition, raw []byte, from, to string, except []string) error {
	out, err := c.Convert(t.Context(), raw, to)
	if err != nil {
		return err
	}
	in, err := decode(raw)
	if err != nil {
		return err
	}
	got, err := decode(out)
	if err != nil {
		return err
	}
	// A way may lead through the versions between the two.
	versions := c.Versions()
	a, b := slices.Index(versions, from), slices.Index(versions, to)
	schemas := []*schema{d.schemas[from], d.schemas[to]}
	for _, v := range versions[min(a, b)+1 : max(a, b)] {
		schemas = append(schemas, d.schemas[v])
	}
	x, y := body(in), body(got)
	delete(x, "metadata.labels") // a function has a say in those
	delete(x, "metadata.annotations")
	if path := forgotten(x, y, schemas, "", except); path != "" {
		return fmt.Errorf("%s is in %s and in %s with one type, and is gone: the function does not copy it (if that is meant: WithExcept)\n%s", path, from, to, out)
	}
	return nil
}

// strip is an object without the annotation.
func strip(m map[string]any) map[string]any {
	out := map[string]any{}
	for k, v := range m {
		out[k] = v
	}
	meta, ok := m["metadata"].(map[string]any)
	if !ok {
		return out
	}
	clean := map[string]any{}
	for k, v := range meta {
		clean[k] = v
	}
	if a, ok := meta["annotations"].(map[string]any); ok {
		rest := map[string]any{}
		for k, v := range a {
			if k != conversion.Annotation {
				rest[k] = v
			}
		}
		if clean["annotations"] = rest; len(rest) == 0 {
			delete(clean, "annotations")
		}
	}
	out["metadata"] = clean
	return out
}
