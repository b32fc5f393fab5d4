// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	dbv1 "github.com/ashlar-go/ashlar/examples/database/api/v1"
	"github.com/ashlar-go/ashlar/finalizers"
	"github.com/ashlar-go/ashlar/ownership/apply"
)

// maxNote is the API server's bound on the text of an event, in bytes.
const maxNote = 1024

// tell emits an event when Ready changed between what was live and what was
// written, and only then: a pass that finds nothing new says nothing.
func (r *Reconciler) tell(was *dbv1.Database, is *metav1.Condition) {
	before := apimeta.FindStatusCondition(was.Status.Conditions, Ready)
	if is == nil || before != nil && before.Status == is.Status && before.Reason == is.Reason {
		return
	}
	kind := corev1.EventTypeNormal
	switch {
	case is.Status == metav1.ConditionTrue:
	case before != nil && before.Status == metav1.ConditionTrue && before.ObservedGeneration == was.Generation:
		kind = corev1.EventTypeWarning // it was ready, nobody asked for anything else, and it is not any more
	case !slices.Contains(underway(), is.Reason):
		kind = corev1.EventTypeWarning // it does not become ready by waiting
	}
	r.emit(was, nil, kind, is.Reason, "Reconcile", cmp.Or(is.Message, "the Database is ready"))
}

// underway are the reasons that go away by themselves.
func underway() []string {
	return []string{apply.ReasonWaiting, "Provisioning", "RollingOut", "PodsNotReady", "Deleting"}
}

// observe is told by the finalizer what the cleanup does. A skipped step may have
// left something behind, so that is an event too: of the Database, or, where its
// namespace is going away and takes no events any more, of the Namespace.
func (r *Reconciler) observe(e finalizers.Event) {
	log := r.log.WithValues("object", e.Object.Namespace+"/"+e.Object.Name)
	switch e.Kind {
	case finalizers.EventSkipped:
		log.Error(e.Err, "cleanup step skipped", "step", e.Step, "why", e.Message)
		r.skipped.WithLabelValues(e.Step).Inc()
		r.emit(refTo(e.Regarding), refTo(e.Object), corev1.EventTypeWarning, "CleanupStepSkipped", "Cleanup",
			fmt.Sprintf("%s: the step %q is skipped, so %s: %v", e.Object, e.Step, missing(e.Step), e.Err))
	case finalizers.EventUnreadable:
		log.Error(e.Err, "cleanup starts over", "why", e.Message)
	default:
		log.Info("cleanup", "event", e)
	}
}

// missing says what there will not be because a step was skipped.
func missing(step string) string {
	if step == "backup" {
		return "no final backup was made"
	}
	return "what it should have cleaned up may be left behind"
}

func refTo(r finalizers.Ref) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: r.APIVersion, Kind: r.Kind, Namespace: r.Namespace, Name: r.Name, UID: r.UID}
}

// emit writes an event. Events with the same regarding, related and reason become
// one with a count, so related tells those of two Databases of one namespace apart.
func (r *Reconciler) emit(regarding, related runtime.Object, kind, reason, action, note string) {
	if len(note) > maxNote {
		note = strings.ToValidUTF8(note[:maxNote-3], "") + "..."
	}
	r.events.Eventf(regarding, related, kind, reason, action, "%s", note)
}
