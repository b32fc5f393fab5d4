// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package assets_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ashlar-go/ashlar/test/controlplane/internal/assets"
)

// fakeGo stands for the go command, so that the rules of the cache can be tested without compiling Kubernetes. It
// notes what it builds, and fails or waits when told to.
const fakeGo = `#!/bin/sh
set -e
if [ "$1" = list ]; then
	case "$*" in
	*-deps*) echo dep/one; echo dep/two; echo the/main ;;
	*) echo "$FAKE_KWOK" ;;
	esac
	exit 0
fi
while [ "$1" != -o ]; do shift; done
out=$2
for pkg; do :; done
echo "$pkg" >> "$FAKE_NOTES"
echo dep/one >&2
if [ -n "$FAKE_SAY" ]; then echo "$FAKE_SAY" >&2; exit 1; fi
if [ -n "$FAKE_HANG" ] && [ "$FAKE_HANG" = "$pkg" ]; then echo half > "$out"; sleep 1000; fi
sleep "${FAKE_SLEEP:-0}"
echo "program $pkg $CGO_ENABLED $GOFLAGS $GOWORK" > "$out"
chmod 755 "$out"
`

// world is a recipe, a cache and a go command for one test.
type world struct {
	t      *testing.T
	opts   assets.Options
	notes  string
	output *buffer
}

// buffer is a writer for two goroutines.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func newWorld(t *testing.T) *world {
	t.Helper()
	dir := t.TempDir()
	w := &world{t: t, notes: filepath.Join(dir, "notes"), output: &buffer{}}
	w.opts = assets.Options{
		Recipe: filepath.Join(dir, "build"), Cache: filepath.Join(dir, "cache"), Progress: w.output, Heartbeat: 10 * time.Millisecond,
	}
	for _, module := range []string{"etcd", "kube", "kwok"} {
		w.write("build/"+module+"/go.mod", "module x\n\nrequire k8s.io/kubernetes v1.2.3 // indirect\n")
		w.write("build/"+module+"/go.sum", "")
	}
	for _, stage := range []string{
		"node/fast/node-initialize", "node/heartbeat-with-lease/node-heartbeat-with-lease",
		"pod/fast/pod-ready", "pod/fast/pod-complete", "pod/fast/pod-delete",
		"volume/fast/pvc-provision", "volume/fast/pvc-delete", "volume/fast/pv-bind", "volume/fast/pv-delete",
	} {
		w.write("kwok/kustomize/stage/"+stage+".yaml", "stage: "+stage+"\n")
	}
	w.write("bin/go", fakeGo)
	t.Setenv("PATH", filepath.Join(dir, "bin")+":"+os.Getenv("PATH"))
	t.Setenv("FAKE_NOTES", w.notes)
	t.Setenv("FAKE_KWOK", filepath.Join(dir, "kwok"))
	t.Setenv("GOFLAGS", "-mod=vendor") // must not reach the build
	return w
}

