// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package sign_test

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ashlar-go/ashlar/bpfmap/sign"
)

var (
	from   = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	until  = from.AddDate(1, 0, 0)
	during = from.AddDate(0, 3, 0)
	object = []byte("object made for the test\n")
	use    = sign.Use{Program: "count", Hook: "tcx/ingress", Target: "eth0"}
)

func at(t time.Time) sign.Option { return sign.WithClock(func() time.Time { return t }) }

func file(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func trust(t testing.TB, now time.Time, keys ...sign.Key) *sign.Keys {
	t.Helper()
	set, err := sign.New(keys, at(now))
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func manifest(change func(*sign.Manifest)) sign.Manifest {
	m := sign.Manifest{Object: sign.Digest(object), Use: use, KeyID: "release", NotBefore: from, NotAfter: until}
	if change != nil {
		change(&m)
	}
	return m
}

func encode(t testing.TB, m sign.Manifest) []byte {
	t.Helper()
	raw, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func signed(t testing.TB, raw []byte, key crypto.Signer) []byte {
	t.Helper()
	s, err := sign.Sign(raw, key)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// The files were made by openssl, in the form that cosign sign-blob writes for the same kinds of key, and the bundle by
// sigstore-go 1.3.0, the library of cosign.
func TestSignaturesOfOtherTools(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"ecdsa", "ed25519", "rsa", "pss", "bundle"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			keys, err := sign.ParseKeys(file(t, name+".pub"))
			if err != nil {
				t.Fatal(err)
			}
			keys[0].ID = "release"
			raw, signature := file(t, "manifest.json"), file(t, name+".sig")
			m, err := trust(t, during, keys...).Verify(raw, file(t, "object.bin"), signature, use)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(manifest(nil), m); diff != "" {
				t.Errorf("manifest (-want +got):\n%s", diff)
			}
			tampered := bytes.Replace(raw, []byte("eth0"), []byte("eth1"), 1)
			if _, err := trust(t, during, keys...).Verify(tampered, object, signature, use); !errors.Is(err, sign.ErrSignature) {
				t.Errorf("tampered: %v", err)
			}
		})
	}
}

func TestEveryKindOfKeyInBothForms(t *testing.T) {
	t.Parallel()
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	rs, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	for name, key := range map[string]crypto.Signer{"P-256": newKey(t), "P-384": p384, "Ed25519": ed, "RSA": rs} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			raw := encode(t, manifest(nil))
			keys := trust(t, during, sign.Key{ID: "release", Public: key.Public()})
			for form, how := range map[string]func([]byte, crypto.Signer) ([]byte, error){"detached": sign.Sign, "bundle": sign.SignBundle} {
				s, err := how(raw, key)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := keys.Verify(raw, object, s, use); err != nil {
					t.Errorf("%s: %v", form, err)
				}
				if err := keys.For(raw, s)(object, use.Program, use.Hook, use.Target); err != nil {
					t.Errorf("%s: For: %v", form, err)
				}
				other := encode(t, manifest(func(m *sign.Manifest) { m.Target = "eth1" }))
				if _, err := keys.Verify(other, object, s, sign.Use{Program: "count", Hook: "tcx/ingress", Target: "eth1"}); !errors.Is(err, sign.ErrSignature) {
					t.Errorf("%s: signature of another manifest: %v", form, err)
				}
			}
		})
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	key, stranger := newKey(t), newKey(t)
	raw := encode(t, manifest(nil))
	good := signed(t, raw, key)
	asBundle, err := sign.SignBundle(raw, key)
	if err != nil {
		t.Fatal(err)
	}
	bundle := func(old, with string) []byte {
		if !bytes.Contains(asBundle, []byte(old)) {
			t.Fatalf("no %q in %s", old, asBundle)
		}
		return bytes.Replace(asBundle, []byte(old), []byte(with), 1)
	}
	type attempt struct {
		reason              string
		manifest, signature []byte
		object              []byte
		use                 sign.Use
		now                 time.Time
		key                 sign.Key
		want                error
		names               string
	}
	base := attempt{manifest: raw, signature: good, object: object, use: use, now: during, key: sign.Key{ID: "release", Public: key.Public()}}
	with := func(reason string, want error, names string, change func(*attempt)) attempt {
		a := base
		a.reason, a.want, a.names = reason, want, names
		change(&a)
		return a
	}
	wildcard := encode(t, manifest(func(m *sign.Manifest) { m.Target = sign.AnyTarget }))
	for name, a := range map[string]attempt{
		"good":         with("the base of all others", nil, "", func(*attempt) {}),
		"any target":   with("signed for a fleet", nil, "", func(a *attempt) { a.manifest, a.signature, a.use.Target = wildcard, signed(t, wildcard, key), "wlan7" }),
		"bundle":       with("the other form", nil, "", func(a *attempt) { a.signature = asBundle }),
		"first of key": with("inclusive", nil, "", func(a *attempt) { a.key.NotBefore = during }),
		"any hook": with("only targets have a wildcard", sign.ErrBinding, "hook", func(a *attempt) {
			a.manifest = encode(t, manifest(func(m *sign.Manifest) { m.Hook = "*" }))
			a.signature = signed(t, a.manifest, key)
		}),
		"any program": with("only targets have a wildcard", sign.ErrBinding, "program", func(a *attempt) {
			a.manifest = encode(t, manifest(func(m *sign.Manifest) { m.Program = "*" }))
			a.signature = signed(t, a.manifest, key)
		}),
		"first instant":   with("inclusive", nil, "", func(a *attempt) { a.now = from }),
		"tampered object": with("one byte more", sign.ErrDigest, "object", func(a *attempt) { a.object = append(bytes.Clone(object), 0) }),
		"empty object":    with("nothing was signed", sign.ErrDigest, "object", func(a *attempt) { a.object = nil }),
		"tampered manifest": with("the hook was changed after signing", sign.ErrSignature, "signature", func(a *attempt) {
			a.manifest = bytes.Replace(raw, []byte("tcx/ingress"), []byte("tcx/egress"), 1)
		}),
		"other program":  with("a debug program in the same object", sign.ErrBinding, "program", func(a *attempt) { a.use.Program = "debug" }),
		"other hook":     with("a signed counter is no filter", sign.ErrBinding, "hook", func(a *attempt) { a.use.Hook = "xdp" }),
		"other target":   with("signed for one interface", sign.ErrBinding, "target", func(a *attempt) { a.use.Target = "eth1" }),
		"no target":      with("empty is no wildcard", sign.ErrBinding, "target", func(a *attempt) { a.use.Target = "" }),
		"use any":        with("the wildcard is the signer's word, not the caller's", sign.ErrBinding, "target", func(a *attempt) { a.use.Target = "*" }),
		"expired":        with("exclusive end", sign.ErrExpired, "manifest", func(a *attempt) { a.now = until }),
		"not yet":        with("signed for later", sign.ErrExpired, "manifest", func(a *attempt) { a.now = from.Add(-time.Second) }),
		"expired key":    with("a good signature by a retired key", sign.ErrExpired, "key", func(a *attempt) { a.key.NotAfter = during }),
		"early key":      with("not in force yet", sign.ErrExpired, "key", func(a *attempt) { a.key.NotBefore = during.Add(time.Second) }),
		"unknown key":    with("trusted by its name only", sign.ErrUnknownKey, "keyID", func(a *attempt) { a.key.ID = "other" }),
		"stranger's":     with("the right name, another key", sign.ErrSignature, "signature", func(a *attempt) { a.signature = signed(t, raw, stranger) }),
		"no signature":   with("fail closed", sign.ErrUnsigned, "signature", func(a *attempt) { a.signature = nil }),
		"blank":          with("fail closed", sign.ErrUnsigned, "signature", func(a *attempt) { a.signature = []byte(" \n") }),
		"no manifest":    with("fail closed", sign.ErrUnsigned, "manifest", func(a *attempt) { a.manifest = nil }),
		"not base64":     with("no guessing", sign.ErrMalformed, "signature", func(a *attempt) { a.signature = []byte("!!") }),
		"loose base64":   with("bits that mean nothing", sign.ErrMalformed, "signature", func(a *attempt) { a.signature = []byte("AB==") }),
		"truncated":      with("valid base64, no signature", sign.ErrSignature, "signature", func(a *attempt) { a.signature = good[:8] }),
		"huge signature": with("bounded before it is parsed", sign.ErrMalformed, "signature", func(a *attempt) { a.signature = bytes.Repeat([]byte("A"), 300<<10) }),
		"huge manifest":  with("bounded before it is parsed", sign.ErrMalformed, "manifest", func(a *attempt) { a.manifest = bytes.Repeat([]byte(" "), 17<<10) }),
		"no json":        with("", sign.ErrMalformed, "manifest", func(a *attempt) { a.manifest = []byte("hello") }),
		"spaces":         with("one form only", sign.ErrMalformed, "manifest", func(a *attempt) { a.manifest = append([]byte(" "), raw...) }),
		"repeated field": with("readers would disagree", sign.ErrMalformed, "manifest", func(a *attempt) {
			a.manifest = bytes.Replace(raw, []byte(`{"object"`), []byte(`{"hook":"xdp","object"`), 1)
		}),
		"other case":      with("readers would disagree", sign.ErrMalformed, "manifest", func(a *attempt) { a.manifest = bytes.Replace(raw, []byte(`"hook"`), []byte(`"Hook"`), 1) }),
		"unknown field":   with("somebody relies on it", sign.ErrMalformed, "manifest", func(a *attempt) { a.manifest = bytes.Replace(raw, []byte(`{`), []byte(`{"x":1,`), 1) }),
		"bundle v0.1":     with("another format", sign.ErrMalformed, "bundle", func(a *attempt) { a.signature = bundle("v0.3+json", "v0.1+json") }),
		"bundle of other": with("its digest says so", sign.ErrSignature, "bundle", func(a *attempt) { a.signature = bundle(`"digest":"`, `"digest":"AAAA`) }),
		"bundle sha512":   with("not checked, so not accepted", sign.ErrMalformed, "bundle", func(a *attempt) { a.signature = bundle("SHA2_256", "SHA2_512") }),
		"keyless": with("needs the network", sign.ErrMalformed, "bundle", func(a *attempt) {
			a.signature = bundle(`"verificationMaterial":{`, `"verificationMaterial":{"certificate":{"rawBytes":""},`)
		}),
		"envelope":      with("another kind of signature", sign.ErrMalformed, "bundle", func(a *attempt) { a.signature = bundle(`{"mediaType"`, `{"dsseEnvelope":{},"mediaType"`) }),
		"bundle no key": with("who signed?", sign.ErrMalformed, "bundle", func(a *attempt) { a.signature = bundle(`"publicKey"`, `"nobody"`) }),
		"bundle empty":  with("fail closed", sign.ErrUnsigned, "bundle", func(a *attempt) { a.signature = bundle(`"messageSignature"`, `"other"`) }),
		"bundle cut":    with("", sign.ErrMalformed, "bundle", func(a *attempt) { a.signature = asBundle[:40] }),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := trust(t, a.now, a.key).Verify(a.manifest, a.object, a.signature, a.use)
			if !errors.Is(err, a.want) {
				t.Fatalf("%s: got %v, want %v", a.reason, err, a.want)
			}
			if a.want == nil {
				return
			}
			var typed *sign.Error
			if !errors.As(err, &typed) || typed.Part != a.names {
				t.Errorf("error %q names %q, want %q", err, typed.Part, a.names)
			}
		})
	}
}

