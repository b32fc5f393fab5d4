// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ebpf

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/ashlar-go/ashlar/bpfmap"
	"github.com/ashlar-go/ashlar/bpfmap/prog"
	"github.com/ashlar-go/ashlar/bpfmap/sign"
	"github.com/ashlar-go/ashlar/test/ebpf/progs"
)

// signer signs for the tests.
type signer struct {
	t    testing.TB
	key  ed25519.PrivateKey
	keys *sign.Keys
}

func newSigner(t testing.TB) *signer {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := sign.New([]sign.Key{{ID: "release", Public: key.Public()}})
	if err != nil {
		t.Fatal(err)
	}
	return &signer{t, key, keys}
}

func (s *signer) manifest(object []byte, use sign.Use, from, until time.Time) []byte {
	s.t.Helper()
	raw, err := sign.Manifest{Object: sign.Digest(object), Use: use, KeyID: "release", NotBefore: from.Truncate(time.Second), NotAfter: until.Truncate(time.Second)}.Encode()
	if err != nil {
		s.t.Fatal(err)
	}
	return raw
}

func (s *signer) sign(manifest []byte) []byte {
	s.t.Helper()
	signature, err := sign.Sign(manifest, s.key)
	if err != nil {
		s.t.Fatal(err)
	}
	return signature
}

