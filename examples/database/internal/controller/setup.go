// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/ashlar-go/ashlar/conditions"
	dbv1 "github.com/ashlar-go/ashlar/examples/database/api/v1"
	"github.com/ashlar-go/ashlar/examples/database/internal/observe"
	"github.com/ashlar-go/ashlar/finalizers"
	"github.com/ashlar-go/ashlar/ownership"
	"github.com/ashlar-go/ashlar/ownership/apply"
	"github.com/ashlar-go/ashlar/statussync"
)

// Finalizer is stored on every Database until its cleanup is over.
const Finalizer = "db.example.com/cleanup"

// Name of the controller: in logs, events, metrics and as field manager.
const Name = "database"

// Reconciler keeps Databases. Everything on it is set once, by New.
type Reconciler struct {
	client.Client               // reads the cache
	live          client.Reader // reads past it, where an old answer would do harm

	health    *conditions.Set
	finalizer *finalizers.Finalizer[*dbv1.Database]
	children  owned // what a Database consists of
	cleanup   owned // what its cleanup creates
	volumes   owned // what its StatefulSet creates: torn down, never applied
	statuses  *statussync.Group
	status    *statussync.Writer[Status]

	skipped      *prometheus.CounterVec
	chartVersion string
	events       events.EventRecorder
	log          logr.Logger
	now          func() time.Time
}

// owned is a declared set of children with what finds and writes them.
type owned struct {
	*apply.Applier
	set *ownership.Set
}

// The rules below become config/rbac/role.yaml. README.md says which request
// needs which rule.
//
// +kubebuilder:rbac:groups=db.example.com,resources=databases,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=db.example.com,resources=databases/status,verbs=patch
// +kubebuilder:rbac:groups=db.example.com,resources=databases/finalizers,verbs=update
// +kubebuilder:rbac:groups="",resources=configmaps;services,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=apps,resources=statefulsets,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=batch,resources=jobs,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims,verbs=get;list;watch;delete
// +kubebuilder:rbac:groups="",resources=pods,verbs=list
// +kubebuilder:rbac:groups=storage.k8s.io,resources=storageclasses,verbs=get
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,resourceNames=databases.db.example.com,verbs=get;patch
// +kubebuilder:rbac:groups="",resources=secrets,namespace=database-system,verbs=create
// +kubebuilder:rbac:groups="",resources=secrets,resourceNames=database-operator-webhook,namespace=database-system,verbs=get;update
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// New wires a reconciler to a manager; it starts nothing.
func New(mgr manager.Manager, chartVersion string) (*Reconciler, error) {
	return assemble(&Reconciler{
		Client: mgr.GetClient(), live: mgr.GetAPIReader(), chartVersion: chartVersion,
		events: mgr.GetEventRecorder(Name), log: mgr.GetLogger().WithValues("controller", Name), now: time.Now,
	})
}

// assemble declares what a Database is, once and validated.
func assemble(r *Reconciler) (*Reconciler, error) {
	var errs [8]error
	r.health, errs[0] = newHealth()
	r.children, errs[1] = r.owned("children",
		ownership.Kind{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("ConfigMap")},
		ownership.Kind{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Service")},
		// The backup runs before the pods go, so the garbage collector must not get at the StatefulSet first.
		ownership.Kind{GroupVersionKind: appsv1.SchemeGroupVersion.WithKind("StatefulSet"), NeededByCleanup: true})
	r.cleanup, errs[2] = r.owned("cleanup",
		ownership.Kind{GroupVersionKind: batchv1.SchemeGroupVersion.WithKind("Job"), NeededByCleanup: true})
	r.volumes, errs[3] = r.owned("volumes",
		ownership.Kind{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"), Carrier: ownership.Label})
	r.finalizer, errs[4] = finalizers.New(Finalizer, r.steps(), finalizers.WithObserver(r.observe))
	if r.statuses, errs[5] = statussync.New(r.Client, r.live, Name); errs[5] == nil {
		r.status, errs[6] = statussync.For[Status](r.statuses, "status", &dbv1.Database{}, statussync.Owns{
			Primary: true, Conditions: r.health.Owned(), Retired: r.health.Retired(),
		})
	}
	return r, errors.Join(errs[:]...)
}

// owned declares a set. Foreground, so that a StatefulSet or Job that is gone has
// no pods left.
func (r *Reconciler) owned(name string, kinds ...ownership.Kind) (owned, error) {
	set, err := ownership.New(name, dbv1.DatabaseKind, kinds, ownership.WithFinalizer(Finalizer))
	if err != nil {
		return owned{}, err
	}
	a, err := apply.New(r.Client, r.live, set, apply.WithPropagation(metav1.DeletePropagationForeground),
		apply.WithSettle(500*time.Millisecond), // pods come up in bursts
		apply.WithObserver(func(e apply.Event) {
			r.log.Info("child", "object", e.Owner.Namespace+"/"+e.Owner.Name, "set", name, "event", e)
		}))
	return owned{a, set}, err
}

func (r *Reconciler) desired(db *dbv1.Database) []client.Object {
	labels, annotations := r.volumes.set.Claim(db)
	return desired(db, claim{labels, annotations})
}

// Index teaches the cache to find children by owner.
func (r *Reconciler) Index(ctx context.Context, i client.FieldIndexer) error {
	return errors.Join(r.children.Index(ctx, i), r.cleanup.Index(ctx, i), r.volumes.Index(ctx, i))
}

// SetupWithManager starts watching when the manager starts.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr manager.Manager) error {
	if err := r.Index(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	limited, limiter, err := r.limited()
	if err != nil {
		return err
	}
	return builder.ControllerManagedBy(mgr).Named(Name).
		// A resync that brings nothing new is no event; everything else is, so that no drift is missed. A pass over
		// a converged Database costs no request.
		WithEventFilter(predicate.ResourceVersionChangedPredicate{}).
		For(&dbv1.Database{}).
		Watches(&corev1.ConfigMap{}, r.children.Handler()).
		Watches(&corev1.Service{}, r.children.Handler()).
		Watches(&appsv1.StatefulSet{}, r.children.Handler()).
		Watches(&batchv1.Job{}, r.cleanup.Handler()).
		Watches(&corev1.PersistentVolumeClaim{}, r.volumes.Handler()).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: 4,
			ReconciliationTimeout:   time.Minute, // of all requests of one pass together
			RateLimiter:             limiter,
		}).
		WithLogConstructor(observe.ForController(mgr.GetLogger(), Name)).
		Complete(limited)
}

// Check prints what the API server lacks for this operator, one sentence each.
func (r *Reconciler) Check(ctx context.Context) error {
	return r.statuses.Check(ctx)
}
