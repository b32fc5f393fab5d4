// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

// Command bpfsign writes, signs and checks the manifests of package sign:
//
//	bpfsign keygen -out release                       # release.key, release.pub: ECDSA P-256
//	bpfsign manifest -object flow.o -program count -hook tcx/ingress -target eth0 -key-id release -valid 2160h >flow.json
//	bpfsign sign -key release.key flow.json >flow.sig # or with -bundle a Sigstore bundle
//	bpfsign verify -keys trusted.pem -object flow.o -program count -hook tcx/ingress -target eth0 flow.json flow.sig
//
// It is made for tests and for learning: its keys lie in files, not encrypted. For releases sign the manifest with what
// keeps your keys, such as cosign sign-blob --key.
package main
