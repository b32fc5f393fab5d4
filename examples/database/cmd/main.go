// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

// Command operator runs Databases on the cluster of its environment: the one of
// --kubeconfig or KUBECONFIG, or the one whose service account the pod has.
package main

import (
	"context"
	"errors"
	"flag"
	"io"
	"log/slog"
	"os"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/manager/signals"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	dbv1 "github.com/ashlar-go/ashlar/examples/database/api/v1"
	"github.com/ashlar-go/ashlar/examples/database/internal/controller"
	"github.com/ashlar-go/ashlar/examples/database/internal/observe"
)

type flags struct {
	namespaces, chartVersion, metrics, probes, pprof, leaseNamespace string
	webhook, webhookURL, webhookNamespace                            string

	leaderElect, plan, migrate bool
	logLevel                   slog.Level
}

func main() {
	var f flags
	flag.StringVar(&f.namespaces, "namespaces", "", "comma-separated namespaces to look after; empty means all")
	flag.StringVar(&f.chartVersion, "chart-version", "", "engine version that the installing chart was made for, to report VersionSkew; empty reports nothing")
	flag.StringVar(&f.metrics, "metrics-bind-address", "0", "address of the metrics; 0 serves none")
	flag.StringVar(&f.probes, "health-probe-bind-address", "0", "address of /healthz and /readyz; 0 serves none")
	flag.StringVar(&f.pprof, "pprof-bind-address", "0", "loopback address of the profiler; 0 serves none")
	flag.BoolVar(&f.leaderElect, "leader-elect", false, "work only while holding the lease, so that a second replica may wait")
	flag.StringVar(&f.leaseNamespace, "leader-election-namespace", "", "namespace of the lease; empty means that of the pod")
	flag.StringVar(&f.webhook, "webhook-bind-address", "0", "address of the conversion webhook; 0 serves none")
	flag.StringVar(&f.webhookURL, "webhook-url", "", "where the API server reaches the webhook; empty means its Service")
	flag.StringVar(&f.webhookNamespace, "webhook-namespace", podNamespace(), "namespace of the webhook's Service and Secret; empty means that of the pod")
	flag.BoolVar(&f.plan, "plan", false, "print what would be done, write nothing, and exit")
	flag.BoolVar(&f.migrate, "migrate", false, "rewrite every Database at the storage version, drop the others from storedVersions, and exit; needs more rights than the operator has")
	flag.TextVar(&f.logLevel, "log-level", slog.LevelInfo, "debug, info, warn or error")
	flag.Parse() // --kubeconfig is controller-runtime's

	if err := run(signals.SetupSignalHandler(), f, os.Stdout, os.Stderr); err != nil {
		slog.New(slog.NewJSONHandler(os.Stderr, nil)).Error("operator stopped", "error", err.Error())
		os.Exit(1)
	}
}

func run(ctx context.Context, f flags, out, logs io.Writer) error {
	logger := observe.Logs(logs, f.logLevel)
	cfg, err := config.GetConfig()
	if err != nil {
		return err
	}
	cfg.UserAgent = "database-operator"
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), dbv1.AddToScheme(scheme)); err != nil {
		return err
	}
	if f.migrate {
		return migrateStorage(ctx, cfg, scheme, out)
	}
	conversions, server, err := conversionWebhook(cfg, scheme, f, logger)
	if err != nil {
		return err
	}
	mgr, err := manager.New(cfg, manager.Options{
		Scheme:                 scheme,
		Logger:                 logger,
		Cache:                  controller.Cache(f.namespaces),
		Metrics:                metricsserver.Options{BindAddress: f.metrics},
		WebhookServer:          server,
		HealthProbeBindAddress: f.probes,
		PprofBindAddress:       f.pprof,
		LeaderElection:         f.leaderElect && !f.plan,
		LeaderElectionID:       "database-operator", LeaderElectionNamespace: f.leaseNamespace,
		LeaderElectionReleaseOnCancel: true, // the process ends right after, so nothing is written without the lease
	})
	if err != nil {
		return err
	}
	r, err := controller.New(mgr, f.chartVersion)
	if err != nil {
		return err
	}
	if f.plan {
		return plan(ctx, mgr, r, out)
	}
	if err := errors.Join(
		r.RegisterMetrics(metrics.Registry), r.SetupWithManager(ctx, mgr),
		mgr.AddHealthzCheck("ping", healthz.Ping), conversions.ready(ctx, mgr),
	); err != nil {
		return err
	}
	if err := r.Check(ctx); err != nil {
		logger.Error(err, "the cluster does not offer everything this operator needs")
	}
	return mgr.Start(ctx)
}
