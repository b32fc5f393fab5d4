// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package reconciletest

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// request is one write. The server's lock is held.
type request struct {
	server *StrictServer
	kind   *kindStore
	write  Write
	query  url.Values
	media  string
	agent  string
	body   []byte
}

func (q *request) key() objectKey { return objectKey{q.write.Namespace, q.write.Name} }

func (q *request) gr() schema.GroupResource { return q.kind.groupResource() }

func (q *request) dry() bool { return q.query.Get("dryRun") == metav1.DryRunAll }

// manager is the field manager; for all but apply the start of the user agent stands in.
func (q *request) manager() string {
	if m := q.query.Get("fieldManager"); m != "" {
		return m
	}
	m, _, _ := strings.Cut(q.agent, "/")
	return m
}

func (q *request) run(r *http.Request) (any, int, error) {
	if q.kind.Cluster != (q.write.Namespace == "") {
		return nil, 0, &apierrors.StatusError{ErrStatus: *notServed(r.URL.Path)}
	}
	was := q.kind.objects[q.key()]
	switch q.write.Verb {
	case VerbCreate:
		return q.create()
	case VerbDeleteCollection:
		return q.deleteCollection(r)
	case VerbApply:
		return q.apply(was)
	}
	if was == nil {
		return nil, 0, apierrors.NewNotFound(q.gr(), q.write.Name)
	}
	switch q.write.Verb {
	case VerbUpdate:
		return q.update(was)
	case VerbDelete:
		o, err := deleteOptions(r, q.media, q.body)
		if err != nil {
			return nil, 0, apierrors.NewBadRequest(err.Error())
		}
		return q.delete(was, o)
	default:
		return q.patch(was)
	}
}

// decode reads an object and checks that it is of the kind and has the address of the request.
func (q *request) decode() (*unstructured.Unstructured, error) {
	body := q.body
	switch q.media {
	case "", "application/json":
	case "application/yaml", string(types.ApplyYAMLPatchType):
		var err error
		if body, err = yaml.ToJSON(q.body); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
	default:
		return nil, apierrors.NewGenericServerResponse(http.StatusUnsupportedMediaType, string(q.write.Verb), q.gr(), q.write.Name,
			"the body must be JSON or YAML, not "+q.media+": set ContentType to application/json in the client's configuration", 0, true)
	}
	u := &unstructured.Unstructured{}
	if err := utiljson.Unmarshal(body, &u.Object); err != nil || u.Object == nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("read object: %v", err))
	}
	switch kind := u.GroupVersionKind(); {
	case kind == q.kind.GroupVersionKind:
	case kind.GroupVersion() == q.kind.GroupVersion():
		return nil, apierrors.NewInvalid(kind.GroupKind(), u.GetName(), field.ErrorList{field.Invalid(field.NewPath("kind"), kind.Kind, "must be "+q.kind.Kind)})
	default:
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the object is a %s, not a %s", u.GroupVersionKind(), q.kind.GroupVersionKind))
	}
	if ns := u.GetNamespace(); ns != "" && ns != q.write.Namespace {
		return nil, apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	if name := u.GetName(); q.write.Name != "" && name != "" && name != q.write.Name {
		return nil, apierrors.NewBadRequest("the name of the object does not match the name on the URL")
	}
	u.SetNamespace(q.write.Namespace)
	return u, nil
}

func (q *request) invalid(errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewInvalid(q.kind.GroupKind(), q.write.Name, errs)
}

func (q *request) conflict(format string, args ...any) error {
	return apierrors.NewConflict(q.gr(), q.write.Name, fmt.Errorf(format, args...))
}

func (q *request) stale() error {
	return q.conflict("the object has been modified; please apply your changes to the latest version and try again")
}

func (q *request) create() (any, int, error) {
	u, err := q.decode()
	if err != nil {
		return nil, 0, err
	}
	if u.GetName() == "" && u.GetGenerateName() != "" {
		u.SetName(u.GetGenerateName() + fmt.Sprintf("%05d", q.server.made+1))
	}
	q.write.Name = u.GetName()
	if q.write.Name == "" {
		return nil, 0, q.invalid(field.ErrorList{field.Required(field.NewPath("metadata", "name"), "name or generateName is required")})
	}
	if q.write.Subresource != "" {
		return nil, 0, apierrors.NewMethodNotSupported(q.gr(), "create")
	}
	if u.GetResourceVersion() != "" {
		return nil, 0, apierrors.NewInternalError(errors.New("resourceVersion should not be set on objects to be created"))
	}
	empty := &unstructured.Unstructured{}
	empty.SetGroupVersionKind(q.kind.GroupVersionKind)
	q.dropStatus(u)
	if managed, ok := q.kind.fields[""].UpdateNoErrors(empty, u, q.manager()).(*unstructured.Unstructured); ok {
		u = managed
	}
	return q.insert(u)
}

