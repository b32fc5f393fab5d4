// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/ashlar-go/ashlar/test/controlplane"
	"github.com/ashlar-go/ashlar/test/controlplane/audit"
)

// small leaves out what a test about processes does not need.
func small() controlplane.Option {
	return controlplane.Without(controlplane.ControllerManager, controlplane.Scheduler, controlplane.Kwok)
}

// life is what a child tells about its control plane.
type life struct {
	Dir  string
	Pids map[controlplane.Component]int
}

// child starts a whole control plane, says so, and hangs.
func child() {
	cp, err := controlplane.Start(context.Background())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	l := life{Dir: cp.Dir(), Pids: map[controlplane.Component]int{}}
	for _, c := range controlplane.Components() {
		l.Pids[c] = cp.Pid(c)
	}
	if err := json.NewEncoder(os.Stdout).Encode(l); err != nil {
		os.Exit(1)
	}
	select {}
}

// alive says whether a process exists and is no zombie that waits for somebody's wait.
func alive(t *testing.T, pid int) bool {
	t.Helper()
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := exec.CommandContext(t.Context(), "ps", "-o", "stat=", "-p", fmt.Sprint(pid)).Output()
	return err == nil && !strings.HasPrefix(strings.TrimSpace(string(stat)), "Z")
}

// TestNothingOutlivesKill9 kills the owner of a control plane as no owner can prepare for.
func TestNothingOutlivesKill9(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), childMode+"=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Wait() })
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		t.Fatal(err)
	}
	var l life
	if err := json.Unmarshal(line, &l); err != nil {
		t.Fatal(err)
	}
	for c, pid := range l.Pids {
		if pid == 0 || !alive(t, pid) {
			t.Fatalf("%s (%d) does not run to begin with", c, pid)
		}
	}
	if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	for c, pid := range l.Pids {
		for alive(t, pid) {
			if time.Since(killed) > 10*time.Second {
				t.Fatalf("%s (%d) outlives its owner", c, pid)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	t.Logf("all gone %s after the kill", time.Since(killed).Round(time.Millisecond))

	// What the owner could not remove, the next one does.
	if _, err := os.Stat(l.Dir); err != nil {
		t.Fatal(err)
	}
	next, err := controlplane.Existing(cp.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	defer next.Stop()
	if _, err := os.Stat(l.Dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory of the dead: %v", err)
	}
	if _, err := os.Stat(cp.Dir()); err != nil {
		t.Errorf("the directory of the living: %v", err)
	}
}

// TestSecondStart runs another control plane beside the shared one, and then loses its API server.
func TestSecondStart(t *testing.T) {
	t.Parallel()
	var progress bytes.Buffer
	logs := t.TempDir()
	began := time.Now()
	second, err := controlplane.Start(t.Context(), controlplane.WithProgress(&progress), controlplane.WithLogDir(logs))
	if err != nil {
		t.Fatal(err)
	}
	defer second.Stop()
	took := time.Since(began)
	t.Logf("a start takes %s with everything built", took.Round(100*time.Millisecond))
	if progress.Len() > 0 {
		t.Errorf("something was built again:\n%s", progress.String())
	}
	if took > time.Minute {
		t.Errorf("that is not seconds")
	}
	if second.Config().Host == cp.Config().Host || second.Dir() == cp.Dir() {
		t.Error("it shares what must not be shared")
	}
	// Each has its own authority: the admin of one is nobody to the other.
	crossed := second.Config()
	crossed.Host = cp.Config().Host
	if _, err := kubernetes.NewForConfigOrDie(crossed).CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); err == nil {
		t.Error("one control plane accepts the other's admin")
	}

	if err := syscall.Kill(second.Pid(controlplane.APIServer), syscall.SIGSEGV); err != nil {
		t.Fatal(err)
	}
	select {
	case <-second.Done():
	case <-time.After(30 * time.Second):
		t.Fatal("the death of the API server goes unnoticed")
	}
	err = second.Err()
	for _, want := range []string{"kube-apiserver died: ", "the end of its log " + filepath.Join(logs, "kube-apiserver.log") + ":\n", "SIGSEGV"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("there is no %q in %v", want, err)
		}
	}
	dir := second.Dir()
	if stopped := second.Stop(); stopped == nil || !strings.Contains(stopped.Error(), "kube-apiserver died") {
		t.Errorf("Stop says %v", stopped)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory after Stop: %v", err)
	}
	for _, log := range []string{"etcd.log", "kube-scheduler.log", "audit.log"} {
		if info, err := os.Stat(filepath.Join(logs, log)); err != nil || info.Size() == 0 {
			t.Errorf("%s is not kept: %v", log, err)
		}
	}
	if err := cp.Err(); err != nil {
		t.Errorf("the other one: %v", err)
	}
}

func TestStartNamesWhatFails(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		reason string
		opts   []controlplane.Option
		want   []string
	}{
		"API server": {
			"a component that dies is named with the end of its log",
			[]controlplane.Option{small(), controlplane.WithArgs(controlplane.APIServer, "--no-such-flag")},
			[]string{"start control plane: kube-apiserver died: exit status 1", "; the end of its log:\n", "unknown flag: --no-such-flag"},
		},
		"etcd": {
			"likewise",
			[]controlplane.Option{small(), controlplane.WithArgs(controlplane.Etcd, "--log-level=odd")},
			[]string{"start control plane: etcd died: exit status", "odd"},
		},
		"controller manager": {
			"and the others, which start at the same time, are not",
			[]controlplane.Option{controlplane.WithArgs(controlplane.ControllerManager, "--controllers=odd")},
			[]string{"start control plane: kube-controller-manager died: ", "is not in the list of known controllers"},
		},
		"set-up": {
			"the caller's error is Start's",
			[]controlplane.Option{small(), controlplane.WithSetup(func(context.Context, *rest.Config) error { return errors.New("no CRDs here") })},
			[]string{"start control plane: set-up: no CRDs here"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := controlplane.Start(t.Context(), test.opts...)
			if err == nil {
				got.Stop()
				t.Fatalf("%s: it started", test.reason)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%s: there is no %q in\n%v", test.reason, want, err)
				}
			}
		})
	}
}

