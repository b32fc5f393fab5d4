// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package finalizers_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ashlar-go/ashlar/finalizers"
)

// TestLives lives through every life of an object that differs from the undisturbed one in a few places: a request
// before which the process dies, or after which it does, or that fails; another controller that adds or removes its
// finalizer, a second process of ours that makes a whole pass, or a user who deletes the object just before a request;
// a cache that is one or two versions behind; a step that waits once. In each of them the laws of world model hold.
func TestLives(t *testing.T) {
	t.Parallel()
	scopes := map[string]scope{
		"two disturbances":             {disturbances: 2},
		"a stale cache, one fault":     {disturbances: 1, stale: 2},
		"a step that waits, one fault": {disturbances: 1, waits: 2, stale: 1},
	}
	if testing.Short() {
		scopes = map[string]scope{"one of each": {disturbances: 1, stale: 1, waits: 1}}
	}
	states := map[string]bool{}
	lives := 0
	for title, s := range scopes {
		for _, begin := range [][]string{nil, {other}, {former, other}} {
			o := &oracle{}
			for {
				m := &model{t: t, oracle: o, scope: s, seen: states, done: map[string]bool{}, begun: map[string]bool{}}
				m.put(configMap("a", begin...))
				if err := m.live(); err != nil {
					t.Fatalf("%s, beginning with %q: %v\n%s", title, begin, err, strings.Join(m.log, "\n"))
				}
				lives++
				if !o.next() {
					break
				}
			}
		}
	}
	t.Logf("%d lives, %d different states of server and process", lives, len(states))
	if lives < 1000 {
		t.Errorf("only %d lives were explored: the choices are not offered any more", lives)
	}
}

// scope bounds how often a life may leave the undisturbed path.
type scope struct{ disturbances, stale, waits int }

// oracle enumerates all sequences of choices, depth first.
type oracle struct {
	script []int // what to pick
	limits []int // how many there were to pick from
	at     int
}

func (o *oracle) pick(n int) int {
	if o.at == len(o.script) {
		o.script, o.limits = append(o.script, 0), append(o.limits, n)
	}
	o.at++
	return o.script[o.at-1]
}

func (o *oracle) next() bool {
	o.at = 0
	for i := len(o.script) - 1; i >= 0; i-- {
		if o.script[i]+1 < o.limits[i] {
			o.script[i]++
			o.script, o.limits = o.script[:i+1], o.limits[:i+1]
			return true
		}
	}
	return false
}

// model is a server with one object, and what the world knows about the cleanup. It keeps the server's rules and says
// when a law is broken.
type model struct {
	client.Client // nil: only what is implemented below may be called

	t      *testing.T
	oracle *oracle
	scope  scope
	seen   map[string]bool

	versions []*corev1.ConfigMap // all that were ever stored; nil when the object was gone
	cache    int                 // the version the process saw last
	deleted  bool
	nested   bool // the second process is at work
	dead     bool
	done     map[string]bool // steps that have said Done
	begun    map[string]bool // steps that were called
	broken   error
	log      []string
}

func (m *model) now() *corev1.ConfigMap { return m.versions[len(m.versions)-1] }

// put stores a version.
func (m *model) put(obj *corev1.ConfigMap) {
	if obj != nil {
		if obj.DeletionTimestamp != nil && len(obj.Finalizers) == 0 {
			obj = nil
		} else {
			obj.ResourceVersion = strconv.Itoa(len(m.versions) + 1)
		}
	}
	m.versions = append(m.versions, obj)
	m.seen[jsonOf(obj)+fmt.Sprint(m.cache, m.dead, m.done, m.begun)] = true
}

func (m *model) breaks(format string, args ...any) {
	if m.broken == nil {
		m.broken = fmt.Errorf(format, args...)
	}
}

func (m *model) process() *finalizers.Finalizer[*corev1.ConfigMap] {
	do := func(name string, needs ...string) func(context.Context, finalizers.Deletion[*corev1.ConfigMap]) finalizers.Outcome {
		return func(_ context.Context, d finalizers.Deletion[*corev1.ConfigMap]) finalizers.Outcome {
			m.log = append(m.log, "  do "+name)
			m.begun[name] = true
			stored := ""
			if m.now() != nil {
				stored = m.now().Annotations[finalizers.Annotation]
			}
			for _, need := range needs {
				if m.now() != nil && slices.Contains(m.now().Finalizers, "example.com/cleanup") &&
					!strings.Contains(stored, `"step":"`+need+`","state":"Done"`) {
					m.breaks("%s was called, but %s is not stored as done: %s", name, need, stored)
				}
			}
			if name == "backup" && m.begun["volumes"] {
				m.breaks("backup was called after volumes had begun")
			}
			if d.Object.DeletionTimestamp == nil {
				m.breaks("%s was called for a live object", name)
			}
			if !m.nested && m.scope.waits > 0 && m.oracle.pick(2) == 1 {
				m.scope.waits--
				m.log = append(m.log, "    waits")
				return finalizers.Wait(time.Second)
			}
			m.done[name] = true
			return finalizers.Done()
		}
	}
	return mustNew(m.t, []step{
		{Name: "volumes", After: []string{"backup"}, Do: do("volumes", "backup")},
		{Name: "backup", Do: do("backup")},
		{Name: "remote", Do: do("remote")},
	}, finalizers.WithFormerNames(former))
}

