// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

// Command demo runs the database operator end to end on a real control plane and
// shows what happened: a Database is created, scaled, upgraded, robbed of its
// StatefulSet, left alone by a killed operator, and deleted.
//
// It exits with 0 only if all of it went right. KEEP=1 leaves everything running
// afterwards; KUBECONFIG=… uses that cluster instead of one of its own.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	storagev1 "k8s.io/api/storage/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/ashlar-go/ashlar/test/integration/lab"
)

func main() {
	log.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "\nthe demo failed: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	start := time.Now()
	l, err := lab.Start(ctx, os.Stdout, os.Getenv("KUBECONFIG"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	fmt.Printf("control plane and CRD ready after %.1f s\n", time.Since(start).Seconds())

	class, err := storageClass(ctx, l)
	if err != nil {
		return err
	}
	s := &story{lab: l, class: class, start: time.Now()}
	defer func() { err = errors.Join(err, s.stopOperator(context.WithoutCancel(ctx))) }()
	if err := s.tell(ctx); err != nil {
		return err
	}
	if os.Getenv("KEEP") != "" {
		return s.keep(ctx)
	}
	if os.Getenv("KUBECONFIG") != "" {
		return s.leave(ctx)
	}
	return nil
}

// storageClass is the one the cluster would choose itself.
func storageClass(ctx context.Context, l *lab.Lab) (string, error) {
	classes := &storagev1.StorageClassList{}
	if err := l.Client.List(ctx, classes); err != nil {
		return "", err
	}
	for _, class := range classes.Items {
		if class.Annotations["storageclass.kubernetes.io/is-default-class"] == "true" {
			return class.Name, nil
		}
	}
	return "", errors.New("the cluster has no default storage class")
}