// TestRefusedLeavesNothing: whatever is refused, nothing is loaded, nothing is pinned, and what was in force still is.
func TestRefusedLeavesNothing(t *testing.T) {
	root, w := bpffs(t), newNetwork(t)
	h := prog.TCX("in", prog.Ingress).In(w.in)
	sg := newSigner(t)
	use := sign.Use{Program: "on_tcx", Hook: "tcx/ingress", Target: "in"}
	now := time.Now()
	good := sg.manifest(progs.Two, use, now.Add(-time.Hour), now.Add(time.Hour))
	old := sg.manifest(progs.Two, use, now.Add(-2*time.Hour), now.Add(-time.Hour))
	egress := sg.manifest(progs.Two, sign.Use{Program: "on_tcx", Hook: "tcx/egress", Target: "in"}, now.Add(-time.Hour), now.Add(time.Hour))
	tampered := bytes.Clone(progs.Two)
	tampered[len(tampered)/2] ^= 1
	sibling := bytes.Replace(good, []byte("on_tcx"), []byte("broken"), 1)

	retired, err := sign.New([]sign.Key{{ID: "release", Public: sg.key.Public(), NotAfter: now.Add(-time.Minute)}})
	if err != nil {
		t.Fatal(err)
	}
	other := newSigner(t)

	strict := prog.WithLimits(prog.Limits{Object: 1000})
	bomb := prog.WithLimits(prog.Limits{MapMemory: 1000})
	for name, tt := range map[string]struct {
		reason  string
		release prog.Release
		opts    []prog.Option
		want    error
	}{
		"tampered object":   {"one bit", prog.Release{Object: tampered, Program: "on_tcx", Verify: sg.keys.For(good, sg.sign(good))}, nil, sign.ErrDigest},
		"tampered manifest": {"another program", prog.Release{Object: progs.Two, Program: "broken", Verify: sg.keys.For(sibling, sg.sign(good))}, nil, sign.ErrSignature},
		"other hook":        {"signed for egress", prog.Release{Object: progs.Two, Program: "on_tcx", Verify: sg.keys.For(egress, sg.sign(egress))}, nil, sign.ErrBinding},
		"expired":           {"an hour ago", prog.Release{Object: progs.Two, Program: "on_tcx", Verify: sg.keys.For(old, sg.sign(old))}, nil, sign.ErrExpired},
		"expired key":       {"a minute ago", prog.Release{Object: progs.Two, Program: "on_tcx", Verify: retired.For(good, sg.sign(good))}, nil, sign.ErrExpired},
		"other key":         {"it has the right name", prog.Release{Object: progs.Two, Program: "on_tcx", Verify: sg.keys.For(good, other.sign(good))}, nil, sign.ErrSignature},
		"no signature":      {"fail closed", prog.Release{Object: progs.Two, Program: "on_tcx", Verify: sg.keys.For(good, nil)}, nil, sign.ErrUnsigned},
		"no check":          {"fail closed", prog.Release{Object: progs.Two, Program: "on_tcx"}, nil, prog.ErrUnverified},
		"oversized":         {"before anything else", prog.Release{Object: progs.Two, Program: "on_tcx", Verify: prog.Unsigned}, []prog.Option{strict}, prog.ErrLimit},
		"map bomb":          {"maps are made before programs are verified", prog.Release{Object: progs.Two, Program: "on_tcx", Verify: prog.Unsigned}, []prog.Option{bomb}, prog.ErrLimit},
		"rejected":          {"by the kernel", prog.Release{Object: progs.Broken, Program: "broken", Verify: prog.Unsigned}, nil, prog.ErrRejected},
		"probe":             {"after it was loaded and pinned", prog.Release{Object: progs.Two, Program: "on_tcx", Verify: prog.Unsigned, Probes: []prog.Probe{{Data: make([]byte, 64), Return: 7}}}, nil, prog.ErrProbe},
		"map layout":        {"nobody said how", prog.Release{Object: progs.Wide, Program: "on_tcx", Verify: prog.Unsigned}, nil, prog.ErrMap},
		"unknown map":       {"a typo", prog.Release{Object: progs.Two, Program: "on_tcx", Verify: prog.Unsigned, Maps: map[string]prog.Keep{"flow": prog.Same()}}, nil, prog.ErrMap},
		"bad counters":      {"beyond the value", prog.Release{Object: progs.Wide, Program: "on_tcx", Verify: prog.Unsigned, Maps: map[string]prog.Keep{"flows": prog.Counters(prog.Word{From: 8, To: 8}), "percpu": prog.Fresh()}}, nil, prog.ErrMap},
	} {
		t.Run(name, func(t *testing.T) {
			for _, installed := range []bool{false, true} {
				s, err := prog.New(root, "slot", h, tt.opts...)
				if err != nil {
					t.Fatal(err)
				}
				plain, err := prog.New(root, "slot", h)
				if err != nil {
					t.Fatal(err)
				}
				if installed {
					sync1(t, plain, release(progs.One, "on_tcx"))
				}
				programs, maps := loaded()
				_, err = s.Sync(t.Context(), tt.release)
				if !errors.Is(err, tt.want) {
					if !installed && errors.Is(tt.want, prog.ErrMap) && err == nil {
						_ = plain.Remove() // there was no map to keep
						continue
					}
					t.Errorf("%s: got %v, want %v", tt.reason, err, tt.want)
				}
				runtime.GC()
				if p, m := settled(programs, maps); p > programs || m > maps {
					t.Errorf("%s: %d programs and %d maps were loaded, now %d and %d", tt.reason, programs, maps, p, m)
				}
				if left := leftovers(t, root); len(left) > 0 {
					t.Errorf("%s: left over: %v", tt.reason, left)
				}
				want := 0
				if entries, _ := os.ReadDir(root); !installed && len(entries) > 0 {
					t.Errorf("%s: %v is there", tt.reason, entries)
				}
				if installed {
					want = 1
					w.send(5, 1)
					if sum, each := total(t, mapOf(t, plain, "hits")); sum != 5 || each[1] != 5 {
						t.Errorf("%s: %v counted by what was in force", tt.reason, each)
					}
				}
				if n := attached(t, w.in); n != want {
					t.Errorf("%s: %d programs in force, want %d", tt.reason, n, want)
				}
				if err := plain.Remove(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
	// And with nothing wrong it runs.
	s := slot(t, root, h)
	sync1(t, s, prog.Release{Object: progs.Two, Program: "on_tcx", Verify: sg.keys.For(good, sg.sign(good))})
}

// loaded counts the programs and maps of this machine that have the names of ours; others work on it, too.
func loaded() (programs, maps int) {
	for id := ebpf.ProgramID(0); ; {
		next, err := ebpf.ProgramGetNextID(id)
		if err != nil {
			break
		}
		id = next
		if p, err := ebpf.NewProgramFromID(id); err == nil {
			if info, err := p.Info(); err == nil && (strings.HasPrefix(info.Name, "on_") || info.Name == "broken" || strings.HasPrefix(info.Name, "ashlar")) {
				programs++
			}
			p.Close()
		}
	}
	for id := ebpf.MapID(0); ; {
		next, err := ebpf.MapGetNextID(id)
		if err != nil {
			break
		}
		id = next
		if m, err := ebpf.NewMapFromID(id); err == nil {
			if info, err := m.Info(); err == nil && (slices.Contains([]string{"hits", "only", "percpu"}, info.Name) || strings.HasPrefix(info.Name, "ashlar")) {
				maps++
			}
			m.Close()
		}
	}
	return programs, maps
}

// settled counts again until it is no more than before: the kernel frees with a delay.
func settled(programs, maps int) (p, m int) {
	for range 60 {
		if p, m = loaded(); p <= programs && m <= maps {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	return p, m
}

// The file is another one when it is loaded than when it was checked: it is read once.
func TestFileSwappedBetweenCheckAndLoad(t *testing.T) {
	root, w := bpffs(t), newNetwork(t)
	sg := newSigner(t)
	path := filepath.Join(t.TempDir(), "flow.o")
	if err := os.WriteFile(path, progs.One, 0o600); err != nil {
		t.Fatal(err)
	}
	object, err := prog.ReadObject(path, 0)
	if err != nil {
		t.Fatal(err)
	}
	manifest := sg.manifest(progs.One, sign.Use{Program: "on_tcx", Hook: "tcx/ingress", Target: sign.AnyTarget}, time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
	check := sg.keys.For(manifest, sg.sign(manifest))
	s := slot(t, root, prog.TCX("in", prog.Ingress).In(w.in))
	res := sync1(t, s, prog.Release{Object: object, Program: "on_tcx", Verify: func(o []byte, program, hook, target string) error {
		err := check(o, program, hook, target)
		copy(object, progs.Two) // both the file and the bytes in memory change under us
		if werr := os.WriteFile(path, progs.Two, 0o600); werr != nil {
			t.Error(werr)
		}
		return err
	}})
	if "sha256:"+res.Digest != sign.Digest(progs.One) {
		t.Errorf("loaded %s", res.Digest)
	}
	w.send(5, 1)
	if _, each := total(t, mapOf(t, s, "hits")); each[1] != 5 {
		t.Errorf("counted %v", each)
	}
}

func TestVerdicts(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip(skipped)
	}
	h := prog.TCX("in", prog.Ingress)
	_, err := prog.Load(progs.Broken, prog.Unsigned, prog.Want{Program: "broken", Hook: h})
	rejected := (*prog.VerifierError)(nil)
	if !errors.As(fmt.Errorf("wrapped: %w", err), &rejected) || !errors.Is(err, unix.EACCES) {
		t.Fatalf("got %v", err)
	}
	v := rejected.Verdict
	if v.Instruction != 1 || v.Class != prog.ClassPacket || !strings.Contains(v.Reason, "invalid access to packet") ||
		!strings.HasPrefix(v.Source, "return data[99]") || !strings.HasPrefix(v.File, "progs.c:") || !strings.Contains(v.Registers, "R1") ||
		v.Processed != 2 || v.Limit != 1_000_000 || !strings.Contains(v.Log, v.Opcode) {
		t.Errorf("verdict %+v", v)
	}
	l, err := prog.Load(progs.One, prog.Unsigned, prog.Want{Program: "on_tcx", Hook: h})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if !l.Verdict.Accepted || l.Verdict.Processed == 0 || l.Verdict.Limit != 1_000_000 {
		t.Errorf("verdict %+v", l.Verdict)
	}
}

func TestCheck(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip(skipped)
	}
	got := prog.Check()
	if len(got) != 12 {
		t.Errorf("%d kinds", len(got))
	}
	for _, s := range got {
		if (s.Why == "") != (s.Loads && s.Attaches && s.Here) {
			t.Errorf("%+v", s)
		}
		if s.Slot && !s.Attaches {
			t.Errorf("the tests of this folder use %s, and Check says %s", s.Kind, s.Why)
		}
		t.Log(s)
	}
}

// An upgrade in a process that has no more than it needs, and an error that names what is missing in one that has less.
// https://github.com/cilium/ebpf/issues/1617
func TestReport_cilium_ebpf_1617Capabilities(t *testing.T) {
	root, w := bpffs(t), newNetwork(t)
	for act := range capabilitySets {
		t.Run(act, func(t *testing.T) {
			cmd := job{Act: act, Root: root, Netns: w.in}.start(t)
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Errorf("%v:\n%s", err, out)
			}
			t.Logf("%s", out)
		})
	}
}

var capabilitySets = map[string][]uint{
	"bpf+net_admin+perfmon": {unix.CAP_BPF, unix.CAP_NET_ADMIN, unix.CAP_PERFMON},
	"bpf":                   {unix.CAP_BPF},
	"none":                  nil,
}

// limited is the child: it is in the interface's network namespace already, because entering one needs CAP_SYS_ADMIN.
func limited(j job) (err error) {
	runtime.LockOSThread()
	ns, err := os.Open(j.Netns)
	if err != nil {
		return err
	}
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
		return err
	}
	ns.Close()
	if err := drop(capabilitySets[j.Act]); err != nil {
		return err
	}
	s, err := prog.New(j.Root, "slot", prog.TCX("in", prog.Ingress))
	if err != nil {
		return err
	}
	permission := (*bpfmap.PermissionError)(nil)
	_, err = s.Sync(context.Background(), release(progs.One, "on_tcx"))
	if j.Act != "bpf+net_admin+perfmon" {
		missing := "CAP_NET_ADMIN"
		if j.Act == "none" {
			missing = "CAP_BPF"
		}
		if !errors.As(err, &permission) || !strings.Contains(err.Error(), missing) || strings.Contains(err.Error(), "MEMLOCK") {
			return fmt.Errorf("install: %w, want an error that names %s", err, missing)
		}
		fmt.Println(err)
		return s.Remove()
	}
	if err != nil {
		return fmt.Errorf("install: %w", err)
	}
	if _, err := s.Sync(context.Background(), wide()); err != nil {
		return fmt.Errorf("upgrade: %w", err)
	}
	m, err := s.Map("flows")
	if err != nil {
		return fmt.Errorf("map: %w", err)
	}
	if err := errors.Join(s.Guard(m), m.Close()); err != nil {
		return fmt.Errorf("guard: %w", err)
	}
	if _, err := s.Rollback(context.Background(), "asked"); err != nil {
		return fmt.Errorf("roll back: %w", err)
	}
	slots, last := 0, error(nil)
	for o, err := range prog.Inventory(j.Root) {
		if err == nil && o.Slot == "slot" && o.Name == "on_tcx" && o.Problem == "" {
			slots++
		}
		last = err
	}
	if slots != 1 || !errors.As(last, &permission) || !strings.Contains(last.Error(), "CAP_SYS_ADMIN") {
		return fmt.Errorf("inventory: %d slots, %w", slots, last)
	}
	fmt.Println(last)
	for _, k := range prog.Check() {
		if k.Slot && k.Why != "" && k.Kind != prog.KindTracepoint { // whose files belong to root
			return fmt.Errorf("check: %v", k)
		}
	}
	return s.Remove()
}

// drop leaves this thread, which is all that the child uses, the given capabilities.
func drop(keep []uint) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	for _, c := range keep {
		bit := uint32(1) << (c % 32)
		data[c/32].Effective |= bit
		data[c/32].Permitted |= bit
	}
	return unix.Capset(&header, &data[0])
}
