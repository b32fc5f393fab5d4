// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

// Command hotswap shows an eBPF program being replaced under traffic, with every frame counted exactly once: 500 upgrades
// of a signed packet counter on a veth pair, one that changes the layout of its map, then what must not happen (a bad
// signature, a program that the verifier rejects) and what must be undone (a version whose health check fails).
//
// It needs Linux 6.6 or newer, root and the command ip. Everything happens in a network namespace and a bpf file system
// of its own, which are gone when it ends.
package main

//go:generate hack/generate.sh

import (
	"context"
	"crypto/ed25519"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/ashlar-go/ashlar/bpfmap"
	"github.com/ashlar-go/ashlar/bpfmap/prog"
	"github.com/ashlar-go/ashlar/bpfmap/sign"
)

func main() {
	upgrades := flag.Int("upgrades", 500, "how many times the program is replaced")
	plan := flag.Bool("plan", false, "print what would be done, and what this kernel supports, and do nothing")
	flag.Parse()
	if *plan {
		fmt.Printf("would make a network namespace with a veth pair, and replace a program there %d times\n", *upgrades)
		for _, s := range prog.Check() {
			fmt.Println(" ", s)
		}
		return
	}
	if err := run(context.Background(), os.Stdout, *upgrades); err != nil {
		fmt.Fprintln(os.Stderr, "hotswap:", err)
		os.Exit(1)
	}
}

// run tells the story. It returns an error as soon as something is not as it says.
func run(ctx context.Context, out io.Writer, upgrades int) (err error) {
	lab, err := newLab()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lab.close()) }()

	// What may run here: objects signed by this key. In earnest the private half is nowhere near.
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		return err
	}
	trusted, err := sign.New([]sign.Key{{ID: "release", Public: public}})
	if err != nil {
		return err
	}
	release := func(object []byte, by ed25519.PrivateKey) prog.Release {
		manifest, err := sign.Manifest{
			Object: sign.Digest(object), Use: sign.Use{Program: "count", Hook: "tcx/ingress", Target: lab.iface}, KeyID: "release",
			NotBefore: time.Now().Add(-time.Hour).Truncate(time.Second), NotAfter: time.Now().Add(time.Hour).Truncate(time.Second),
		}.Encode()
		signature, serr := sign.Sign(manifest, by)
		r := prog.Release{Object: object, Program: "count", Verify: trusted.For(manifest, signature)}
		if err := errors.Join(err, serr); err != nil {
			r.Verify = func([]byte, string, string, string) error { return err }
		}
		return r
	}

	slot, err := prog.New(lab.pins, "counter", prog.TCX(lab.iface, prog.Ingress).In(lab.netns))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, slot.Remove()) }()

	res, err := slot.Sync(ctx, release(_OneBytes, private))
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "installed   program %d, signed by %q, %v\n", res.Program, "release", res.Verdict)

	traffic := lab.send(ctx)
	began := time.Now()
	for i := range upgrades {
		object := [][]byte{_TwoBytes, _OneBytes}[i%2]
		if res, err = slot.Sync(ctx, release(object, private)); err != nil {
			return errors.Join(err, traffic.stop())
		}
	}
	took := time.Since(began)
	if err := traffic.stop(); err != nil {
		return err
	}
	if err := tally(out, slot, lab, fmt.Sprintf("%d upgrades in %v, each one system call", upgrades, took.Round(time.Millisecond))); err != nil {
		return err
	}

	// The next version counts bytes as well, in front of the frames: the values of its map are larger, and what the old
	// ones hold has to be taken along while frames keep coming.
	wide := release(_WideBytes, private)
	wide.Maps = map[string]prog.Keep{"totals": prog.Counters(prog.Word{From: 0, To: 8})}
	traffic = lab.send(ctx)
	if _, err = slot.Sync(ctx, wide); err != nil {
		return errors.Join(err, traffic.stop())
	}
	time.Sleep(50 * time.Millisecond)
	if err := traffic.stop(); err != nil {
		return err
	}
	if err := tally(out, slot, lab, "one upgrade to a larger map"); err != nil {
		return err
	}
	open, err := slot.Map("totals")
	if err != nil {
		return err
	}
	totals, err := bpfmap.Wrap[uint32, struct{ Bytes, Frames uint64 }](open)
	if err != nil {
		return err
	}
	total, _, err := totals.Get(0)
	if err := errors.Join(err, totals.Close()); err != nil {
		return err
	}
	if total.Frames != lab.sent {
		return fmt.Errorf("%d frames in the new map, %d sent", total.Frames, lab.sent)
	}
	fmt.Fprintf(out, "            the new map went on at the old one's count and has %d frames\n", total.Frames)

	// What must not happen.
	tampered := release(_OneBytes, private)
	tampered.Object = append([]byte(nil), _OneBytes...)
	tampered.Object[len(tampered.Object)/2] ^= 1
	if _, err = slot.Sync(ctx, tampered); !errors.Is(err, sign.ErrDigest) {
		return fmt.Errorf("a tampered object: %w", err)
	}
	fmt.Fprintf(out, "refused     one bit changed: %v\n", sign.ErrDigest)
	_, stranger, err := ed25519.GenerateKey(nil)
	if err != nil {
		return err
	}
	if _, err = slot.Sync(ctx, release(_TwoBytes, stranger)); !errors.Is(err, sign.ErrSignature) {
		return fmt.Errorf("a stranger's signature: %w", err)
	}
	fmt.Fprintf(out, "refused     signed by somebody else: %v\n", sign.ErrSignature)

	_, err = slot.Sync(ctx, release(_BrokenBytes, private))
	rejected := (*prog.VerifierError)(nil)
	if !errors.As(err, &rejected) {
		return fmt.Errorf("a broken program: %w", err)
	}
	v := rejected.Verdict
	fmt.Fprintf(out, "refused     by the verifier: %s: %s\n            %s: %s\n", v.Class, v.Reason, v.File, v.Source)

	// What must be undone.
	sick := release(_TwoBytes, private)
	sick.Maps = map[string]prog.Keep{"totals": prog.Counters(prog.Word{From: 8, To: 0})}
	sick.Health = func(context.Context, prog.Running) error { return errors.New("the error rate is up") }
	traffic = lab.send(ctx)
	res, err = slot.Sync(ctx, sick)
	if serr := traffic.stop(); serr != nil {
		return serr
	}
	if !errors.Is(err, prog.ErrProbe) || res.Phase != prog.PhaseRolledBack {
		return fmt.Errorf("a sick program: %v, %w", res.Phase, err)
	}
	return tally(out, slot, lab, fmt.Sprintf("rolled back to program %d, because %s", res.Program, "the error rate is up"))
}

// tally holds what the programs have counted against what was sent.
func tally(out io.Writer, slot *prog.Slot, lab *lab, what string) error {
	open, err := slot.Map("frames")
	if err != nil {
		return err
	}
	frames, err := bpfmap.Wrap[uint32, uint64](open)
	if err != nil {
		return err
	}
	var counted uint64
	for range 100 { // the last frames may still be on their way; what has not come after a second is lost
		counted = 0
		for e, ierr := range frames.All(context.Background()) {
			err = errors.Join(err, ierr)
			counted += e.Value
		}
		if counted == lab.sent || err != nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err := errors.Join(err, frames.Close()); err != nil {
		return err
	}
	fmt.Fprintf(out, "exact       %s: %d frames sent, %d counted, %d lost or doubled\n", what, lab.sent, counted, int64(lab.sent-counted))
	if counted != lab.sent {
		return fmt.Errorf("%d frames sent, %d counted", lab.sent, counted)
	}
	return nil
}
