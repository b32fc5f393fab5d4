// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package sign

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"time"
)

// Key is one whose signatures are trusted.
type Key struct {
	ID     string           // what manifests call it; "" means its [Fingerprint]
	Public crypto.PublicKey // *ecdsa.PublicKey, ed25519.PublicKey or *rsa.PublicKey
	// Trusted from NotBefore, inclusive, to NotAfter, exclusive. Zero: no limit on that side.
	NotBefore, NotAfter time.Time
}

// Keys is a set of trusted keys. It is safe for concurrent use.
type Keys struct {
	byID map[string]Key
	now  func() time.Time
}

// Option configures [New]. A bad value is an error of New.
type Option interface{ apply(*Keys) error }

type option func(*Keys) error

func (o option) apply(k *Keys) error { return o(k) }

// WithClock sets the clock that validity is judged by. The default is [time.Now]; tolerance for a clock that is off is
// the caller's to add, in either direction.
func WithClock(now func() time.Time) Option {
	return option(func(k *Keys) error {
		if now == nil {
			return fail("clock", ErrMalformed, "WithClock: it is nil")
		}
		k.now = now
		return nil
	})
}

// New trusts the given keys. No key at all, two of one name, and keys too weak or of another kind are errors.
func New(keys []Key, opts ...Option) (*Keys, error) {
	set := &Keys{byID: map[string]Key{}, now: time.Now}
	for _, opt := range opts {
		if opt == nil {
			continue
		}
		if err := opt.apply(set); err != nil {
			return nil, err
		}
	}
	if len(keys) == 0 {
		return nil, &Error{Part: "key", Why: "the list of trusted keys is empty", Err: ErrUnsigned}
	}
	for i, key := range keys {
		if err := strong(key.Public); err != nil {
			return nil, fail("key", ErrMalformed, "number %d (%q): %v", i+1, key.ID, err)
		}
		if key.ID == "" {
			var err error
			if key.ID, err = Fingerprint(key.Public); err != nil {
				return nil, fail("key", ErrMalformed, "number %d: %v", i+1, err)
			}
		}
		if !key.NotAfter.IsZero() && !key.NotAfter.After(key.NotBefore) {
			return nil, fail("key", ErrMalformed, "%q is valid at no time", key.ID)
		}
		if _, twice := set.byID[key.ID]; twice {
			return nil, fail("key", ErrMalformed, "%q is there twice", key.ID)
		}
		set.byID[key.ID] = key
	}
	return set, nil
}

// strong refuses keys that are not worth checking, and those so large that checking is an attack.
func strong(public crypto.PublicKey) error {
	switch key := public.(type) {
	case *ecdsa.PublicKey:
		if key == nil || key.Curve != elliptic.P256() && key.Curve != elliptic.P384() && key.Curve != elliptic.P521() {
			return errors.New("the curve is none of P-256, P-384, P-521")
		}
		//lint:ignore SA1019 a key without coordinates is what must not reach the functions that are not deprecated
		if key.X == nil || key.Y == nil {
			return errors.New("the key has no point")
		}
		if _, err := key.ECDH(); err != nil {
			return fmt.Errorf("the point is not on the curve: %w", err)
		}
	case ed25519.PublicKey:
		if len(key) != ed25519.PublicKeySize {
			return fmt.Errorf("an Ed25519 key has %d bytes, this one %d", ed25519.PublicKeySize, len(key))
		}
	case *rsa.PublicKey:
		if key == nil || key.N == nil || key.N.BitLen() < 2048 || key.N.BitLen() > 8192 {
			return errors.New("an RSA key must have 2048 to 8192 bits")
		}
	default:
		return fmt.Errorf("%T is no ECDSA, Ed25519 or RSA key", public)
	}
	return nil
}

// Fingerprint is "sha256:" and the digest of the key as in its PEM file, in hexadecimal. A key that [New] refuses has
// none.
func Fingerprint(public crypto.PublicKey) (string, error) {
	if err := strong(public); err != nil {
		return "", fail("key", ErrMalformed, "%v", err)
	}
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return "", fail("key", ErrMalformed, "%v", err)
	}
	sum := sha256.Sum256(der)
	return "sha256:" + hex.EncodeToString(sum[:]), nil
}

