// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"time"
)

// Eventually calls check until it returns nil, every 150 ms, and says what was missing
// when ctx ends first.
func Eventually(ctx context.Context, what string, check func(context.Context) error) error {
	for tick := time.NewTicker(150 * time.Millisecond); ; {
		err := check(ctx)
		if err == nil {
			tick.Stop()
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			tick.Stop()
			return fmt.Errorf("wait until %s: %w: %w", what, context.Cause(ctx), err)
		}
	}
}
