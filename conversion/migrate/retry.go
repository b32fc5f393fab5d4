// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/net"
)

const (
	tries   = 6
	backoff = 100 * time.Millisecond // doubled for each try, with full jitter
)

// retry repeats what failed for a reason that passes: a few times, or it would hide a server that is down
// (kubernetes-sigs/kube-storage-version-migrator#83).
func (m *Migrator) retry(ctx context.Context, do func() error) error {
	for try := 1; ; try++ {
		err := do()
		if err == nil || try == tries || !passes(err) {
			return err
		}
		wait := rand.N(backoff << try)
		if s, ok := apierrors.SuggestsClientDelay(err); ok {
			wait = max(wait, time.Duration(s)*time.Second)
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return ctx.Err()
		case <-t.C:
		}
	}
}

func passes(err error) bool {
	return apierrors.IsTooManyRequests(err) || apierrors.IsServiceUnavailable(err) || apierrors.IsInternalError(err) ||
		apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) ||
		net.IsConnectionReset(err) || net.IsConnectionRefused(err) || net.IsHTTP2ConnectionLost(err) || net.IsProbableEOF(err)
}