func (m *model) apply(_ context.Context, obj *corev1.ConfigMap) (time.Duration, error) {
	m.log = append(m.log, "  apply")
	if obj.DeletionTimestamp != nil {
		m.breaks("apply was called for an object that is being deleted")
	}
	if stored := m.now(); stored != nil && stored.DeletionTimestamp == nil && !slices.Contains(stored.Finalizers, "example.com/cleanup") {
		m.breaks("apply was called before the finalizer was stored")
	}
	return 0, nil
}

// live runs passes until the object is active, deletes it, and runs passes until nothing of ours is left.
func (m *model) live() error {
	f := m.process()
	active := false
	for pass := 0; ; pass++ {
		if pass > 20 {
			return errors.New("no end after 20 passes")
		}
		if active && !m.deleted {
			m.remove()
		}
		view := m.view()
		if view == nil {
			break
		}
		m.log = append(m.log, fmt.Sprintf("pass with version %s of %d", view.ResourceVersion, len(m.versions)))
		res, err := f.Sync(m.t.Context(), m, m, view, m.apply)
		m.log = append(m.log, fmt.Sprintf("  %v, %v", res.Phase, err))
		if m.broken != nil {
			return m.broken
		}
		if m.dead {
			m.dead = false
			f = m.process()
			m.cache = max(0, m.cache-1) // the cache of a new process may be behind the old one's
			continue
		}
		active = active || err == nil && res.Phase == finalizers.Active
		if err == nil && m.deleted && m.cache == len(m.versions)-1 && (res.Phase == finalizers.Released || res.Phase == finalizers.Gone) {
			break
		}
	}
	return m.end()
}

// view is what the cache shows: the newest version, or an older one, but never one older than it has shown before.
func (m *model) view() *corev1.ConfigMap {
	newest := len(m.versions) - 1
	back := 0
	if m.scope.stale > 0 && newest > m.cache {
		back = m.oracle.pick(min(newest-m.cache, 2) + 1)
		m.scope.stale -= min(back, 1)
	}
	m.cache = newest - back
	return m.versions[m.cache].DeepCopy()
}

func (m *model) remove() {
	m.deleted = true
	if m.now() == nil || m.now().DeletionTimestamp != nil {
		return
	}
	m.log = append(m.log, "  the user deletes it")
	next := m.now().DeepCopy()
	next.DeletionTimestamp = &metav1.Time{Time: start()}
	m.put(next)
}

func (m *model) end() error {
	if m.broken != nil {
		return m.broken
	}
	left := []string{}
	if obj := m.now(); obj != nil {
		left = obj.Finalizers
		if obj.Annotations[finalizers.Annotation] != "" {
			return fmt.Errorf("progress is left behind: %v", obj.Annotations)
		}
	}
	if slices.Contains(left, "example.com/cleanup") || slices.Contains(left, former) {
		return fmt.Errorf("%q is left", left)
	}
	return nil
}

// disturb decides what happens around a request.
func (m *model) disturb(what string, do func() error) error {
	if m.dead {
		return errors.New("dead")
	}
	choice := 0
	if !m.nested && m.scope.disturbances > 0 {
		choice = m.oracle.pick(7)
	}
	if choice > 0 {
		m.scope.disturbances--
		what += " <- " + [...]string{
			"", "dies before", "dies after", "fails", "user deletes", "another finalizer comes or goes", "second process",
		}[choice]
	}
	m.log = append(m.log, "  "+what)
	switch choice {
	case 1:
		m.dead = true
		return errors.New("dead")
	case 2:
		_ = do()
		m.dead = true
		return errors.New("dead")
	case 3:
		return apierrors.NewInternalError(errors.New("on purpose"))
	case 4:
		m.remove()
	case 5:
		m.toggle()
	case 6:
		if view := m.now().DeepCopy(); view != nil {
			m.nested = true
			_, err := m.process().Sync(m.t.Context(), m, m, view, m.apply)
			m.nested = false
			if err != nil {
				m.breaks("second process: %v", err)
			}
		}
	}
	return do()
}

