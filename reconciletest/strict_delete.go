// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package reconciletest

import (
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
)

// delete marks an object, or removes it when no finalizer holds it.
func (q *request) delete(was *unstructured.Unstructured, o metav1.DeleteOptions) (any, int, error) {
	if q.write.Subresource != "" {
		return nil, 0, apierrors.NewMethodNotSupported(q.gr(), "delete")
	}
	if p := o.Preconditions; p != nil {
		if p.UID != nil && *p.UID != was.GetUID() {
			return nil, 0, q.conflict("Precondition failed: UID in precondition: %v, UID in object meta: %v", *p.UID, was.GetUID())
		}
		if p.ResourceVersion != nil && *p.ResourceVersion != was.GetResourceVersion() {
			return nil, 0, q.conflict("Precondition failed: ResourceVersion in precondition: %v, ResourceVersion in object meta: %v",
				*p.ResourceVersion, was.GetResourceVersion())
		}
	}
	is := was.DeepCopy()
	is.SetFinalizers(finalizersAfterDelete(q.kind, is, o))
	gone := len(is.GetFinalizers()) == 0
	if !gone && is.GetDeletionTimestamp() == nil {
		now := metav1.NewTime(q.server.now().UTC().Truncate(1e9))
		is.SetDeletionTimestamp(&now)
		is.SetDeletionGracePeriodSeconds(new(int64))
		is.SetGeneration(is.GetGeneration() + 1)
	}
	if q.dry() || slices.Contains(o.DryRun, metav1.DryRunAll) {
		return is, http.StatusOK, nil
	}
	if gone {
		q.server.store(q.kind, q.key(), nil)
		return &metav1.Status{
			TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess,
			Details: &metav1.StatusDetails{Name: q.write.Name, Group: q.kind.Group, Kind: q.kind.Plural, UID: was.GetUID()},
		}, http.StatusOK, nil
	}
	if was.GetDeletionTimestamp() == nil || !slices.Equal(was.GetFinalizers(), is.GetFinalizers()) {
		q.server.store(q.kind, q.key(), is)
	}
	return is, http.StatusOK, nil
}

// finalizersAfterDelete adds and removes the two finalizers of the garbage collector as the options say, else as the
// object says, else as the kind does.
func finalizersAfterDelete(k *kindStore, u *unstructured.Unstructured, o metav1.DeleteOptions) []string {
	has := func(f string) bool { return slices.Contains(u.GetFinalizers(), f) }
	var orphan, foreground bool
	switch {
	//lint:ignore SA1019 it is deprecated, and still obeyed by the server
	case o.OrphanDependents != nil:
		//lint:ignore SA1019 likewise
		orphan = *o.OrphanDependents
	case o.PropagationPolicy != nil:
		orphan = *o.PropagationPolicy == metav1.DeletePropagationOrphan
		foreground = *o.PropagationPolicy == metav1.DeletePropagationForeground
	case has(metav1.FinalizerOrphanDependents):
		orphan = true
	case has(metav1.FinalizerDeleteDependents):
		foreground = true
	default:
		orphan = k.orphansByDefault()
	}
	keep := slices.DeleteFunc(slices.Clone(u.GetFinalizers()), func(f string) bool {
		return f == metav1.FinalizerOrphanDependents && !orphan || f == metav1.FinalizerDeleteDependents && !foreground
	})
	if orphan && !has(metav1.FinalizerOrphanDependents) {
		keep = append(keep, metav1.FinalizerOrphanDependents)
	}
	if foreground && !has(metav1.FinalizerDeleteDependents) {
		keep = append(keep, metav1.FinalizerDeleteDependents)
	}
	return keep
}

func (q *request) deleteCollection(r *http.Request) (any, int, error) {
	o, err := deleteOptions(r, q.media, q.body)
	if err != nil {
		return nil, 0, apierrors.NewBadRequest(err.Error())
	}
	sel, err := labels.Parse(q.query.Get("labelSelector"))
	if err != nil {
		return nil, 0, apierrors.NewBadRequest(err.Error())
	}
	o.Preconditions = nil
	for _, key := range q.kind.keys() {
		u := q.kind.objects[key]
		if q.write.Namespace != "" && key.namespace != q.write.Namespace || !sel.Matches(labels.Set(u.GetLabels())) {
			continue
		}
		one := *q
		one.write.Namespace, one.write.Name = key.namespace, key.name
		if _, _, err := one.delete(u, o); err != nil {
			return nil, 0, err
		}
	}
	return &metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess}, http.StatusOK, nil
}
