// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package sign

import (
	"errors"
	"fmt"
)

// Why an object is refused. Every error of this package matches exactly one of them.
var (
	// ErrUnsigned: there is no manifest, no signature, or nobody is trusted.
	ErrUnsigned = errors.New("object is not signed")
	// ErrMalformed: a manifest, signature, bundle or key cannot be read, or is in a form that is not accepted.
	ErrMalformed = errors.New("malformed")
	// ErrUnknownKey: the manifest names a key that is not trusted.
	ErrUnknownKey = errors.New("key is not trusted")
	// ErrSignature: the signature was not made by the key for this manifest.
	ErrSignature = errors.New("signature does not verify")
	// ErrExpired: key or manifest are not valid yet or no longer.
	ErrExpired = errors.New("not valid now")
	// ErrDigest: the object is not the one that was signed.
	ErrDigest = errors.New("object differs from the signed one")
	// ErrBinding: program, hook or target are not those that were signed.
	ErrBinding = errors.New("signed for another use")
)

// Error says what is wrong with which part. It matches one of the errors above.
type Error struct {
	Part string // "manifest", "signature", "bundle", "key", "object", or the field of the manifest
	Why  string // "" when Err says it all
	Err  error
}

// Error names the part.
func (e *Error) Error() string {
	if e.Why == "" {
		return fmt.Sprintf("verify %s: %v", e.Part, e.Err)
	}
	return fmt.Sprintf("verify %s: %v: %s", e.Part, e.Err, e.Why)
}

// Unwrap is the kind of refusal.
func (e *Error) Unwrap() error { return e.Err }

func fail(part string, kind error, format string, args ...any) error {
	return &Error{Part: part, Why: fmt.Sprintf(format, args...), Err: kind}
}
