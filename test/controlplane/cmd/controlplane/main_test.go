// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// childMode makes this binary be the command.
const childMode = "CONTROLPLANE_CMD_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childMode) != "" {
		main()
	}
	os.Exit(m.Run())
}

func command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), childMode+"=1")
	return cmd
}

// processes lists what runs in a directory. A control plane names its directory on every command line.
func processes(t *testing.T, dir string) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "ps", "-axo", "pid=,command=").Output()
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, dir) {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return found
}

func TestRunEndsWithSignals(t *testing.T) {
	for name, signal := range map[string]os.Signal{"SIGINT": os.Interrupt, "SIGTERM": syscall.SIGTERM} {
		t.Run(name, func(t *testing.T) {
			cmd := command(t, "run", "--without", "kube-scheduler,kwok")
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			stdout, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			line, err := bufio.NewReader(stdout).ReadString('\n')
			if err != nil {
				t.Fatalf("%v\n%s", err, stderr.String())
			}
			kubeconfig, ok := strings.CutPrefix(strings.TrimSpace(line), "export KUBECONFIG=")
			if !ok {
				t.Fatalf("it printed %q", line)
			}
			dir := filepath.Dir(kubeconfig)
			if found := processes(t, dir); len(found) != 3 { // etcd, API server, controller manager
				t.Fatalf("these run: %q", found)
			}
			began := time.Now()
			if err := cmd.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); err != nil {
				t.Errorf("it ended with %v\n%s", err, stderr.String())
			}
			t.Logf("it ended %s after the signal", time.Since(began).Round(time.Millisecond))
			if found := processes(t, dir); len(found) != 0 {
				t.Errorf("these are left: %q", found)
			}
			if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the directory is left: %v", err)
			}
		})
	}
}

func TestRunCommand(t *testing.T) {
	kept := filepath.Join(t.TempDir(), "kept")
	cmd := command(t, "run", "--dir", kept, "--without=kube-controller-manager,kube-scheduler,kwok", "--service-cidr", "10.96.0.0/20",
		"--arg", "kube-apiserver=--enable-admission-plugins=OwnerReferencesPermissionEnforcement", "--",
		"sh", "-c", "kubectl get service kubernetes -o jsonpath={.spec.clusterIP}; exit 7")
	out, err := cmd.Output()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 7 {
		t.Errorf("the command's status is lost: %v", err)
	}
	if string(out) != "10.96.0.1" {
		t.Errorf("kubectl printed %q", out)
	}
	log, err := os.ReadFile(filepath.Join(kept, "logs", "kube-apiserver.log"))
	if err != nil || !strings.Contains(string(log), "OwnerReferencesPermissionEnforcement") {
		t.Errorf("the log is not kept, or the plugin is not in it: %v", err)
	}
}

func TestBuildPrintsTheDirectory(t *testing.T) {
	out, err := command(t, "build").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "etcd", "kwok"} {
		if _, err := exec.LookPath(filepath.Join(strings.TrimSpace(string(out)), name)); err != nil {
			t.Error(err)
		}
	}
}

func TestWrongUse(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		reason string
		args   []string
		status int
		want   string
	}{
		"nothing":   {"says how it is used", nil, 2, "usage:"},
		"unknown":   {"likewise", []string{"start"}, 2, `no command is named "start"`},
		"help":      {"is no error", []string{"help"}, 0, "usage:"},
		"flag":      {"is named", []string{"run", "--odd"}, 1, "flag provided but not defined: -odd"},
		"argument":  {"a command without -- is taken for a mistake", []string{"run", "kubectl"}, 1, `unexpected argument "kubectl": a command comes after --`},
		"component": {"is named", []string{"run", "--without", "kubelet"}, 1, `no component is named "kubelet"`},
		"arg":       {"must say for whom", []string{"run", "--arg", "kwok"}, 1, "must be component=flag"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			status := run(t.Context(), test.args, &out, &out)
			if status != test.status || !strings.Contains(out.String(), test.want) {
				t.Errorf("%s: got status %d:\n%s", test.reason, status, out.String())
			}
		})
	}
}
