// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package assets

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"
)

// lockEvery is how often a waiting builder looks again.
const lockEvery = 200 * time.Millisecond

// lock takes the builder's lock at path and returns its release. waiting is called once, with what the holder wrote
// into the file, when somebody else has it. The kernel drops the lock when its holder ends, however it ends.
func lock(ctx context.Context, path string, waiting func(holder string)) (release func(), err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open build lock: %w", err)
	}
	tick := time.NewTicker(lockEvery)
	defer tick.Stop()
	told := false
	for looks := 1; ; looks++ {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			break
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			f.Close()
			return nil, fmt.Errorf("take build lock %s: %w", path, err)
		}
		// What the holder wrote is only for the message. A holder that has just begun has written nothing yet.
		if holder, _ := os.ReadFile(path); !told && (len(holder) > 0 || looks > 10) {
			told = true
			waiting(strings.TrimSpace(string(holder)))
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			f.Close()
			return nil, fmt.Errorf("wait for build lock %s: %w", path, context.Cause(ctx))
		}
	}
	_ = f.Truncate(0) // what is written is only for messages of those who wait
	_, _ = f.WriteAt(fmt.Appendf(nil, "process %d, since %s\n", os.Getpid(), time.Now().Format(time.TimeOnly)), 0)
	return func() { f.Close() }, nil
}
