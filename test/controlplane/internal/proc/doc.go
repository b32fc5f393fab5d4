// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

// Package proc runs processes that never outlive the process that started them, not even when that one is killed with
// SIGKILL and can do nothing about it.
//
// Two mechanisms stand for each other:
//
//   - A lifeline. Every [Group] has a watchdog, a few words of shell, that is the leader of a process group of its own
//     and reads from a pipe whose only other end this process holds, close-on-exec. However this process ends (return,
//     os.Exit, panic, signal, SIGKILL, out of memory), the kernel closes that end; the watchdog reads end-of-file and
//     kills its process group with one signal, itself included. All processes of the Group are in that process group,
//     and so is whatever they fork. As the watchdog is a member, the group's number cannot be given to somebody else:
//     there is no list of pids that could be stale.
//   - On Linux also a parent-death signal, which needs no helper. The kernel sends it when the *thread* that forked
//     ends, and Go may end any thread, so one goroutine does all forking, locked to its thread for the Group's life.
//
// Killing the watchdog leaves the second, and a component that clears the second (by setuid) is still in the group.
// Signals from a terminal (Ctrl-C) go to the foreground process group only, so they do not reach these processes:
// the owner stops them in its own order.
package proc