// toggle is another controller that takes its finalizer away, or puts it at the front.
func (m *model) toggle() {
	if m.now() == nil {
		return
	}
	next := m.now().DeepCopy()
	if i := slices.Index(next.Finalizers, other); i >= 0 {
		next.Finalizers = slices.Delete(next.Finalizers, i, i+1)
	} else if next.DeletionTimestamp == nil {
		next.Finalizers = append([]string{other}, next.Finalizers...)
	}
	m.put(next)
}

func (m *model) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	return m.disturb("get", func() error {
		if m.now() == nil {
			return apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, key.Name)
		}
		m.now().DeepCopyInto(obj.(*corev1.ConfigMap))
		return nil
	})
}

func (m *model) Patch(_ context.Context, obj client.Object, patch client.Patch, _ ...client.PatchOption) error {
	body, err := patch.Data(obj)
	if err != nil {
		return err
	}
	return m.disturb("patch "+string(body), func() error {
		if m.now() == nil {
			return apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, obj.GetName())
		}
		next := m.now().DeepCopy()
		if err := patched(next, body); err != nil {
			return bare422()
		}
		m.judge(m.now(), next)
		if next.DeletionTimestamp != nil {
			for _, name := range next.Finalizers {
				if !slices.Contains(m.now().Finalizers, name) {
					return bare422()
				}
			}
		}
		next.DeepCopyInto(obj.(*corev1.ConfigMap)) // the server returns what was submitted, also when that deletes
		m.put(next)
		if m.now() != nil {
			obj.SetResourceVersion(m.now().ResourceVersion)
		}
		return nil
	})
}

// judge holds the laws that every write must keep.
func (m *model) judge(was, is *corev1.ConfigMap) {
	if w, i := foreign(was.Finalizers), foreign(is.Finalizers); !slices.Equal(w, i) {
		m.breaks("a patch turns others' %q into %q", w, i)
	}
	ours := func(s string) bool { return s == name || s == former }
	if slices.ContainsFunc(was.Finalizers, ours) && !slices.ContainsFunc(is.Finalizers, ours) {
		if was.DeletionTimestamp == nil {
			m.breaks("the finalizer is taken from a live object")
		}
		for _, step := range []string{"backup", "remote", "volumes"} {
			if !m.done[step] {
				m.breaks("released although %s was never done", step)
			}
		}
	}
	if slices.Index(is.Finalizers, name) >= 0 && was.DeletionTimestamp != nil && slices.Index(was.Finalizers, name) < 0 {
		m.log = append(m.log, "  (refused: new on a terminating object)")
	}
}

// patched applies the operations that this package uses, with the server's answers: a test of something absent holds
// for null, anything else that does not exist is an error.
func patched(obj *corev1.ConfigMap, body []byte) error {
	var ops []struct {
		Op, Path string
		Value    json.RawMessage
	}
	if err := json.Unmarshal(body, &ops); err != nil {
		return err
	}
	bad := errors.New("refused")
	for _, op := range ops {
		isNull := string(op.Value) == "null"
		var text string
		_ = json.Unmarshal(op.Value, &text)
		field, token, nested := strings.Cut(strings.TrimPrefix(op.Path, "/metadata/"), "/")
		switch {
		case field == "uid" && op.Op == "test":
			if text != string(obj.UID) {
				return bad
			}
		case field == "finalizers" && !nested:
			switch op.Op {
			case "test":
				if !isNull || len(obj.Finalizers) > 0 {
					return bad
				}
			case "add":
				if err := json.Unmarshal(op.Value, &obj.Finalizers); err != nil {
					return err
				}
			}
		case field == "finalizers" && token == "-":
			if len(obj.Finalizers) == 0 {
				return bad
			}
			obj.Finalizers = append(obj.Finalizers, text)
		case field == "finalizers":
			i, err := strconv.Atoi(token)
			if err != nil || i >= len(obj.Finalizers) || op.Op == "test" && obj.Finalizers[i] != text {
				return bad
			}
			switch op.Op {
			case "remove":
				obj.Finalizers = slices.Delete(obj.Finalizers, i, i+1)
			case "replace":
				obj.Finalizers[i] = text
			}
		case field == "annotations" && !nested:
			switch op.Op {
			case "test":
				if !isNull || len(obj.Annotations) > 0 {
					return bad
				}
			case "add":
				if err := json.Unmarshal(op.Value, &obj.Annotations); err != nil {
					return err
				}
			}
		case field == "annotations":
			key := strings.ReplaceAll(token, "~1", "/")
			have, ok := obj.Annotations[key]
			switch op.Op {
			case "test":
				if isNull && ok || !isNull && have != text {
					return bad
				}
			case "remove":
				delete(obj.Annotations, key)
			default:
				if obj.Annotations == nil {
					return bad
				}
				obj.Annotations[key] = text
			}
		default:
			return bad
		}
	}
	return nil
}
