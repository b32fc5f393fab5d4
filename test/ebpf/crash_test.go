// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ebpf

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/ashlar-go/ashlar/bpfmap/prog"
	"github.com/ashlar-go/ashlar/test/ebpf/progs"
)

// counters says how the tables of One go on in Wide: the same counter at another place.
func counters() map[string]prog.Keep {
	return map[string]prog.Keep{"flows": prog.Counters(prog.Word{From: 0, To: 8}), "percpu": prog.Counters(prog.Word{From: 0, To: 8})}
}

func wide() prog.Release {
	r := release(progs.Wide, "on_tcx")
	r.Maps = counters()
	return r
}

// job is what a child process does to a slot.
type job struct {
	Act, Root, Netns string
	Step             int    // it kills itself in front of this one
	Stop             string // and stops in front of the first of these
}

// acts are the upgrades that are cut off at every step.
var acts = map[string]func(context.Context, *prog.Slot) error{
	"one": func(ctx context.Context, s *prog.Slot) error {
		return second(s.Sync(ctx, release(progs.One, "on_tcx")))
	},
	"two": func(ctx context.Context, s *prog.Slot) error {
		return second(s.Sync(ctx, release(progs.Two, "on_tcx")))
	},
	"wide":     func(ctx context.Context, s *prog.Slot) error { return second(s.Sync(ctx, wide())) },
	"rollback": func(ctx context.Context, s *prog.Slot) error { return second(s.Rollback(ctx, "asked")) },
	"narrow": func(ctx context.Context, s *prog.Slot) error {
		r := release(progs.One, "on_tcx")
		r.Maps = map[string]prog.Keep{"flows": prog.Counters(prog.Word{From: 8, To: 0}), "percpu": prog.Counters(prog.Word{From: 8, To: 0})}
		return second(s.Sync(ctx, r))
	},
	"overlap": func(ctx context.Context, s *prog.Slot) error {
		return second(s.Sync(ctx, release(progs.Two, "on_tcx")))
	},
	"gap": func(ctx context.Context, s *prog.Slot) error {
		return second(s.Sync(ctx, release(progs.Two, "on_tcx")))
	},
	"gap_xdp": func(ctx context.Context, s *prog.Slot) error {
		return second(s.Sync(ctx, release(progs.Two, "on_xdp")))
	},
	"merge": func(ctx context.Context, s *prog.Slot) error {
		r := release(progs.Wide, "on_tcx")
		r.Maps = map[string]prog.Keep{"percpu": prog.Fresh(), "flows": prog.Merged(func(_, _, after, _ []byte) []byte { return append(make([]byte, 8), after...) })}
		return second(s.Sync(ctx, r))
	},
	"remove": func(_ context.Context, s *prog.Slot) error { return s.Remove() },
	"traced": func(ctx context.Context, s *prog.Slot) error {
		return second(s.Sync(ctx, release(progs.Two, "on_tracepoint")))
	},
	"trace": func(ctx context.Context, s *prog.Slot) error {
		return second(s.Sync(ctx, release(progs.One, "on_tracepoint")))
	},
}

func second(_ prog.Result, err error) error { return err }

func (j job) slot(opts ...prog.Option) (*prog.Slot, error) {
	h := prog.TCX("in", prog.Ingress).In(j.Netns)
	if strings.HasPrefix(j.Act, "trace") {
		h = prog.Tracepoint("syscalls", "sys_enter_getpgid")
	}
	switch j.Act {
	case "overlap":
		opts = append(opts, prog.WithStrategy(prog.Overlap))
	case "gap":
		opts = append(opts, prog.WithStrategy(prog.Gap))
	case "gap_xdp":
		h = prog.XDP("in", prog.Generic).In(j.Netns)
		opts = append(opts, prog.WithStrategy(prog.Gap))
	}
	return prog.New(j.Root, "slot", h, opts...)
}

