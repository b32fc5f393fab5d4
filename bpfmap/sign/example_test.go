// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package sign_test

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"time"

	"github.com/ashlar-go/ashlar/bpfmap/sign"
)

// The key of the examples; a real one comes from a generator.
var exampleKey = ed25519.NewKeyFromSeed([]byte("32 bytes that everybody can read"))

func exampleManifest(object []byte) sign.Manifest {
	return sign.Manifest{
		Object:    sign.Digest(object),
		Use:       sign.Use{Program: "count", Hook: "tcx/ingress", Target: "eth0"},
		KeyID:     "release",
		NotBefore: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
		NotAfter:  time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC),
	}
}

func exampleKeys() *sign.Keys {
	keys, err := sign.New([]sign.Key{{ID: "release", Public: exampleKey.Public()}},
		sign.WithClock(func() time.Time { return time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC) }))
	if err != nil {
		fmt.Println(err)
	}
	return keys
}

// What was signed for one hook is refused at another one.
func ExampleKeys_Verify() {
	object := []byte("\x7fELF…")
	manifest, _ := exampleManifest(object).Encode()
	signature, err := sign.Sign(manifest, exampleKey)
	if err != nil {
		fmt.Println(err)
		return
	}
	keys := exampleKeys()

	m, err := keys.Verify(manifest, object, signature, sign.Use{Program: "count", Hook: "tcx/ingress", Target: "eth0"})
	fmt.Println(m.Program, "until", m.NotAfter.Format(time.DateOnly), err)

	_, err = keys.Verify(manifest, object, signature, sign.Use{Program: "count", Hook: "xdp", Target: "eth0"})
	fmt.Println(err, errors.Is(err, sign.ErrBinding))

	_, err = keys.Verify(manifest, append(object, 0x90), signature, sign.Use{Program: "count", Hook: "tcx/ingress", Target: "eth0"})
	fmt.Println(errors.Is(err, sign.ErrDigest))

	_, err = keys.Verify(manifest, object, nil, sign.Use{Program: "count", Hook: "tcx/ingress", Target: "eth0"})
	fmt.Println(err)
	// Output:
	// count until 2027-01-01 <nil>
	// verify hook: signed for another use: signed for "tcx/ingress", not for "xdp" true
	// true
	// verify signature: object is not signed
}

// For is the form that prog.Load takes.
func ExampleKeys_For() {
	object := []byte("\x7fELF…")
	manifest, _ := exampleManifest(object).Encode()
	signature, _ := sign.Sign(manifest, exampleKey)
	verify := exampleKeys().For(manifest, signature)
	fmt.Println(verify(object, "count", "tcx/ingress", "eth0"))
	fmt.Println(verify(object, "drop", "tcx/ingress", "eth0"))
	// Output:
	// <nil>
	// verify program: signed for another use: signed for "count", not for "drop"
}

func ExampleNew() {
	_, err := sign.New(nil)
	fmt.Println(err)
	// Output: verify key: object is not signed: the list of trusted keys is empty
}

func ExampleParseKeys() {
	keys, err := sign.ParseKeys([]byte(`-----BEGIN PUBLIC KEY-----
Key-Id: release
Not-After: 2027-01-01T00:00:00Z

MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=
-----END PUBLIC KEY-----
`))
	fmt.Println(len(keys), keys[0].ID, keys[0].NotAfter.Format(time.DateOnly), err)
	// Output: 1 release 2027-01-01 <nil>
}

func ExampleParseManifest() {
	raw, _ := exampleManifest([]byte("\x7fELF…")).Encode()
	m, err := sign.ParseManifest(raw)
	fmt.Println(m.Program, m.Hook, m.Target, err)

	_, err = sign.ParseManifest([]byte(`{"program": "count"}`))
	fmt.Println(errors.Is(err, sign.ErrMalformed))
	// Output:
	// count tcx/ingress eth0 <nil>
	// true
}

func ExampleDigest() {
	fmt.Println(sign.Digest(nil))
	// Output: sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855
}

func ExampleFingerprint() {
	id, err := sign.Fingerprint(exampleKey.Public())
	fmt.Println(id[:20], err)
	// Output: sha256:da3d7d2e5c89f <nil>
}

func ExampleSign() {
	manifest, _ := exampleManifest([]byte("\x7fELF…")).Encode()
	signature, err := sign.Sign(manifest, exampleKey)
	fmt.Printf("%s… %v\n", signature[:16], err)
	// Output: sumSdmSgA4enAGLy… <nil>
}

func ExampleSignBundle() {
	manifest, _ := exampleManifest([]byte("\x7fELF…")).Encode()
	bundle, err := sign.SignBundle(manifest, exampleKey)
	fmt.Printf("%s… %v\n", bundle[:62], err)
	// Output: {"mediaType":"application/vnd.dev.sigstore.bundle.v0.3+json","… <nil>
}