// TestDeathDuringStart loses the API server when the others wait for it.
func TestDeathDuringStart(t *testing.T) {
	t.Parallel()
	began := time.Now()
	got, err := controlplane.Start(t.Context(), controlplane.WithSetup(func(ctx context.Context, cfg *rest.Config) error {
		_, port, _ := strings.Cut(strings.TrimPrefix(cfg.Host, "https://"), ":")
		pid, err := exec.CommandContext(ctx, "pgrep", "-f", "--", "--secure-port="+port).Output()
		if err != nil {
			return err
		}
		return exec.CommandContext(ctx, "kill", "-KILL", strings.TrimSpace(string(pid))).Run()
	}))
	if err == nil {
		got.Stop()
		t.Fatal("it started")
	}
	if !strings.HasPrefix(err.Error(), "start control plane: kube-apiserver died: signal: killed") {
		t.Errorf("got %v", err)
	}
	if took := time.Since(began); took > time.Minute {
		t.Errorf("that took %s", took)
	}
}

func TestStartEndsWithContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	got, err := controlplane.Start(ctx)
	if err == nil {
		got.Stop()
		t.Fatal("it started")
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

// TestTakenPort lets the first API server find its port taken. It comes out of KUBEBUILDER_ASSETS, which has nothing
// else.
func TestTakenPort(t *testing.T) {
	dir := t.TempDir()
	built, err := controlplane.Build(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf(`#!/bin/sh
if [ ! -e %[1]s/tried ]; then
	touch %[1]s/tried
	echo 'failed to listen on 127.0.0.1:1: bind: address already in use'
	exit 1
fi
exec %[2]s/kube-apiserver "$@"
`, dir, built)
	if err := os.WriteFile(filepath.Join(dir, "kube-apiserver"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBEBUILDER_ASSETS", dir)
	got, err := controlplane.Start(t.Context(), small(), controlplane.WithoutAudit())
	if err != nil {
		t.Fatal(err)
	}
	defer got.Stop()
	if _, err := os.Stat(filepath.Join(dir, "tried")); err != nil {
		t.Errorf("the program in KUBEBUILDER_ASSETS was not used: %v", err)
	}
	if _, err := got.Audit().Since(got.Audit().Mark()); !errors.Is(err, audit.ErrNotCounted) {
		t.Errorf("without an audit log, counting says %v", err)
	}
	if got.Pid(controlplane.Kwok) != 0 || got.Halt(controlplane.Kwok) == nil {
		t.Error("what was left out seems to run")
	}
}

func TestDirIsKept(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), strings.Repeat("a-directory-too-deep-for-the-path-of-a-socket/", 3))
	got, err := controlplane.Start(t.Context(), small(), controlplane.WithDir(dir))
	if err != nil {
		t.Fatal(err)
	}
	if err := got.Stop(); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"kubeconfig", "etcd/member/snap/db", "logs/kube-apiserver.log", "logs/audit.log"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Errorf("not kept: %v", err)
		}
	}
	if _, err := controlplane.Start(t.Context(), small(), controlplane.WithDir(dir)); err == nil || !strings.Contains(err.Error(), "is not empty") {
		t.Errorf("a directory in use: got %v", err)
	}
}