// child runs in a process of its own.
func child(text string) int {
	var j job
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	if _, ok := capabilitySets[j.Act]; ok {
		if err := limited(j); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return 0
	}
	n := 0
	s, err := j.slot(prog.WithObserver(func(e prog.Event) {
		if string(e.Step) == j.Stop {
			_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
			j.Stop = ""
		}
		if n == j.Step {
			fmt.Println(e.Step, e.Detail)
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
		n++
	}))
	if err == nil {
		err = acts[j.Act](context.Background(), s)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func (j job) start(t testing.TB) *exec.Cmd {
	t.Helper()
	text, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "EBPF_CHILD="+string(text))
	return cmd
}

// run returns in front of which step the child died, "" if it lived.
func (j job) run(t testing.TB) string {
	t.Helper()
	cmd := j.start(t)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	exit := (*exec.ExitError)(nil)
	switch {
	case err == nil:
		return ""
	case errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL:
		return strings.TrimSpace(string(out))
	}
	t.Fatalf("child %+v: %v: %s", j, err, errs.String())
	return ""
}

// attached counts programs of ours at the ingress of an interface.
func attached(t testing.TB, netns string) (n int) {
	t.Helper()
	enter(t, netns, func() {
		iface, err := net.InterfaceByName("in")
		if err != nil {
			return // nothing can be at an interface that is gone
		}
		q, err := link.QueryPrograms(link.QueryOptions{Target: iface.Index, Attach: ebpf.AttachTCXIngress})
		if err != nil {
			t.Errorf("query: %v", err)
			return
		}
		n = len(q.Programs)
	})
	return n
}

// leftovers lists what only lives during an upgrade.
func leftovers(t testing.TB, dir string) (out []string) {
	t.Helper()
	versions := 0
	var back []string // only good for a version to go back to
	_ = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		switch name := d.Name(); {
		case name == "next" || name == "gone" || name == "new" || name == "link-new" || strings.HasPrefix(name, "f-") || strings.HasPrefix(name, "g-"):
			out = append(out, path)
		case strings.HasPrefix(name, "r-") || strings.HasPrefix(name, "s-"):
			back = append(back, path)
		case d.IsDir() && strings.HasPrefix(name, "v"):
			if versions++; versions > 2 {
				out = append(out, path)
			}
		}
		return nil
	})
	if versions < 2 {
		out = append(out, back...)
	}
	return out
}

// packets is what a flow table says about a flow, of the version in force. Wide has the counter at another place.
func packets(t testing.TB, s *prog.Slot, table string, flow uint32) (sum uint64) {
	t.Helper()
	m, err := s.Map(table)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	words := m.ValueSize() / 8
	if table == "percpu" {
		var values [][2]uint64
		if words == 1 {
			var narrow []uint64
			if err := m.Lookup(flow, &narrow); err != nil {
				t.Fatal(err)
			}
			for _, n := range narrow {
				sum += n
			}
			return sum
		}
		if err := m.Lookup(flow, &values); err != nil {
			t.Fatal(err)
		}
		for _, v := range values {
			sum += v[1]
		}
		return sum
	}
	if words == 1 {
		if err := m.Lookup(flow, &sum); err != nil {
			t.Fatal(err)
		}
		return sum
	}
	var v [2]uint64
	if err := m.Lookup(flow, &v); err != nil {
		t.Fatal(err)
	}
	return v[1]
}

