// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

// Package sign says whether somebody we trust has allowed an eBPF object to run at a hook. A signature over the object
// alone lets a signed packet counter be attached where a packet filter belongs, and one that is checked on a file is
// worth nothing when the file is read again to be loaded.
//
// So what is signed is a manifest: the digest of the object, the program in it, the hook, the target, the key and how
// long all of that holds. It is an ordinary file, signed by any tool that signs files:
//
//	bpfsign manifest -object flow.o -program count -hook tcx/ingress -target eth0 -key-id release >flow.json
//	cosign sign-blob --key cosign.key flow.json >flow.sig
//
// and checked where the object is loaded, on the bytes that are loaded:
//
//	keys, err := sign.ParseKeys(pem)
//	…
//	trusted, err := sign.New(keys)
//	…
//	loaded, err := prog.Load(object, trusted.For(manifest, signature), prog.Want{Program: "count", Hook: hook})
//
// # Guarantees
//
//   - Fail closed: no signature, no key, an unknown key, an expired one and everything that cannot be read are errors,
//     and there is no option that changes that. The zero Keys trusts nobody.
//   - [Keys.Verify] answers nil only if the object has the digest in the manifest, the manifest was signed by the key it
//     names, key and manifest are valid now, and program, hook and target are the ones in the manifest.
//   - A manifest has one form in bytes, the one that [Manifest.Encode] writes. No field can be there twice, in another
//     case or unknown to one of two readers.
//   - Nothing is downloaded, nothing is executed, inputs are not modified and not kept.
//
// Signatures: base64 of ECDSA (P-256, P-384, P-521; ASN.1) or RSA (2048 to 8192 bits; PKCS #1 v1.5 or PSS) over SHA-256
// of the manifest, or of Ed25519 over the manifest itself, which is what cosign sign-blob --key writes; or a Sigstore
// bundle v0.3 with a message signature by such a key.
//
// # Assumptions
//
// The keys come from a place that whoever delivers objects cannot write to. The clock is about right: see [WithClock].
// The caller loads the bytes that were verified; prog.Load does.
//
// # Cost
//
// One SHA-256 of the object, one signature check, no request.
//
// # RBAC
//
// None.
//
// # Not for
//
// Keyless signatures: a bundle with a certificate is refused, because checking it needs a certificate authority, a
// transparency log and the network. Log entries in a bundle are ignored for the same reason. A revoked key is one that
// is no longer in the list.
package sign
