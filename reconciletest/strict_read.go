// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package reconciletest

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

// keys are the addresses of a kind's objects in the order of lists.
func (k *kindStore) keys() []objectKey {
	keys := make([]objectKey, 0, len(k.objects))
	for key := range k.objects {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b objectKey) int {
		return cmp.Or(strings.Compare(a.namespace, b.namespace), strings.Compare(a.name, b.name))
	})
	return keys
}

// view is what a reader wants to see and in which form.
type view struct {
	namespace string
	labels    labels.Selector
	fields    fields.Selector
	metadata  bool
}

func viewOf(r *http.Request, w Write) (view, error) {
	v := view{namespace: w.Namespace, metadata: strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata")}
	var err error
	if v.labels, err = labels.Parse(r.URL.Query().Get("labelSelector")); err != nil {
		return v, apierrors.NewBadRequest(err.Error())
	}
	if v.fields, err = fields.ParseSelector(r.URL.Query().Get("fieldSelector")); err != nil {
		return v, apierrors.NewBadRequest(err.Error())
	}
	for _, req := range v.fields.Requirements() {
		if req.Field != "metadata.name" && req.Field != "metadata.namespace" {
			return v, apierrors.NewBadRequest("field label not supported: " + req.Field)
		}
	}
	if w.Name != "" {
		v.fields = fields.AndSelectors(v.fields, fields.OneTermEqualSelector("metadata.name", w.Name))
	}
	return v, nil
}

func (v view) holds(u *unstructured.Unstructured) bool {
	return u != nil && (v.namespace == "" || v.namespace == u.GetNamespace()) && v.labels.Matches(labels.Set(u.GetLabels())) &&
		v.fields.Matches(fields.Set{"metadata.name": u.GetName(), "metadata.namespace": u.GetNamespace()})
}

// show is the object in the form asked for.
func (v view) show(u *unstructured.Unstructured) map[string]any {
	if !v.metadata {
		return u.Object
	}
	return map[string]any{"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": u.Object["metadata"]}
}

func (s *StrictServer) read(r *http.Request, k *kindStore, w Write) answer {
	v, err := viewOf(r, w)
	if err != nil {
		return failed(err)
	}
	if isWatch(r) {
		return s.watch(r, k, v)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.Name == "" {
		return s.list(r, k, v)
	}
	u := k.objects[objectKey{w.Namespace, w.Name}]
	if u == nil {
		return failed(apierrors.NewNotFound(k.groupResource(), w.Name))
	}
	return answer{code: http.StatusOK, body: v.show(u)}
}

// list answers page by page when a limit is given. A page shows the objects as they are now: like a server's after the
// first version has been compacted, the pages are no snapshot.
func (s *StrictServer) list(r *http.Request, k *kindStore, v view) answer {
	limit, err := strconv.Atoi(cmp.Or(r.URL.Query().Get("limit"), "0"))
	if err != nil || limit < 0 {
		return failed(apierrors.NewBadRequest("limit must be a number, zero or more"))
	}
	var after objectKey
	if token := r.URL.Query().Get("continue"); token != "" {
		data, err := base64.RawURLEncoding.DecodeString(token)
		ns, name, ok := strings.Cut(string(data), "/")
		if err != nil || !ok {
			return failed(apierrors.NewBadRequest("continue key is not valid"))
		}
		after = objectKey{ns, name}
	}
	items, metadata := []any{}, map[string]any{"resourceVersion": strconv.FormatInt(s.version, 10), "continue": ""}
	var last objectKey
	for _, key := range k.keys() {
		if cmp.Or(strings.Compare(key.namespace, after.namespace), strings.Compare(key.name, after.name)) <= 0 && after != (objectKey{}) {
			continue
		}
		u := k.objects[key]
		if !v.holds(u) {
			continue
		}
		if limit > 0 && len(items) == limit {
			metadata["continue"] = base64.RawURLEncoding.EncodeToString([]byte(last.namespace + "/" + last.name))
			break
		}
		items, last = append(items, v.show(u)), key
	}
	list := map[string]any{"apiVersion": k.GroupVersion().String(), "kind": k.Kind + "List", "metadata": metadata, "items": items}
	if v.metadata {
		list["apiVersion"], list["kind"] = "meta.k8s.io/v1", "PartialObjectMetadataList"
	}
	return answer{code: http.StatusOK, body: list}
}

// watch streams what happens after a version; without one, or when initial events are asked for, what there is comes
// first. The history is kept whole, so no version is ever too old.
func (s *StrictServer) watch(r *http.Request, k *kindStore, v view) answer {
	q := r.URL.Query()
	from, err := strconv.ParseInt(cmp.Or(q.Get("resourceVersion"), "0"), 10, 64)
	if err != nil {
		return failed(apierrors.NewBadRequest("resourceVersion must be a number"))
	}
	initial := q.Get("sendInitialEvents") == "true"
	return answer{code: http.StatusOK, stream: func(w io.Writer, done <-chan struct{}) {
		s.mu.Lock()
		var frames []map[string]any
		next := len(k.events)
		if initial || from == 0 {
			for _, key := range k.keys() {
				if u := k.objects[key]; v.holds(u) {
					frames = append(frames, map[string]any{"type": "ADDED", "object": v.show(u)})
				}
			}
			if initial {
				frames = append(frames, map[string]any{"type": "BOOKMARK", "object": s.bookmark(k, v)})
			}
		} else {
			next, _ = slices.BinarySearchFunc(k.events, from, func(e storeEvent, v int64) int { return cmp.Compare(e.version, v+1) })
		}
		e := json.NewEncoder(w)
		for {
			for ; next < len(k.events); next++ {
				if f := v.frame(k.events[next]); f != nil {
					frames = append(frames, f)
				}
			}
			changed := s.changed
			s.mu.Unlock()
			for _, f := range frames {
				if e.Encode(f) != nil {
					return
				}
			}
			frames = nil
			select {
			case <-done:
				return
			case <-changed:
			}
			s.mu.Lock()
		}
	}}
}

func (s *StrictServer) bookmark(k *kindStore, v view) map[string]any {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetGroupVersionKind(k.GroupVersionKind)
	u.SetResourceVersion(strconv.FormatInt(s.version, 10))
	u.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	return v.show(u)
}

// frame is an event as a watcher sees it that sees only a part of the objects.
func (v view) frame(e storeEvent) map[string]any {
	had, has := v.holds(e.was), v.holds(e.is)
	switch {
	case has && had:
		return map[string]any{"type": "MODIFIED", "object": v.show(e.is)}
	case has:
		return map[string]any{"type": "ADDED", "object": v.show(e.is)}
	case had && e.is == nil:
		return map[string]any{"type": "DELETED", "object": v.show(e.was)}
	case had:
		gone := e.was.DeepCopy()
		gone.SetResourceVersion(e.is.GetResourceVersion())
		return map[string]any{"type": "DELETED", "object": v.show(gone)}
	default:
		return nil
	}
}

// discover answers what clients ask to learn which kinds there are.
func (s *StrictServer) discover(r *http.Request) (answer, bool) {
	if r.Method != http.MethodGet {
		return answer{}, false
	}
	ok := func(body any) (answer, bool) { return answer{code: http.StatusOK, body: body}, true }
	switch path := strings.Trim(r.URL.Path, "/"); {
	case path == "api":
		return ok(&metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}})
	case path == "apis":
		list := &metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
		for _, k := range s.order {
			if k.Group == "" || slices.ContainsFunc(list.Groups, func(g metav1.APIGroup) bool { return g.Name == k.Group }) {
				continue
			}
			v := metav1.GroupVersionForDiscovery{GroupVersion: k.GroupVersion().String(), Version: k.Version}
			list.Groups = append(list.Groups, metav1.APIGroup{Name: k.Group, Versions: []metav1.GroupVersionForDiscovery{v}, PreferredVersion: v})
		}
		return ok(list)
	case path == "api/v1" || strings.HasPrefix(path, "apis/") && strings.Count(path, "/") == 2:
		gv := strings.TrimPrefix(strings.TrimPrefix(path, "apis/"), "api/")
		list := &metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: gv}
		for _, k := range s.order {
			if k.GroupVersion().String() != gv {
				continue
			}
			res := metav1.APIResource{
				Name: k.Plural, SingularName: strings.ToLower(k.Kind), Kind: k.Kind, Namespaced: !k.Cluster,
				Verbs: metav1.Verbs{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"},
			}
			list.APIResources = append(list.APIResources, res)
			if !k.NoStatus {
				res.Name, res.SingularName, res.Verbs = k.Plural+"/status", "", metav1.Verbs{"get", "patch", "update"}
				list.APIResources = append(list.APIResources, res)
			}
		}
		if len(list.APIResources) == 0 {
			return failed(&apierrors.StatusError{ErrStatus: *notServed(r.URL.Path)}), true
		}
		return ok(list)
	}
	return answer{}, false
}