// bpfman allows unsigned objects unless told otherwise, and its list of trusted signers was not read.
// https://github.com/bpfman/bpfman/pull/671
func TestReport_bpfman_671NobodyIsTrustedByDefault(t *testing.T) {
	t.Parallel()
	raw := encode(t, manifest(nil))
	for name, keys := range map[string]*sign.Keys{"nil": nil, "zero": {}} {
		if _, err := keys.Verify(raw, object, signed(t, raw, newKey(t)), use); !errors.Is(err, sign.ErrUnsigned) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := sign.New(nil); !errors.Is(err, sign.ErrUnsigned) {
		t.Errorf("New(nil): %v", err)
	}
	if _, err := sign.ParseKeys([]byte("\n")); !errors.Is(err, sign.ErrUnsigned) {
		t.Errorf("ParseKeys of nothing: %v", err)
	}
}

func TestKeysRefused(t *testing.T) {
	t.Parallel()
	weak, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	p224, err := ecdsa.GenerateKey(elliptic.P224(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	//lint:ignore SA1019 keys that were put together by hand
	off := &ecdsa.PublicKey{Curve: elliptic.P256(), X: big.NewInt(1), Y: big.NewInt(1)}
	good := newKey(t).Public()
	for name, keys := range map[string][]sign.Key{
		"nil":        {{}},
		"weak RSA":   {{Public: weak.Public()}},
		"P-224":      {{Public: p224.Public()}},
		"short":      {{Public: ed25519.PublicKey("short")}},
		"twice":      {{ID: "a", Public: good}, {ID: "a", Public: newKey(t).Public()}},
		"unnamed 2":  {{Public: good}, {Public: good}},
		"no time":    {{ID: "a", Public: good, NotBefore: until, NotAfter: from}},
		"no point":   {{ID: "a", Public: &ecdsa.PublicKey{Curve: elliptic.P256()}}},
		"no point 2": {{Public: &ecdsa.PublicKey{Curve: elliptic.P256()}}},
		"off curve":  {{ID: "a", Public: off}},
	} {
		if _, err := sign.New(keys); !errors.Is(err, sign.ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := sign.New([]sign.Key{{Public: good}}, sign.WithClock(nil)); !errors.Is(err, sign.ErrMalformed) {
		t.Errorf("a nil clock: %v", err)
	}
	if _, err := sign.Fingerprint("no key"); !errors.Is(err, sign.ErrMalformed) {
		t.Errorf("the fingerprint of no key: %v", err)
	}
}

func TestParseKeys(t *testing.T) {
	t.Parallel()
	one := string(file(t, "ecdsa.pub"))
	body := strings.TrimPrefix(one, "-----BEGIN PUBLIC KEY-----\n")
	dated := "-----BEGIN PUBLIC KEY-----\nKey-Id: release\nNot-Before: 2026-01-01T00:00:00Z\nNot-After: 2027-01-01T00:00:00Z\n\n" + body
	keys, err := sign.ParseKeys([]byte(dated + string(file(t, "ed25519.pub"))))
	if err != nil {
		t.Fatal(err)
	}
	if len(keys) != 2 || keys[0].ID != "release" || !keys[0].NotBefore.Equal(from) || !keys[0].NotAfter.Equal(until) || keys[1].ID != "" {
		t.Errorf("got %+v", keys)
	}
	for name, text := range map[string]string{
		"private":        strings.ReplaceAll(one, "PUBLIC", "PRIVATE"),
		"unknown header": strings.Replace(dated, "Key-Id", "Key-Name", 1),
		"bad time":       strings.Replace(dated, "2026-01-01T", "yesterday", 1),
		"trailing text":  one + "and another one",
		"not DER":        "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n",
		"leading text":   "one of our keys:\n" + one,
		"text between":   one + "and another one\n" + one,
		"damaged first":  strings.Replace(one, "\nM", "\n!", 1) + one,
		"damaged middle": one + strings.Replace(one, "\nM", "\n!", 1) + one,
		"no end":         strings.Split(one, "-----END")[0] + one,
		"header twice":   strings.Replace(dated, "Not-Before", "Key-Id: other\nNot-Before", 1),
		"no time at all": strings.Replace(dated, "2027-01-01T", "0001-01-01T", 1),
	} {
		if _, err := sign.ParseKeys([]byte(text)); !errors.Is(err, sign.ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestManifestRefused(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*sign.Manifest){
		"object": func(m *sign.Manifest) { m.Object = "" },
		"upper case": func(m *sign.Manifest) {
			m.Object = "sha256:" + strings.ToUpper(strings.TrimPrefix(m.Object, "sha256:"))
		},
		"other digest":   func(m *sign.Manifest) { m.Object = strings.Replace(m.Object, "sha256", "sha512", 1) },
		"long digest":    func(m *sign.Manifest) { m.Object += "00" },
		"program":        func(m *sign.Manifest) { m.Program = "" },
		"hook":           func(m *sign.Manifest) { m.Hook = "" },
		"key":            func(m *sign.Manifest) { m.KeyID = "" },
		"not text":       func(m *sign.Manifest) { m.Target = "\xff" },
		"long":           func(m *sign.Manifest) { m.Target = strings.Repeat("a", 1025) },
		"no beginning":   func(m *sign.Manifest) { m.NotBefore = time.Time{} },
		"no end":         func(m *sign.Manifest) { m.NotAfter = time.Time{} },
		"ends first":     func(m *sign.Manifest) { m.NotAfter = m.NotBefore },
		"year 10000":     func(m *sign.Manifest) { m.NotAfter = time.Date(9999, 12, 31, 23, 30, 0, 0, time.FixedZone("", -3600)) },
		"parts of a sec": func(m *sign.Manifest) { m.NotAfter = m.NotAfter.Add(1) },
	} {
		if _, err := manifest(change).Encode(); !errors.Is(err, sign.ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := sign.Sign([]byte("{}"), newKey(t)); !errors.Is(err, sign.ErrMalformed) {
		t.Errorf("Sign of no manifest: %v", err)
	}
	if _, err := sign.Sign(encode(t, manifest(nil)), nil); !errors.Is(err, sign.ErrMalformed) {
		t.Errorf("Sign without a key: %v", err)
	}
}

// What parses is exactly what would be written again.
func FuzzManifest(f *testing.F) {
	f.Add(file(f, "manifest.json"))
	f.Add([]byte("{}"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		m, err := sign.ParseManifest(raw)
		if err != nil {
			return
		}
		again, err := m.Encode()
		if err != nil || !bytes.Equal(again, raw) {
			t.Errorf("%q became %q, %v", raw, again, err)
		}
	})
}

// No manifest, signature or object but the one that was signed gets through, whatever the bytes are.
func FuzzVerify(f *testing.F) {
	key := newKey(f)
	raw := encode(f, manifest(nil))
	f.Add(raw, object, signed(f, raw, key))
	asBundle, err := sign.SignBundle(raw, key)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw, object, asBundle)
	f.Add([]byte("{}"), []byte{}, []byte("{}"))
	keys := trust(f, during, sign.Key{ID: "release", Public: key.Public()})
	f.Fuzz(func(t *testing.T, m, obj, signature []byte) {
		if _, err := keys.Verify(m, obj, signature, use); err == nil && (!bytes.Equal(m, raw) || !bytes.Equal(obj, object)) {
			t.Errorf("accepted %q for %q", m, obj)
		}
	})
}
