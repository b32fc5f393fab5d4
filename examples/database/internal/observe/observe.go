// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

// Package observe wires logs and metrics. It knows nothing of the operator it
// serves, and every example has the same file.
package observe

import (
	"context"
	"io"
	"log/slog"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Logs sends everything this process logs to w, one JSON object a line:
// controller-runtime, client-go (klog) and the logger it returns.
func Logs(w io.Writer, level slog.Level) logr.Logger {
	handler := slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level, ReplaceAttr: plainLevel})
	logger := logr.FromSlogHandler(handler)
	log.SetLogger(logger)
	klog.SetSlogLogger(slog.New(handler))
	return logger
}

// plainLevel writes client-go's finer levels ("DEBUG+2") as the four that one filters by.
func plainLevel(groups []string, a slog.Attr) slog.Attr {
	if level, ok := a.Value.Any().(slog.Level); ok && len(groups) == 0 && a.Key == slog.LevelKey && level < slog.LevelInfo {
		a.Value = slog.StringValue(slog.LevelDebug.String())
	}
	return a
}

// ForController names the controller, and the object where there is one, on
// every line of a reconcile, under the same two keys in every operator.
func ForController(logger logr.Logger, controller string) func(*reconcile.Request) logr.Logger {
	logger = logger.WithValues("controller", controller)
	return func(req *reconcile.Request) logr.Logger {
		if req == nil {
			return logger
		}
		return logger.WithValues("object", req.String())
	}
}

// Gauge is a metric that is counted when it is scraped, so that it cannot drift
// from the truth and no series outlives its object. values are all values that
// the label can have; they bound the number of series.
type Gauge struct {
	desc   *prometheus.Desc
	values []string
	count  func(context.Context) (map[string]int, error)
}

// NewGauge declares a [Gauge]. count must answer from memory; it gets one second.
func NewGauge(name, help, label string, values []string, count func(context.Context) (map[string]int, error)) *Gauge {
	return &Gauge{desc: prometheus.NewDesc(name, help, []string{label}, nil), values: values, count: count}
}

// Describe implements [prometheus.Collector].
func (g *Gauge) Describe(ch chan<- *prometheus.Desc) { ch <- g.desc }

// Collect implements [prometheus.Collector]. When counting fails, as it does
// before the cache has synced, there is no sample: a zero would be a lie.
func (g *Gauge) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	counts, err := g.count(ctx)
	if err != nil {
		return
	}
	for _, v := range g.values {
		ch <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, float64(counts[v]), v)
	}
}