// TestKillAtEveryStep cuts an upgrade off in front of each of its steps, under traffic, and then looks at what is in
// force, goes on, and counts.
func TestKillAtEveryStep(t *testing.T) {
	for name, tt := range map[string]struct {
		reason string
		before []string // acts that run to their end first
		act    string
		after  string // act that the next process runs
	}{
		"install":   {"nothing is in force", nil, "one", "one"},
		"upgrade":   {"both use the same maps", []string{"one"}, "two", "two"},
		"migration": {"two tables get another layout", []string{"one"}, "wide", "wide"},
		"rollback":  {"and back, with what was counted meanwhile", []string{"one", "wide"}, "rollback", "narrow"},
		"second":    {"the version before the one before goes", []string{"one", "two"}, "one", "one"},
		"downgrade": {"a migration cut off, and another release is wanted then", []string{"one"}, "wide", "two"},
	} {
		t.Run(name, func(t *testing.T) {
			root, w := bpffs(t), newNetwork(t)
			steps := 0
			for ; ; steps++ {
				j := job{Act: tt.act, Root: root, Netns: w.in, Step: steps}
				s, err := j.slot()
				if err != nil {
					t.Fatal(err)
				}
				sent := 0
				for _, act := range tt.before {
					if err := acts[act](t.Context(), s); err != nil {
						t.Fatalf("%s: %v", act, err)
					}
					w.send(7, 5)
					sent += 7
				}
				stop, done := make(chan struct{}), make(chan struct{})
				var once sync.Once
				halt := func() { once.Do(func() { close(stop) }); <-done }
				go func() {
					defer close(done)
					for {
						select {
						case <-stop:
							return
						default:
							w.send(10, 5)
							sent += 10
							time.Sleep(200 * time.Microsecond)
						}
					}
				}()
				died := j.run(t)
				halt()

				// As it was left, before anybody cleans up.
				n := attached(t, w.in)
				if n > 1 || n == 0 && tt.before != nil {
					t.Errorf("step %d (%s): %d programs in force", steps, died, n)
				}
				if tt.before != nil {
					w.send(20, 5)
					sent += 20
				}
				if _, err := s.Recover(t.Context()); err != nil {
					t.Errorf("step %d (%s): recover: %v", steps, died, err)
				}
				if left := leftovers(t, root); len(left) > 0 {
					t.Errorf("step %d (%s): left over: %v", steps, died, left)
				}
				want := 1
				if tt.before == nil && n == 0 {
					want = 0
				}
				if n := attached(t, w.in); n != want {
					t.Errorf("step %d (%s): %d programs in force after recovery, want %d", steps, died, n, want)
				}
				if tt.before != nil {
					check(t, s, steps, died, uint64(sent))
				}
				err = acts[tt.after](t.Context(), s)
				if err != nil && !(errors.Is(err, prog.ErrMap) && tt.act == "wide" && tt.after == "two") {
					t.Errorf("step %d (%s): again: %v", steps, died, err)
				}
				if tt.before != nil {
					w.send(20, 5)
					sent += 20
					check(t, s, steps, died, uint64(sent))
				}
				if err := s.Remove(); err != nil {
					t.Fatal(err)
				}
				if entries, _ := os.ReadDir(root); len(entries) > 0 || attached(t, w.in) > 0 {
					t.Errorf("step %d (%s): %v left after removal", steps, died, entries)
				}
				if died == "" {
					break
				}
			}
			if steps < 5 {
				t.Errorf("only %d steps", steps)
			}
			t.Logf("killed in front of each of %d steps", steps)
		})
	}
}

func check(t *testing.T, s *prog.Slot, step int, died string, sent uint64) {
	t.Helper()
	hits, err := s.Map("hits")
	if err != nil {
		t.Errorf("step %d (%s): %v", step, died, err)
		return
	}
	defer hits.Close()
	if sum, each := total(t, hits); sum != sent {
		t.Errorf("step %d (%s): %d sent, %d counted %v", step, died, sent, sum, each)
	}
	for _, table := range []string{"flows", "percpu"} {
		if n := packets(t, s, table, 5); n != sent {
			t.Errorf("step %d (%s): %d sent, %s has %d", step, died, sent, table, n)
		}
	}
}

// A tracepoint has its program behind a trampoline.
func TestKillAtEveryStepOfATracepoint(t *testing.T) {
	root := bpffs(t)
	steps := 0
	for ; ; steps++ {
		j := job{Act: "traced", Root: root, Step: steps}
		s, err := j.slot()
		if err != nil {
			t.Fatal(err)
		}
		if err := acts["trace"](t.Context(), s); err != nil {
			t.Fatal(err)
		}
		only, err := s.Map("only")
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(only.Put(uint32(0), uint32(os.Getpid())), only.Close()); err != nil {
			t.Fatal(err)
		}
		getpgid(10)
		died := j.run(t)
		getpgid(10)
		count := func(what string, want uint64) {
			hits, err := s.Map("hits")
			if err != nil {
				t.Fatalf("step %d (%s): %s: %v", steps, died, what, err)
			}
			defer hits.Close()
			if sum, each := total(t, hits); sum != want {
				t.Errorf("step %d (%s): %s: %d events, %d counted %v", steps, died, what, want, sum, each)
			}
		}
		count("as left", 20)
		if _, err := s.Recover(t.Context()); err != nil {
			t.Errorf("step %d (%s): recover: %v", steps, died, err)
		}
		getpgid(10)
		count("recovered", 30)
		if err := acts["traced"](t.Context(), s); err != nil {
			t.Errorf("step %d (%s): again: %v", steps, died, err)
		}
		getpgid(10)
		count("upgraded", 40)
		if left := leftovers(t, root); len(left) > 0 {
			t.Errorf("step %d (%s): left over: %v", steps, died, left)
		}
		if err := s.Remove(); err != nil {
			t.Fatal(err)
		}
		if died == "" {
			break
		}
	}
	t.Logf("killed in front of each of %d steps", steps)
}

