// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	dbv1 "github.com/ashlar-go/ashlar/examples/database/api/v1"
	"github.com/ashlar-go/ashlar/examples/database/internal/observe"
)

// RegisterMetrics adds the metrics of this operator: 4 series and one for each
// cleanup step, however many Databases there are.
func (r *Reconciler) RegisterMetrics(reg prometheus.Registerer) error {
	r.skipped = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "database_cleanup_steps_skipped_total",
		Help: "Cleanup steps that were given up, by step. What they should have done may be missing.",
	}, []string{"step"})
	return errors.Join(reg.Register(r.skipped), reg.Register(observe.NewGauge("database_databases",
		"Databases by the status of their condition Ready; Deleting for those that are being deleted.",
		"ready", []string{"True", "False", "Unknown", "Deleting"}, r.countByReady)))
}

// countByReady asks the cache.
func (r *Reconciler) countByReady(ctx context.Context) (map[string]int, error) {
	list := &dbv1.DatabaseList{}
	if err := r.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	counts := map[string]int{}
	for i := range list.Items {
		counts[readiness(&list.Items[i])]++
	}
	return counts, nil
}

func readiness(db *dbv1.Database) string {
	if db.DeletionTimestamp != nil {
		return "Deleting"
	}
	if c := apimeta.FindStatusCondition(db.Status.Conditions, Ready); c != nil {
		return string(c.Status)
	}
	return string(metav1.ConditionUnknown)
}