func (q *request) dropStatus(u *unstructured.Unstructured) {
	if !q.kind.NoStatus {
		delete(u.Object, "status")
	}
}

// insert stores a new object.
func (q *request) insert(u *unstructured.Unstructured) (any, int, error) {
	if err := q.server.inTerminatingNamespace(q.kind, q.write.Namespace, q.write.Name); err != nil {
		return nil, 0, err
	}
	if err := q.invalid(checkMetadata(u)); err != nil {
		return nil, 0, err
	}
	if q.kind.objects[q.key()] != nil {
		return nil, 0, apierrors.NewAlreadyExists(q.gr(), q.write.Name)
	}
	unstructured.RemoveNestedField(u.Object, "metadata", "deletionTimestamp")
	unstructured.RemoveNestedField(u.Object, "metadata", "deletionGracePeriodSeconds")
	u.SetUID(types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", q.server.made+1)))
	u.SetCreationTimestamp(metav1.NewTime(q.server.now().UTC().Truncate(1e9)))
	u.SetGeneration(1)
	if !q.dry() {
		q.server.made++
		q.server.store(q.kind, q.key(), u)
	}
	return u, http.StatusCreated, nil
}

func (q *request) update(was *unstructured.Unstructured) (any, int, error) {
	is, err := q.decode()
	if err != nil {
		return nil, 0, err
	}
	if is.GetResourceVersion() == "" {
		return nil, 0, q.invalid(field.ErrorList{field.Invalid(field.NewPath("metadata", "resourceVersion"), "", "must be specified for an update")})
	}
	if uid := is.GetUID(); uid != "" && uid != was.GetUID() {
		return nil, 0, q.conflict("Precondition failed: UID in precondition: %v, UID in object meta: %v", uid, was.GetUID())
	}
	return q.replace(was, is, true)
}

func (q *request) patch(was *unstructured.Unstructured) (any, int, error) {
	is := &unstructured.Unstructured{}
	switch types.PatchType(q.media) {
	case types.JSONPatchType:
		doc, err := jsonPatch(was.Object, q.body)
		switch {
		case err != nil && strings.HasPrefix(err.Error(), "read json patch"):
			return nil, 0, apierrors.NewBadRequest(err.Error())
		case err != nil:
			return nil, 0, apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", err.Error(), 0, false)
		}
		is.Object = doc
	case types.MergePatchType:
		var p map[string]any
		if err := utiljson.Unmarshal(q.body, &p); err != nil {
			return nil, 0, apierrors.NewBadRequest(err.Error())
		}
		is.Object, _ = mergePatch(was.DeepCopy().Object, p).(map[string]any)
	default:
		return nil, 0, apierrors.NewGenericServerResponse(http.StatusUnsupportedMediaType, "patch", q.gr(), q.write.Name,
			"the body of the request was in an unknown format", 0, true)
	}
	return q.replace(was, is, true)
}

// apply is server-side apply.
func (q *request) apply(was *unstructured.Unstructured) (any, int, error) {
	applied, err := q.decode()
	if err != nil {
		return nil, 0, err
	}
	if q.query.Get("fieldManager") == "" {
		return nil, 0, apierrors.NewInvalid(schema.GroupKind{Group: "meta.k8s.io", Kind: "PatchOptions"}, "",
			field.ErrorList{field.Required(field.NewPath("fieldManager"), "is required for apply patch")})
	}
	if len(applied.GetManagedFields()) > 0 {
		return nil, 0, apierrors.NewBadRequest("metadata.managedFields must be nil")
	}
	applied.SetName(q.write.Name)
	uid, version := applied.GetUID(), applied.GetResourceVersion()
	for _, f := range []string{"uid", "resourceVersion"} {
		unstructured.RemoveNestedField(applied.Object, "metadata", f)
	}
	if q.write.Subresource == "status" {
		applied.Object = map[string]any{
			"apiVersion": applied.Object["apiVersion"], "kind": applied.Object["kind"], "status": applied.Object["status"],
			"metadata": map[string]any{"name": q.write.Name, "namespace": q.write.Namespace},
		}
	} else {
		q.dropStatus(applied)
	}
	live := was
	if was == nil {
		if q.write.Subresource != "" {
			return nil, 0, apierrors.NewNotFound(q.gr(), q.write.Name)
		}
		if uid != "" {
			return nil, 0, q.conflict("uid mismatch: the provided object specified uid %s, and no existing object was found", uid)
		}
		live = &unstructured.Unstructured{}
		live.SetGroupVersionKind(q.kind.GroupVersionKind)
		live.SetName(q.write.Name)
		live.SetNamespace(q.write.Namespace)
	} else if version != "" && version != "0" && version != was.GetResourceVersion() {
		return nil, 0, q.stale()
	}
	force := q.query.Get("force") == "true"
	out, err := q.kind.fields[q.write.Subresource].Apply(live.DeepCopy(), applied, q.manager(), force)
	if err != nil {
		var known apierrors.APIStatus
		if !errors.As(err, &known) {
			err = apierrors.NewBadRequest(err.Error())
		}
		return nil, 0, err
	}
	is, ok := out.(*unstructured.Unstructured)
	if !ok {
		return nil, 0, fmt.Errorf("apply returned %T", out)
	}
	if was == nil {
		return q.insert(is)
	}
	if uid != "" && q.write.Subresource == "" {
		is.SetUID(uid)
	}
	return q.replace(was, is, false)
}

// replace is what every change of a stored object ends in. Managed says that field management is still to be done.
func (q *request) replace(was, is *unstructured.Unstructured, managed bool) (any, int, error) {
	if v := is.GetResourceVersion(); v != "" && v != was.GetResourceVersion() {
		return nil, 0, q.stale()
	}
	if q.write.Subresource == "status" {
		status := is.Object["status"]
		fields := is.GetManagedFields()
		is = was.DeepCopy()
		delete(is.Object, "status")
		if status != nil {
			is.Object["status"] = status
		}
		is.SetManagedFields(fields)
	} else if !q.kind.NoStatus {
		delete(is.Object, "status")
		if status, ok := was.DeepCopy().Object["status"]; ok {
			is.Object["status"] = status
		}
	}
	keepSystemFields(was, is)
	if q.write.Subresource == "" && !reflect.DeepEqual(content(was, q.kind.NoStatus), content(is, q.kind.NoStatus)) {
		is.SetGeneration(was.GetGeneration() + 1)
	}
	if managed {
		if u, ok := q.kind.fields[q.write.Subresource].UpdateNoErrors(was.DeepCopy(), is, q.manager()).(*unstructured.Unstructured); ok {
			is = u
		}
	}
	if err := q.invalid(checkChange(was, is)); err != nil {
		return nil, 0, err
	}
	if q.dry() {
		return is, http.StatusOK, nil
	}
	if was.GetDeletionTimestamp() != nil && len(is.GetFinalizers()) == 0 {
		q.server.store(q.kind, q.key(), nil)
		return is, http.StatusOK, nil
	}
	if reflect.DeepEqual(was.Object, is.Object) {
		return was, http.StatusOK, nil
	}
	q.server.store(q.kind, q.key(), is)
	return is, http.StatusOK, nil
}

// keepSystemFields puts back what only the server changes.
func keepSystemFields(was, is *unstructured.Unstructured) {
	if is.GetUID() == "" {
		is.SetUID(was.GetUID())
	}
	is.SetResourceVersion(was.GetResourceVersion())
	is.SetGeneration(was.GetGeneration())
	is.SetNamespace(was.GetNamespace())
	for _, f := range []string{"creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"} {
		unstructured.RemoveNestedField(is.Object, "metadata", f)
		if v, ok, _ := unstructured.NestedFieldCopy(was.Object, "metadata", f); ok {
			_ = unstructured.SetNestedField(is.Object, v, "metadata", f)
		}
	}
}

// content is the part of an object whose changes count as a new generation.
func content(u *unstructured.Unstructured, status bool) map[string]any {
	out := map[string]any{}
	for k, v := range u.Object {
		if k != "metadata" && (k != "status" || status) {
			out[k] = v
		}
	}
	return out
}