// write makes a file relative to the world's directory.
func (w *world) write(name, text string) {
	w.t.Helper()
	path := filepath.Join(filepath.Dir(w.notes), filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) ensure(names ...string) *assets.Set {
	w.t.Helper()
	set, err := assets.Ensure(w.t.Context(), w.opts, names...)
	if err != nil {
		w.t.Fatal(err)
	}
	return set
}

// built returns the packages built since the last call.
func (w *world) built() string {
	w.t.Helper()
	text, err := os.ReadFile(w.notes)
	if errors.Is(err, os.ErrNotExist) {
		return ""
	}
	if err != nil {
		w.t.Fatal(err)
	}
	if err := os.Remove(w.notes); err != nil {
		w.t.Fatal(err)
	}
	return strings.Join(strings.Fields(string(text)), " ")
}

func (w *world) noGo() {
	w.t.Helper()
	w.t.Setenv("PATH", w.t.TempDir())
}

const allPackages = "go.etcd.io/etcd/server/v3 k8s.io/kubernetes/cmd/kube-apiserver k8s.io/kubernetes/cmd/kube-controller-manager " +
	"k8s.io/kubernetes/cmd/kube-scheduler k8s.io/kubernetes/cmd/kubectl sigs.k8s.io/kwok/cmd/kwok"

func TestBuildsOnce(t *testing.T) {
	w := newWorld(t)
	set := w.ensure(assets.Names()...)
	if got := w.built(); got != allPackages {
		t.Errorf("built %q, want %q", got, allPackages)
	}
	if set.Built != 7 || set.Kubernetes != "v1.2.3" || !strings.HasPrefix(filepath.Base(set.Dir), "v1.2.3-") {
		t.Errorf("got %d built, Kubernetes %s in %s", set.Built, set.Kubernetes, set.Dir)
	}
	text, err := os.ReadFile(set.Path(assets.Etcd))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(text), "program go.etcd.io/etcd/server/v3 0 -buildvcs=false off\n"; got != want {
		t.Errorf("built %q, want %q: the environment decides the content", got, want)
	}
	text, err = os.ReadFile(set.Path(assets.Stages))
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(string(text), "---\nstage: "); got != 9 {
		t.Errorf("%d stages are kept, want 9:\n%s", got, text)
	}

	// A complete cache needs no Go, writes nothing and says nothing.
	said := w.output.String()
	w.noGo()
	if os.Getuid() != 0 { // root may write anywhere
		if err := os.Chmod(set.Dir, 0o555); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Chmod(set.Dir, 0o755) })
	}
	again := w.ensure(assets.Names()...)
	if again.Built != 0 || w.built() != "" || again.Dir != set.Dir {
		t.Errorf("the second time built %d in %s", again.Built, again.Dir)
	}
	if now := w.output.String(); now != said {
		t.Errorf("the second time said %q", strings.TrimPrefix(now, said))
	}
}

func TestBuildsOnlyWhatIsAskedFor(t *testing.T) {
	w := newWorld(t)
	w.ensure(assets.Etcd)
	if got := w.built(); got != "go.etcd.io/etcd/server/v3" {
		t.Errorf("built %q", got)
	}
	w.ensure(assets.Etcd, assets.Kubectl)
	if got := w.built(); got != "k8s.io/kubernetes/cmd/kubectl" {
		t.Errorf("built %q", got)
	}
	if _, err := assets.Ensure(t.Context(), w.opts, "kubelet"); err == nil {
		t.Error("an asset that does not exist is no error")
	}
}

func TestProgress(t *testing.T) {
	w := newWorld(t)
	t.Setenv("FAKE_SLEEP", "0.2")
	w.ensure(assets.Etcd)
	out := w.output.String()
	for _, want := range []string{
		"controlplane: building the control plane into ",
		"controlplane: building etcd (1 of 1)\n",
		", 1 of at most 3 packages compiled, now dep/one\n",
		"controlplane: building etcd (1 of 1): done in ",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("there is no %q in:\n%s", want, out)
		}
	}
}

func TestRepair(t *testing.T) {
	for name, test := range map[string]struct {
		reason string
		damage func(path string) error
		built  string
	}{
		"nothing": {"a whole cache is left alone", func(string) error { return nil }, ""},
		"removed": {"half a cache is completed", os.Remove, "k8s.io/kubernetes/cmd/kubectl"},
		"cut":     {"the size is wrong", func(path string) error { return os.Truncate(path, 3) }, "k8s.io/kubernetes/cmd/kubectl"},
		"altered": {
			"the size is right, the checksum is not",
			func(path string) error {
				text, err := os.ReadFile(path)
				if err != nil {
					return err
				}
				text[0] ^= 1
				return os.WriteFile(path, text, 0o755)
			},
			"k8s.io/kubernetes/cmd/kubectl",
		},
		"touched": {
			"a cache that was copied has other times and the same content",
			func(path string) error { return os.Chtimes(path, time.Time{}, time.Now().Add(-time.Hour)) },
			"",
		},
		"no manifest":     {"what is not recorded may be anything", func(path string) error { return os.Remove(filepath.Dir(path) + "/manifest.json") }, allPackages},
		"broken manifest": {"likewise", func(path string) error { return os.Truncate(filepath.Dir(path)+"/manifest.json", 20) }, allPackages},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			set := w.ensure(assets.Names()...)
			want, err := os.ReadFile(set.Path(assets.Kubectl))
			if err != nil {
				t.Fatal(err)
			}
			w.built()
			if err := test.damage(set.Path(assets.Kubectl)); err != nil {
				t.Fatal(err)
			}
			w.ensure(assets.Names()...)
			if got := w.built(); got != test.built {
				t.Errorf("%s: built %q, want %q", test.reason, got, test.built)
			}
			if got, err := os.ReadFile(set.Path(assets.Kubectl)); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s: after the repair the file holds %q (%v)", test.reason, got, err)
			}
			w.ensure(assets.Names()...)
			if got := w.built(); got != "" {
				t.Errorf("after the repair built %q once more", got)
			}
		})
	}
}

