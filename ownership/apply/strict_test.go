// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package apply_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/ashlar-go/ashlar/ownership"
	"github.com/ashlar-go/ashlar/ownership/apply"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

const finalizer = "example.com/database"

var databaseKind = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Database"}

// request is one write as it left the client.
type request struct {
	Verb, Kind, Name string
	Force            bool
	Manager          string
	UID, Version     string // of the body, or of the preconditions
	Policy           string
	Body             map[string]any
	Patch            string
}

// server is controller-runtime's fake with the rules of the API server that it lacks and this package relies on: what
// an apply with uid or resourceVersion does, uid preconditions, one controller per object. Every write is recorded.
type server struct {
	client.WithWatch
	cache client.Client // what the applier reads: the same objects, or fewer

	mu     sync.Mutex
	writes []request
	gets   int // live reads
	lists  int // live lists
	uids   int
	// before is asked before every write; an error is the answer.
	before func(*request) error
}

// testScheme knows every kind of the tests: the fake registers unknown ones on first use, which races.
var testScheme = sync.OnceValue(func() *runtime.Scheme {
	s := runtime.NewScheme()
	if err := scheme.AddToScheme(s); err != nil {
		panic(err)
	}
	s.AddKnownTypeWithName(databaseKind, &unstructured.Unstructured{})
	s.AddKnownTypeWithName(databaseKind.GroupVersion().WithKind("DatabaseList"), &unstructured.UnstructuredList{})
	return s
})

// converters are what the fake builds for itself each time, parsed once.
var converters = sync.OnceValue(func() []managedfields.TypeConverter {
	return []managedfields.TypeConverter{applyconfigurations.NewTypeConverter(testScheme()), managedfields.NewDeducedTypeConverter()}
})

func newServer(t testing.TB, strip bool, objs ...client.Object) *server {
	t.Helper()
	s := &server{}
	b := fake.NewClientBuilder().WithScheme(testScheme()).WithTypeConverters(converters()...).WithObjects(objs...)
	if !strip {
		b = b.WithReturnManagedFields()
	}
	s.WithWatch = b.Build()
	s.cache = interceptor.NewClient(s.WithWatch, interceptor.Funcs{Apply: s.apply, Delete: s.delete, Patch: s.patch})
	return s
}

// live counts what must not happen in a converged pass.
func (s *server) live() client.Reader {
	return interceptor.NewClient(s.WithWatch, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			s.mu.Lock()
			s.gets++
			s.mu.Unlock()
			return c.Get(ctx, key, o, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			s.mu.Lock()
			s.lists++
			s.mu.Unlock()
			return c.List(ctx, l, opts...)
		},
	})
}

func (s *server) record(r request) error {
	s.mu.Lock()
	s.writes = append(s.writes, r)
	f := s.before
	s.mu.Unlock()
	if f != nil {
		return f(&r)
	}
	return nil
}

// taken returns the recorded writes and forgets them.
func (s *server) taken() []request {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.writes
	s.writes, s.gets, s.lists = nil, 0, 0
	return out
}

func (s *server) apply(ctx context.Context, c client.WithWatch, ac runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
	o := (&client.ApplyOptions{}).ApplyOptions(opts)
	raw, err := json.Marshal(ac)
	if err != nil {
		return err
	}
	body := &unstructured.Unstructured{}
	if err := body.UnmarshalJSON(raw); err != nil {
		return err
	}
	r := request{Verb: "apply", Kind: body.GetKind(), Name: body.GetName(), Force: o.Force != nil && *o.Force, Manager: o.FieldManager,
		UID: string(body.GetUID()), Version: body.GetResourceVersion(), Body: body.DeepCopy().Object}
	if err := s.record(r); err != nil {
		return err
	}
	gr := schema.GroupResource{Group: body.GroupVersionKind().Group, Resource: strings.ToLower(body.GetKind()) + "s"}
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(body.GroupVersionKind())
	err = c.Get(ctx, client.ObjectKeyFromObject(body), live)
	switch {
	case apierrors.IsNotFound(err) && r.UID != "":
		return apierrors.NewConflict(gr, r.Name, fmt.Errorf("uid mismatch: the provided object specified uid %s, and no existing object was found", r.UID))
	case apierrors.IsNotFound(err):
	case err != nil:
		return err
	case r.Version != "" && r.Version != live.GetResourceVersion():
		return apierrors.NewConflict(gr, r.Name, errors.New("the object has been modified"))
	case r.UID != "" && r.UID != string(live.GetUID()):
		return invalid(gr, r.Name, "metadata.uid", "field is immutable")
	}
	body.SetResourceVersion("")
	if err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(body), opts...); err != nil {
		return err
	}
	after := &unstructured.Unstructured{}
	after.SetGroupVersionKind(body.GroupVersionKind())
	if err := c.Get(ctx, client.ObjectKeyFromObject(body), after); err != nil {
		return err
	}
	if after.GetUID() == "" {
		s.mu.Lock()
		s.uids++
		after.SetUID(types.UID(fmt.Sprintf("uid-%d", s.uids)))
		s.mu.Unlock()
		if err := c.Update(ctx, after); err != nil {
			return err
		}
	}
	if controllers(after) > 1 {
		live.SetResourceVersion(after.GetResourceVersion())
		if err := c.Update(ctx, live); err != nil {
			return err
		}
		return invalid(gr, r.Name, "metadata.ownerReferences", "Only one reference can have Controller set to true")
	}
	out, err := after.MarshalJSON()
	if err != nil {
		return err
	}
	return json.Unmarshal(out, ac)
}

