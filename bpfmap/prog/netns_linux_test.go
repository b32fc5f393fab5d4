// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package prog

import (
	"errors"
	"os"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A function that waits meanwhile goes on in the namespace that it was put into, and nobody else is put there.
// https://github.com/netobserv/netobserv-ebpf-agent/pull/888
func TestReport_netobserv_888ThreadsAreNotMixedUp(t *testing.T) {
	here, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	made := make(chan *os.File)
	go func() { // on a thread that is thrown away
		runtime.LockOSThread()
		var ns *os.File
		if unix.Unshare(unix.CLONE_NEWNET) == nil {
			ns, _ = os.Open("/proc/thread-self/ns/net")
		}
		made <- ns
	}()
	ns := <-made
	if ns == nil {
		t.Skip("making a network namespace needs root")
	}
	defer ns.Close()
	path := "/proc/self/fd/" + strconv.Itoa(int(ns.Fd()))
	there, err := os.Readlink(path)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 200 {
		wg.Go(func() {
			failed := errors.New("as asked")
			err := inNetns(path, func() error {
				for range 5 {
					time.Sleep(100 * time.Microsecond)
					if now, err := os.Readlink("/proc/thread-self/ns/net"); now != there {
						t.Errorf("in %s, want %s: %v", now, there, err)
					}
				}
				return failed
			})
			if !errors.Is(err, failed) {
				t.Error(err)
			}
		})
		wg.Go(func() {
			for range 5 {
				time.Sleep(100 * time.Microsecond)
				if now, err := os.Readlink("/proc/thread-self/ns/net"); now != here {
					t.Errorf("somebody else is in %s, was in %s: %v", now, here, err)
				}
			}
		})
	}
	wg.Wait()
}