// ParseKeys reads PUBLIC KEY blocks, such as cosign.pub, from a PEM file. The headers Key-Id, Not-Before and Not-After
// (RFC 3339) of a block set the fields of the [Key]. Blocks of another type, unknown headers and text that is no block
// are errors: a key list that is half read trusts the wrong people.
func ParseKeys(data []byte) ([]Key, error) {
	var keys []Key
	for data = trim(data); len(data) > 0; data = trim(data) {
		block, rest := pem.Decode(data)
		text := data[:len(data)-len(rest)]
		// Decode passes over text, and over a block that it cannot read, in search of the next one.
		if begin := []byte("-----BEGIN "); block == nil || !bytes.HasPrefix(text, begin) || bytes.Count(text, begin) > 1 {
			return nil, fail("key", ErrMalformed, "text after %d keys that is no PEM block", len(keys))
		}
		if n := headers(text); n > len(block.Headers) {
			return nil, fail("key", ErrMalformed, "block %d: %d headers, some of them twice", len(keys)+1, n)
		}
		data = rest
		if block.Type != "PUBLIC KEY" {
			return nil, fail("key", ErrMalformed, "block %d is a %q, want PUBLIC KEY", len(keys)+1, block.Type)
		}
		public, err := x509.ParsePKIXPublicKey(block.Bytes)
		if err != nil {
			return nil, fail("key", ErrMalformed, "block %d: %v", len(keys)+1, err)
		}
		key := Key{Public: public}
		for header, value := range block.Headers {
			switch header {
			case "Key-Id":
				key.ID = value
			case "Not-Before":
				key.NotBefore, err = time.Parse(time.RFC3339, value)
			case "Not-After":
				if key.NotAfter, err = time.Parse(time.RFC3339, value); err == nil && key.NotAfter.IsZero() {
					err = errors.New("a zero Not-After would be no limit")
				}
			default:
				err = fmt.Errorf("unknown header %q", header)
			}
			if err != nil {
				return nil, fail("key", ErrMalformed, "block %d: %v", len(keys)+1, err)
			}
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return nil, &Error{Part: "key", Why: "the file holds no key", Err: ErrUnsigned}
	}
	return keys, nil
}

// headers counts the lines of a PEM block that are some: nothing else in it has a colon.
func headers(block []byte) (n int) {
	for line := range bytes.Lines(block) {
		if bytes.ContainsRune(line, ':') {
			n++
		}
	}
	return n
}

// Verify answers whether object may be used as use says, and with what manifest. The error is one of this package's, as
// *[Error]; the manifest is only returned when there is none. No option makes it lenient.
func (k *Keys) Verify(manifest, object, signature []byte, use Use) (Manifest, error) {
	if k == nil || len(k.byID) == 0 {
		return Manifest{}, &Error{Part: "key", Why: "nobody is trusted", Err: ErrUnsigned}
	}
	m, err := ParseManifest(manifest)
	if err != nil {
		return Manifest{}, err
	}
	raw, err := parseSignature(signature, manifest)
	if err != nil {
		return Manifest{}, err
	}
	key, ok := k.byID[m.KeyID]
	if !ok {
		return Manifest{}, fail("keyID", ErrUnknownKey, "%q", m.KeyID)
	}
	if !verified(key.Public, manifest, raw) {
		return Manifest{}, fail("signature", ErrSignature, "key %q", m.KeyID)
	}

	// From here on the manifest is the signer's word.
	now := k.now()
	if now.Before(key.NotBefore) || !key.NotAfter.IsZero() && !now.Before(key.NotAfter) {
		return Manifest{}, fail("key", ErrExpired, "%q is trusted %s", m.KeyID, span(key.NotBefore, key.NotAfter))
	}
	if now.Before(m.NotBefore) || !now.Before(m.NotAfter) {
		return Manifest{}, fail("manifest", ErrExpired, "it is valid %s", span(m.NotBefore, m.NotAfter))
	}
	if err := m.allows(use); err != nil {
		return Manifest{}, err
	}
	if digest := Digest(object); digest != m.Object {
		return Manifest{}, fail("object", ErrDigest, "%s, signed %s", digest, m.Object)
	}
	return m, nil
}

// For binds a manifest and its signature, and is what prog.Load takes: it is called with the very bytes that are loaded.
func (k *Keys) For(manifest, signature []byte) func(object []byte, program, hook, target string) error {
	return func(object []byte, program, hook, target string) error {
		_, err := k.Verify(manifest, object, signature, Use{Program: program, Hook: hook, Target: target})
		return err
	}
}

func span(from, to time.Time) string {
	s := ""
	if !from.IsZero() {
		s = "from " + from.UTC().Format(time.RFC3339)
	}
	if !to.IsZero() {
		if s != "" {
			s += " "
		}
		s += "until " + to.UTC().Format(time.RFC3339)
	}
	return s
}
