// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package finalizerstest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/ashlar-go/ashlar/finalizers"
	"github.com/ashlar-go/ashlar/finalizers/finalizerstest"
)

type (
	owner = *corev1.ConfigMap
	step  = finalizers.Step[owner]
	dying = finalizers.Deletion[owner]
)

func object(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
}

// good is a cleanup in two waves: a backup that needs the volume, then the volume, in any world.
type good struct {
	c     client.Client
	wrong *[]string // what must never happen
}

func (g good) backup(ctx context.Context, _ dying) finalizers.Outcome {
	if err := g.c.Get(ctx, client.ObjectKey{Namespace: "ns", Name: "volume"}, object("volume")); err != nil {
		if apierrors.IsNotFound(err) {
			*g.wrong = append(*g.wrong, "the backup runs after its volume is gone")
			return finalizers.Stuck(err)
		}
		return finalizers.Retry(err)
	}
	err := g.c.Create(ctx, object("backup"))
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return finalizers.Retry(err)
	}
	return finalizers.Done()
}

func (g good) volume(ctx context.Context, _ dying) finalizers.Outcome {
	if err := client.IgnoreNotFound(g.c.Delete(ctx, object("volume"))); err != nil {
		return finalizers.Retry(err)
	}
	return finalizers.Done()
}

func (g good) remote(ctx context.Context, _ dying) finalizers.Outcome {
	err := g.c.Get(ctx, client.ObjectKey{Namespace: "ns", Name: "remote"}, object("remote"))
	switch {
	case apierrors.IsNotFound(err):
		return finalizers.Done()
	case err != nil:
		return finalizers.Retry(err)
	}
	if err := client.IgnoreNotFound(g.c.Delete(ctx, object("remote"))); err != nil {
		return finalizers.Retry(err)
	}
	return finalizers.Wait(time.Second)
}

func apply(ctx context.Context, c client.Client, _ owner) (time.Duration, error) {
	for _, name := range []string{"volume", "remote"} {
		if err := c.Create(ctx, object(name)); err != nil && !apierrors.IsAlreadyExists(err) {
			return 0, err
		}
	}
	return 0, nil
}

func gone(ctx context.Context, c client.Client) error {
	for _, name := range []string{"volume", "remote"} {
		if err := c.Get(ctx, client.ObjectKey{Namespace: "ns", Name: name}, object(name)); !apierrors.IsNotFound(err) {
			return fmt.Errorf("%s: %v", name, err)
		}
	}
	return nil
}

func goodCase(wrong *[]string) finalizerstest.Case[owner] {
	return finalizerstest.Case[owner]{
		World: func(testing.TB) client.Client { return fake.NewFakeClient() },
		Owner: object("owner"),
		New: func(c client.Client) (*finalizers.Finalizer[owner], error) {
			g := good{c: c, wrong: wrong}
			return finalizers.New("example.com/cleanup", []step{
				{Name: "backup", Do: g.backupIfAny},
				{Name: "remote", Do: g.remote},
				{Name: "volume", After: []string{"backup"}, Do: g.volume},
			})
		},
		Apply: apply,
		Check: gone,
	}
}

// backupIfAny: the owner may be deleted before apply has made the volume.
func (g good) backupIfAny(ctx context.Context, d dying) finalizers.Outcome {
	err := g.c.Get(ctx, client.ObjectKey{Namespace: "ns", Name: "remote"}, object("remote"))
	if apierrors.IsNotFound(err) {
		if err := g.c.Get(ctx, client.ObjectKey{Namespace: "ns", Name: "volume"}, object("volume")); apierrors.IsNotFound(err) {
			return finalizers.Done()
		}
	}
	return g.backup(ctx, d)
}

// TestRunAcceptsAGoodCleanup is also the proof of the package's own law: with every crash point, every lost reply and
// every second process, no step runs again once one that comes after it has begun.
func TestRunAcceptsAGoodCleanup(t *testing.T) {
	t.Parallel()
	var wrong []string
	finalizerstest.Run(t, goodCase(&wrong))
	for _, what := range wrong {
		t.Error(what)
	}
}

// recorder keeps what the kit reports instead of failing the test.
type recorder struct {
	testing.TB
	said []string
}

func (r *recorder) Errorf(format string, args ...any) {
	r.said = append(r.said, fmt.Sprintf(format, args...))
}

// TestRunReports holds that the kit finds what it is there to find.
func TestRunReports(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		reason string
		change func(*finalizerstest.Case[owner])
		want   string
	}{
		"leak": {
			reason: "a step says Done although its DELETE failed",
			change: func(c *finalizerstest.Case[owner]) {
				c.New = func(c client.Client) (*finalizers.Finalizer[owner], error) {
					return finalizers.New("example.com/cleanup", []step{{Name: "all", Do: func(ctx context.Context, _ dying) finalizers.Outcome {
						_ = c.Delete(ctx, object("volume"))
						_ = c.Delete(ctx, object("remote"))
						return finalizers.Done()
					}}})
				}
			},
			want: "the request fails at request",
		},
		"not idempotent": {
			reason: "the step fails when what it deletes is gone already",
			change: func(c *finalizerstest.Case[owner]) {
				c.New = func(c client.Client) (*finalizers.Finalizer[owner], error) {
					return finalizers.New("example.com/cleanup", []step{{Name: "all", Do: func(ctx context.Context, _ dying) finalizers.Outcome {
						for _, name := range []string{"volume", "remote"} {
							if err := c.Delete(ctx, object(name)); err != nil {
								return finalizers.Retry(err)
							}
						}
						return finalizers.Done()
					}}})
				}
			},
			want: "the process dies after the server has acted at request",
		},
		"stuck": {
			reason: "a cleanup that does not end",
			change: func(c *finalizerstest.Case[owner]) {
				c.New = func(client.Client) (*finalizers.Finalizer[owner], error) {
					return finalizers.New("example.com/cleanup", []step{{Name: "all", Do: func(context.Context, dying) finalizers.Outcome {
						return finalizers.Stuck(errors.New("no way"))
					}}})
				}
			},
			want: `not there after 50 passes; the last one said: cleanup step "all": no way`,
		},
		"not declared": {
			reason: "an error of New is one of the case",
			change: func(c *finalizerstest.Case[owner]) {
				c.New = func(client.Client) (*finalizers.Finalizer[owner], error) { return finalizers.New[owner]("", nil) }
			},
			want: "undisturbed: the case's New:",
		},
		"between": {
			reason: "an error of Between is one of the case",
			change: func(c *finalizerstest.Case[owner]) {
				c.Between = func(context.Context, client.Client) error { return errors.New("broken") }
			},
			want: "undisturbed: being deleted: the case's Between: broken",
		},
		"apply": {
			reason: "an error of apply that does not go away",
			change: func(c *finalizerstest.Case[owner]) {
				c.Apply = func(context.Context, client.Client, owner) (time.Duration, error) { return 0, errors.New("broken") }
			},
			want: "undisturbed: alive: not there after 50 passes; the last one said: broken",
		},
		"nothing": {
			reason: "an empty case must not pass",
			change: func(c *finalizerstest.Case[owner]) { *c = finalizerstest.Case[owner]{} },
			want:   "World, Owner and New are required",
		},
	}
	for title, tt := range tests {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			c := goodCase(new([]string))
			tt.change(&c)
			r := &recorder{TB: t}
			finalizerstest.Run(r, c)
			if all := strings.Join(r.said, "\n"); !strings.Contains(all, tt.want) {
				t.Errorf("%s: reported %q, want %q in it", tt.reason, all, tt.want)
			}
		})
	}
}