func controllers(objs ...*unstructured.Unstructured) int {
	seen := map[types.UID]bool{}
	for _, o := range objs {
		for _, r := range o.GetOwnerReferences() {
			if r.Controller != nil && *r.Controller {
				seen[r.UID] = true
			}
		}
	}
	return len(seen)
}

func invalid(gr schema.GroupResource, name, field, msg string) error {
	e := apierrors.NewInvalid(schema.GroupKind{Group: gr.Group, Kind: gr.Resource}, name, nil)
	e.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeFieldValueInvalid, Field: field, Message: msg}}
	return e
}

func (s *server) delete(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
	d := (&client.DeleteOptions{}).ApplyOptions(opts)
	r := request{Verb: "delete", Kind: o.GetObjectKind().GroupVersionKind().Kind, Name: o.GetName()}
	if d.PropagationPolicy != nil {
		r.Policy = string(*d.PropagationPolicy)
	}
	if d.Preconditions != nil && d.Preconditions.UID != nil {
		r.UID = string(*d.Preconditions.UID)
	}
	if d.Preconditions != nil && d.Preconditions.ResourceVersion != nil {
		r.Version = *d.Preconditions.ResourceVersion
	}
	if err := s.record(r); err != nil {
		return err
	}
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(o.GetObjectKind().GroupVersionKind())
	if err := c.Get(ctx, client.ObjectKeyFromObject(o), live); err != nil {
		return err
	}
	if r.UID != "" && r.UID != string(live.GetUID()) {
		return apierrors.NewConflict(schema.GroupResource{Resource: "objects"}, r.Name, errors.New("Precondition failed: UID in precondition does not match"))
	}
	return c.Delete(ctx, o, opts...)
}

func (s *server) patch(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
	data, err := p.Data(o)
	if err != nil {
		return err
	}
	if err := s.record(request{Verb: "patch", Kind: o.GetObjectKind().GroupVersionKind().Kind, Name: o.GetName(), Patch: string(data)}); err != nil {
		return err
	}
	err = c.Patch(ctx, o, p, opts...)
	if err != nil && strings.Contains(err.Error(), "test") { // the server answers a failed test with a bare 422
		return apierrors.NewInvalid(schema.GroupKind{}, o.GetName(), nil)
	}
	return err
}

// must reads an object as it is on the server.
func (s *server) must(t testing.TB, o client.Object) client.Object {
	t.Helper()
	if err := s.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
		t.Fatal(err)
	}
	return o
}

func (s *server) exists(t testing.TB, o client.Object) bool {
	t.Helper()
	err := s.Get(t.Context(), client.ObjectKeyFromObject(o), o)
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	return err == nil
}

func kinds() []ownership.Kind {
	return []ownership.Kind{
		{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("ConfigMap")},
		{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Secret"), Carrier: ownership.Label},
		{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Service")},
		{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"), Carrier: ownership.Label},
		{GroupVersionKind: appsv1.SchemeGroupVersion.WithKind("StatefulSet")},
		{GroupVersionKind: appsv1.SchemeGroupVersion.WithKind("Deployment")},
		{GroupVersionKind: rbacv1.SchemeGroupVersion.WithKind("RoleBinding")},
		{GroupVersionKind: rbacv1.SchemeGroupVersion.WithKind("ClusterRole"), Cluster: true},
		{GroupVersionKind: batchv1.SchemeGroupVersion.WithKind("Job"), NeededByCleanup: true},
	}
}

func newSet(t testing.TB) *ownership.Set {
	t.Helper()
	s, err := ownership.New("children", databaseKind, kinds(), ownership.WithFinalizer(finalizer))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func newApplier(t testing.TB, s *server, opts ...apply.Option) *apply.Applier {
	t.Helper()
	a, err := apply.New(s.cache, s.live(), newSet(t), opts...)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func database() *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(databaseKind)
	u.SetNamespace("team-a")
	u.SetName("orders")
	u.SetUID("owner-1")
	u.SetGeneration(7)
	u.SetFinalizers([]string{finalizer})
	return u
}

func configMap(name string, data ...string) *corev1.ConfigMap {
	c := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name}, Data: map[string]string{}}
	for i := 0; i+1 < len(data); i += 2 {
		c.Data[data[i]] = data[i+1]
	}
	return c
}

func secret(name string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name}, StringData: map[string]string{"key": "value"}}
}

func pass(t testing.TB, a *apply.Applier, desired ...client.Object) apply.Result {
	t.Helper()
	res, err := a.Sync(t.Context(), database(), desired, ownership.Policy{})
	if err != nil {
		t.Fatal(err)
	}
	return res
}
