// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package sign

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
)

// maxSignature holds a bundle with its log entries; a bare signature is a hundredth of it.
const maxSignature = 256 << 10

const bundleType = "application/vnd.dev.sigstore.bundle.v0.3+json"

// bundle is the part of a Sigstore bundle (protobuf-specs, sigstore_bundle.proto) that a keyed message signature has.
type bundle struct {
	MediaType string `json:"mediaType"`
	Material  struct {
		PublicKey   *publicKey      `json:"publicKey,omitempty"`
		Certificate json.RawMessage `json:"certificate,omitempty"`
		Chain       json.RawMessage `json:"x509CertificateChain,omitempty"`
	} `json:"verificationMaterial"`
	Message  *message        `json:"messageSignature,omitempty"`
	Envelope json.RawMessage `json:"dsseEnvelope,omitempty"`
}

type publicKey struct {
	Hint string `json:"hint,omitempty"`
}

type message struct {
	Digest    *digest `json:"messageDigest,omitempty"`
	Signature []byte  `json:"signature"`
}

type digest struct {
	Algorithm string `json:"algorithm"`
	Digest    []byte `json:"digest"`
}

func trim(b []byte) []byte { return bytes.TrimSpace(b) }

// parseSignature returns the signature itself from either form.
func parseSignature(data, manifest []byte) ([]byte, error) {
	data = trim(data)
	switch {
	case len(data) == 0:
		return nil, &Error{Part: "signature", Err: ErrUnsigned}
	case len(data) > maxSignature:
		return nil, fail("signature", ErrMalformed, "%d bytes are more than %d", len(data), maxSignature)
	case data[0] == '{':
		return parseBundle(data, manifest)
	}
	raw, err := base64.StdEncoding.Strict().DecodeString(string(data))
	if err != nil {
		return nil, fail("signature", ErrMalformed, "neither base64 nor a bundle: %v", err)
	}
	return raw, nil
}

func parseBundle(data, manifest []byte) ([]byte, error) {
	var b bundle
	if err := json.Unmarshal(data, &b); err != nil {
		return nil, fail("bundle", ErrMalformed, "%v", err)
	}
	switch {
	case b.MediaType != bundleType:
		return nil, fail("bundle", ErrMalformed, "media type %.80q, want %q", b.MediaType, bundleType)
	case len(b.Envelope) > 0:
		return nil, fail("bundle", ErrMalformed, "it holds an envelope, want a message signature")
	case len(b.Material.Certificate)+len(b.Material.Chain) > 0:
		return nil, fail("bundle", ErrMalformed, "it is signed by a certificate, want one of the trusted keys")
	case b.Material.PublicKey == nil:
		return nil, fail("bundle", ErrMalformed, "it does not say that a key signed it")
	case b.Message == nil || len(b.Message.Signature) == 0:
		return nil, &Error{Part: "bundle", Err: ErrUnsigned}
	}
	// The digest is not signed: it says early and clearly that the bundle belongs to another file.
	if d := b.Message.Digest; d != nil {
		if d.Algorithm != "SHA2_256" {
			return nil, fail("bundle", ErrMalformed, "digest by %.40q, want SHA2_256", d.Algorithm)
		}
		if sum := sha256.Sum256(manifest); !bytes.Equal(d.Digest, sum[:]) {
			return nil, fail("bundle", ErrSignature, "it was made for another file")
		}
	}
	return b.Message.Signature, nil
}

func verified(public crypto.PublicKey, manifest, signature []byte) bool {
	sum := sha256.Sum256(manifest)
	switch key := public.(type) {
	case *ecdsa.PublicKey:
		return ecdsa.VerifyASN1(key, sum[:], signature)
	case ed25519.PublicKey:
		return ed25519.Verify(key, manifest, signature)
	case *rsa.PublicKey:
		return rsa.VerifyPKCS1v15(key, crypto.SHA256, sum[:], signature) == nil ||
			rsa.VerifyPSS(key, crypto.SHA256, sum[:], signature, nil) == nil
	}
	return false
}

// Sign makes the detached signature of a manifest: base64 and a newline. The key is an ECDSA, Ed25519 or RSA private
// key, or one in hardware that has such a public key.
func Sign(manifest []byte, key crypto.Signer) ([]byte, error) {
	raw, err := signRaw(manifest, key)
	if err != nil {
		return nil, err
	}
	return append([]byte(base64.StdEncoding.EncodeToString(raw)), '\n'), nil
}

// SignBundle is [Sign] in a Sigstore bundle v0.3.
func SignBundle(manifest []byte, key crypto.Signer) ([]byte, error) {
	raw, err := signRaw(manifest, key)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, err
	}
	sum, id := sha256.Sum256(manifest), sha256.Sum256(der)
	b := bundle{MediaType: bundleType, Message: &message{Digest: &digest{"SHA2_256", sum[:]}, Signature: raw}}
	b.Material.PublicKey = &publicKey{Hint: base64.StdEncoding.EncodeToString(id[:])} // as sigstore-go writes it
	out, err := json.Marshal(b)
	return append(out, '\n'), err
}

func signRaw(manifest []byte, key crypto.Signer) ([]byte, error) {
	if _, err := ParseManifest(manifest); err != nil {
		return nil, fmt.Errorf("sign: %w", err)
	}
	if key == nil {
		return nil, fmt.Errorf("sign: %w", fail("key", ErrMalformed, "there is none"))
	}
	if err := strong(key.Public()); err != nil {
		return nil, fmt.Errorf("sign: %w", fail("key", ErrMalformed, "%v", err))
	}
	if _, ok := key.Public().(ed25519.PublicKey); ok {
		return key.Sign(rand.Reader, manifest, crypto.Hash(0))
	}
	sum := sha256.Sum256(manifest)
	return key.Sign(rand.Reader, sum[:], crypto.SHA256)
}