// The first program at a tracepoint: stub, slot and link are not there yet.
func TestKillAtEveryStepOfATrampoline(t *testing.T) {
	root := bpffs(t)
	steps := 0
	for ; ; steps++ {
		j := job{Act: "trace", Root: root, Step: steps}
		s, err := j.slot()
		if err != nil {
			t.Fatal(err)
		}
		died := j.run(t)
		if _, err := s.Recover(t.Context()); err != nil {
			t.Errorf("step %d (%s): recover: %v", steps, died, err)
		}
		if err := acts["trace"](t.Context(), s); err != nil {
			t.Fatalf("step %d (%s): again: %v", steps, died, err)
		}
		only, err := s.Map("only")
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(only.Put(uint32(0), uint32(os.Getpid())), only.Close()); err != nil {
			t.Fatal(err)
		}
		getpgid(10)
		hits, err := s.Map("hits")
		if err != nil {
			t.Fatal(err)
		}
		if sum, each := total(t, hits); sum != 10 {
			t.Errorf("step %d (%s): 10 events, %v counted", steps, died, each)
		}
		hits.Close()
		if left := leftovers(t, root); len(left) > 0 {
			t.Errorf("step %d (%s): left over: %v", steps, died, left)
		}
		if err := s.Remove(); err != nil {
			t.Fatal(err)
		}
		if died == "" {
			break
		}
	}
	t.Logf("killed in front of each of %d steps", steps)
}

// The interface has come back, and the process that attaches the program again is killed.
func TestKillAtEveryStepOfAReattachment(t *testing.T) {
	root, w := bpffs(t), newNetwork(t)
	steps := 0
	for ; ; steps++ {
		j := job{Act: "one", Root: root, Netns: w.in, Step: steps}
		s, err := j.slot()
		if err != nil {
			t.Fatal(err)
		}
		if err := acts["one"](t.Context(), s); err != nil {
			t.Fatal(err)
		}
		w.unplug()
		w.plug()
		died := j.run(t)
		if n := attached(t, w.in); n > 1 {
			t.Errorf("step %d (%s): %d programs in force", steps, died, n)
		}
		if _, err := s.Recover(t.Context()); err != nil {
			t.Errorf("step %d (%s): recover: %v", steps, died, err)
		}
		if err := acts["one"](t.Context(), s); err != nil {
			t.Errorf("step %d (%s): again: %v", steps, died, err)
		}
		if n := attached(t, w.in); n != 1 {
			t.Errorf("step %d (%s): %d programs in force at last", steps, died, n)
		}
		w.send(10, 5)
		check(t, s, steps, died, 10)
		if err := s.Remove(); err != nil {
			t.Fatal(err)
		}
		if died == "" {
			break
		}
	}
	t.Logf("killed in front of each of %d steps", steps)
}

// The same at any moment, not only between steps: a migration under traffic, killed from outside.
func TestKillAtAnyMoment(t *testing.T) {
	root, w := bpffs(t), newNetwork(t)
	rounds, finished := 60, 0
	if os.Getenv("SOAK") != "" {
		rounds = 3000
	}
	for i := range rounds {
		j := job{Act: "wide", Root: root, Netns: w.in, Step: -1}
		s, err := j.slot()
		if err != nil {
			t.Fatal(err)
		}
		if err := acts["one"](t.Context(), s); err != nil {
			t.Fatal(err)
		}
		cmd := j.start(t)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		sent := 0
		for end := time.Now().Add(time.Duration(i%60) * time.Millisecond); time.Now().Before(end); {
			w.send(5, 5)
			sent += 5
		}
		_ = cmd.Process.Kill()
		if cmd.Wait() == nil {
			finished++
		}
		w.send(5, 5)
		sent += 5
		if _, err := s.Recover(t.Context()); err != nil {
			t.Fatalf("round %d: recover: %v", i, err)
		}
		if n := attached(t, w.in); n != 1 {
			t.Errorf("round %d: %d programs in force", i, n)
		}
		if left := leftovers(t, root); len(left) > 0 {
			t.Errorf("round %d: left over: %v", i, left)
		}
		check(t, s, i, "killed", uint64(sent))
		if err := s.Remove(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("killed %d times, %d times too late", rounds-finished, finished)
}
