// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/ashlar-go/ashlar/bpfmap/sign"
)

func main() {
	if err := run(os.Args[1:], os.Stdout, time.Now); err != nil {
		fmt.Fprintln(os.Stderr, "bpfsign:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer, now func() time.Time) error {
	commands := map[string]func(*flag.FlagSet, []string, io.Writer, func() time.Time) error{
		"keygen": keygen, "manifest": manifest, "sign": signFile, "verify": verify,
	}
	if len(args) == 0 || commands[args[0]] == nil {
		return errors.New("the first argument is keygen, manifest, sign or verify")
	}
	flags := flag.NewFlagSet("bpfsign "+args[0], flag.ContinueOnError)
	return commands[args[0]](flags, args[1:], out, now)
}

func keygen(flags *flag.FlagSet, args []string, _ io.Writer, _ func() time.Time) error {
	name := flags.String("out", "release", "write NAME.key and NAME.pub; the key id is NAME without folders")
	if err := flags.Parse(args); err != nil {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return err
	}
	// A key that is there already is never overwritten.
	if err := create(*name+".key", 0o600, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})); err != nil {
		return err
	}
	return create(*name+".pub", 0o644, pem.EncodeToMemory(&pem.Block{
		Type: "PUBLIC KEY", Headers: map[string]string{"Key-Id": filepath.Base(*name)}, Bytes: public,
	}))
}

func create(path string, mode os.FileMode, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

func useFlags(flags *flag.FlagSet) (object *string, use *sign.Use) {
	object, use = flags.String("object", "", "the ELF file"), &sign.Use{}
	flags.StringVar(&use.Program, "program", "", "name of the program in it")
	flags.StringVar(&use.Hook, "hook", "", "hook, such as tcx/ingress")
	flags.StringVar(&use.Target, "target", "", "target, such as eth0; * signs for every one")
	return object, use
}

func manifest(flags *flag.FlagSet, args []string, out io.Writer, now func() time.Time) error {
	object, use := useFlags(flags)
	id := flags.String("key-id", "", "name of the key that will sign")
	valid := flags.Duration("valid", 90*24*time.Hour, "how long the signature holds")
	if err := flags.Parse(args); err != nil {
		return err
	}
	data, err := os.ReadFile(*object)
	if err != nil {
		return err
	}
	from := now().UTC().Truncate(time.Second)
	raw, err := sign.Manifest{
		Object: sign.Digest(data), Use: *use, KeyID: *id, NotBefore: from, NotAfter: from.Add(*valid).Truncate(time.Second),
	}.Encode()
	if err != nil {
		return err
	}
	_, err = out.Write(raw)
	return err
}

func signFile(flags *flag.FlagSet, args []string, out io.Writer, _ func() time.Time) error {
	file := flags.String("key", "", "PEM file with a PKCS #8 private key, not encrypted")
	asBundle := flags.Bool("bundle", false, "write a Sigstore bundle v0.3")
	if err := flags.Parse(args); err != nil {
		return err
	}
	files, err := read(*file, flags.Arg(0))
	if err != nil {
		return err
	}
	block, _ := pem.Decode(files[0])
	if block == nil {
		return fmt.Errorf("%s is no PEM file", *file)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return err
	}
	key, ok := parsed.(crypto.Signer)
	if !ok {
		return fmt.Errorf("%s holds a %T, which cannot sign", *file, parsed)
	}
	how := sign.Sign
	if *asBundle {
		how = sign.SignBundle
	}
	signature, err := how(files[1], key)
	if err != nil {
		return err
	}
	_, err = out.Write(signature)
	return err
}

func verify(flags *flag.FlagSet, args []string, out io.Writer, now func() time.Time) error {
	object, use := useFlags(flags)
	trusted := flags.String("keys", "", "PEM file with the trusted public keys")
	id := flags.String("key-id", "", "name of the only key in that file, where the file does not say it")
	if err := flags.Parse(args); err != nil {
		return err
	}
	files, err := read(*trusted, flags.Arg(0), *object, flags.Arg(1))
	if err != nil {
		return err
	}
	list, err := sign.ParseKeys(files[0])
	if err != nil {
		return err
	}
	if *id != "" && len(list) == 1 {
		list[0].ID = *id
	}
	keys, err := sign.New(list, sign.WithClock(now))
	if err != nil {
		return err
	}
	m, err := keys.Verify(files[1], files[2], files[3], *use)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s signed %s for %s at %s %s until %s\n", m.KeyID, m.Object, m.Program, m.Hook, m.Target,
		m.NotAfter.UTC().Format(time.RFC3339))
	return err
}

func read(paths ...string) (out [][]byte, err error) {
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		out = append(out, data)
	}
	return out, nil
}