// TestRealRepair damages a copy of the cache and has the real go command mend it.
func TestRealRepair(t *testing.T) {
	t.Parallel()
	built, err := controlplane.Build(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	cache := t.TempDir()
	dir := filepath.Join(cache, filepath.Base(built))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(built)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		link(t, filepath.Join(built, f.Name()), filepath.Join(dir, f.Name()))
	}
	for name, damage := range map[string]func(path string) error{
		"etcd": os.Remove,
		"kwok-stages.yaml": func(path string) error { // not in place: the file is the shared cache's too
			return errors.Join(os.Remove(path), os.WriteFile(path, []byte("{}"), 0o644))
		},
	} {
		if err := damage(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	var progress bytes.Buffer
	again, err := controlplane.Build(t.Context(), controlplane.WithCache(cache), controlplane.WithProgress(&progress))
	if err != nil {
		t.Fatal(err)
	}
	if again != dir || strings.Count(progress.String(), ": done in ") != 2 {
		t.Errorf("in %s:\n%s", again, progress.String())
	}
	out, err := exec.CommandContext(t.Context(), filepath.Join(dir, "etcd"), "--version").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "etcd Version: 3.7.3") {
		t.Errorf("the mended etcd: %v\n%s", err, out)
	}
	want, err := os.ReadFile(filepath.Join(built, "kwok-stages.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "kwok-stages.yaml")); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the mended stages differ (%v)", err)
	}
}

// link makes a second name for a file, or a copy where the names are on different disks.
func link(t *testing.T, from, to string) {
	t.Helper()
	if os.Link(from, to) == nil {
		return
	}
	text, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, text, 0o755); err != nil {
		t.Fatal(err)
	}
}

func TestOptionErrors(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		reason string
		opt    controlplane.Option
		want   string
	}{
		"component": {"a name that is none", controlplane.Without("kubelet"), `no component is named "kubelet"`},
		"args":      {"likewise", controlplane.WithArgs("kubelet", "-v=1"), `no component is named "kubelet"`},
		"etcd":      {"it cannot be left out", controlplane.Without(controlplane.Etcd), "there is no control plane without etcd"},
		"nodes":     {"there are no fewer than none", controlplane.WithNodes(-1), "-1 nodes"},
		"services":  {"no CIDR", controlplane.WithServiceCIDR("10.0.0.0"), "service CIDR"},
		"setup":     {"nothing to call", controlplane.WithSetup(nil), "setup is nil"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := controlplane.Start(t.Context(), test.opt); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s: got %v, want %q", test.reason, err, test.want)
			}
		})
	}
}