func TestInterruptedBuildResumes(t *testing.T) {
	w := newWorld(t)
	t.Setenv("FAKE_HANG", "k8s.io/kubernetes/cmd/kube-scheduler")
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	go func() {
		for !strings.Contains(w.output.String(), "building kube-scheduler (4 of 7): ") {
			time.Sleep(5 * time.Millisecond)
		}
		cancel(enough)
	}()
	_, err := assets.Ensure(ctx, w.opts, assets.Names()...)
	if !errors.Is(err, enough) || !strings.HasPrefix(err.Error(), "build kube-scheduler: ") {
		t.Fatalf("got %v", err)
	}
	w.built()
	t.Setenv("FAKE_HANG", "")
	set := w.ensure(assets.Names()...)
	if got, want := w.built(), "k8s.io/kubernetes/cmd/kube-scheduler k8s.io/kubernetes/cmd/kubectl sigs.k8s.io/kwok/cmd/kwok"; got != want {
		t.Errorf("resumed with %q, want %q", got, want)
	}
	if left, _ := filepath.Glob(filepath.Join(set.Dir, ".tmp-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestTwoAtOnceTakeTurns(t *testing.T) {
	w := newWorld(t)
	t.Setenv("FAKE_SLEEP", "0.1")
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() {
			if _, err := assets.Ensure(t.Context(), w.opts, assets.Names()...); err != nil {
				t.Error(err)
			}
		})
	}
	both.Wait()
	if got := w.built(); got != allPackages {
		t.Errorf("built %q, want everything once", got)
	}
	if !strings.Contains(w.output.String(), "controlplane: waiting for another build (process ") {
		t.Errorf("nobody said that it waits:\n%s", w.output)
	}
}

func TestWaitingEndsWithContext(t *testing.T) {
	w := newWorld(t)
	t.Setenv("FAKE_HANG", "go.etcd.io/etcd/server/v3")
	ctx, stop := context.WithCancel(t.Context())
	var first sync.WaitGroup
	first.Go(func() { _, _ = assets.Ensure(ctx, w.opts, assets.Etcd) }) // its error is the cancellation below
	for !strings.Contains(w.output.String(), "building etcd (1 of 1): ") {
		time.Sleep(5 * time.Millisecond)
	}
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := assets.Ensure(short, w.opts, assets.Etcd); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "build lock") {
		t.Errorf("got %v", err)
	}
	stop()
	first.Wait()
}

// TestOneSentence has what can be wrong with a machine; each must be said in one line that names the way out.
func TestOneSentence(t *testing.T) {
	type row struct {
		reason string
		breaks func(w *world)
		is     error
		want   []string
	}
	rows := map[string]row{
		"no Go": {
			"an empty cache cannot be filled", (*world).noGo, assets.ErrNoGo,
			[]string{"no go command in PATH", "etcd, kube-apiserver", "KUBEBUILDER_ASSETS"},
		},
		"cache below a file": {
			"not a directory", func(w *world) {
				w.write("file", "")
				w.opts.Cache = filepath.Join(filepath.Dir(w.notes), "file", "cache")
			}, nil, []string{"create the cache directory (XDG_CACHE_HOME chooses another)", "not a directory"},
		},
		"no recipe": {
			"the modules are not there", func(w *world) { w.opts.Recipe = "/nowhere" }, os.ErrNotExist,
			[]string{"read build recipe", "/nowhere/etcd/go.mod"},
		},
		"no home": {
			"there is no cache directory", func(w *world) {
				w.opts.Cache = ""
				w.t.Setenv("HOME", "")
				w.t.Setenv("XDG_CACHE_HOME", "")
			}, nil, []string{"find the user's cache directory (set XDG_CACHE_HOME)"},
		},
		"ready directory missing": {
			"a wrong KUBEBUILDER_ASSETS would go unnoticed otherwise", func(w *world) { w.opts.Ready = "/nowhere" }, os.ErrNotExist,
			[]string{"use KUBEBUILDER_ASSETS", "/nowhere"},
		},
		"ready file": {
			"likewise", func(w *world) { w.opts.Ready = filepath.Join(filepath.Dir(w.notes), "bin", "go") }, nil,
			[]string{"use KUBEBUILDER_ASSETS", "is not a directory"},
		},
	}
	if os.Getuid() != 0 { // root may write anywhere
		rows["cache without write permission"] = row{
			"not ours", func(w *world) {
				if err := os.Mkdir(w.opts.Cache, 0o555); err != nil {
					w.t.Fatal(err)
				}
			}, os.ErrPermission, []string{"create the cache directory (XDG_CACHE_HOME chooses another)"},
		}
	}
	for name, test := range rows {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			test.breaks(w)
			_, err := assets.Ensure(t.Context(), w.opts, assets.Names()...)
			if err == nil || (test.is != nil && !errors.Is(err, test.is)) {
				t.Fatalf("%s: got %v", test.reason, err)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%s: there is no %q in %q", test.reason, want, err)
				}
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("%s: more than one line: %v", test.reason, err)
			}
		})
	}
}

func TestBuildErrors(t *testing.T) {
	for name, test := range map[string]struct {
		reason, say string
		want        []string
	}{
		"compiler": {"what it says is what is wrong", "# the/main\nmain.go:1:1: oops", []string{"build etcd: go build failed (exit status 1)", "main.go:1:1: oops"}},
		"disk":     {"in words, with what to do", "write /x: no space left on device", []string{"a disk is full", "free space and run again", "no space left"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			t.Setenv("FAKE_SAY", test.say)
			_, err := assets.Ensure(t.Context(), w.opts, assets.Etcd)
			for _, want := range test.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%s: there is no %q in %v", test.reason, want, err)
				}
			}
			if !strings.Contains(w.output.String(), "building etcd (1 of 1): failed after") {
				t.Errorf("the progress does not say so:\n%s", w.output)
			}
		})
	}
}

func TestReadyProgramsAreUsed(t *testing.T) {
	w := newWorld(t)
	w.write("ready/kube-apiserver", "ready made")
	w.opts.Ready = filepath.Join(filepath.Dir(w.notes), "ready")
	set := w.ensure(assets.Etcd, assets.APIServer)
	if got, want := set.Path(assets.APIServer), filepath.Join(w.opts.Ready, "kube-apiserver"); got != want {
		t.Errorf("the API server is %s, want %s", got, want)
	}
	if got := w.built(); got != "go.etcd.io/etcd/server/v3" {
		t.Errorf("built %q, want the rest", got)
	}
}

func TestKey(t *testing.T) {
	w := newWorld(t)
	key := func() string {
		t.Helper()
		r, err := assets.LoadRecipe(w.opts.Recipe)
		if err != nil {
			t.Fatal(err)
		}
		return r.Key
	}
	before := key()
	if before != key() {
		t.Error("the key is not stable")
	}
	w.write("build/kwok/go.sum", "x v1.0.0 h1:x\n")
	sums := key()
	if sums == before {
		t.Error("another go.sum has the same key")
	}
	w.write("build/kube/go.mod", "module x\n\nrequire (\n\tk8s.io/kubernetes v1.3.0-rc.1 // indirect\n)\n")
	if got := key(); !strings.HasPrefix(got, "v1.3.0-rc.1-") {
		t.Errorf("the key does not begin with the version: %s", got)
	}
	w.write("build/kube/go.mod", "module x\n")
	if _, err := assets.LoadRecipe(w.opts.Recipe); err == nil || !strings.Contains(err.Error(), "does not require k8s.io/kubernetes") {
		t.Errorf("got %v", err)
	}
}

func TestLocate(t *testing.T) {
	dir, err := assets.Locate()
	if err != nil {
		t.Fatal(err)
	}
	r, err := assets.LoadRecipe(dir)
	if err != nil {
		t.Fatal(err)
	}
	if r.Kubernetes != "v1.37.2" {
		t.Errorf("the recipe is for Kubernetes %s", r.Kubernetes)
	}
}
