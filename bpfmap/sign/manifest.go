// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package sign

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"
	"unicode/utf8"
)

// AnyTarget in a manifest allows every target: one signature for a fleet whose interfaces have different names. Program
// and hook are always named.
const AnyTarget = "*"

// maxManifest is far above any real one; what is larger is refused before it is parsed.
const maxManifest = 16 << 10

// Use is what somebody is about to do with an object.
type Use struct {
	Program string // name of the program in the object
	Hook    string // such as "tcx/ingress" or "tracepoint/syscalls/sys_enter_bpf"; see prog.Hook
	Target  string // such as the interface or the cgroup; "" where the hook has none
}

// Manifest is what is signed.
type Manifest struct {
	Object string // digest: "sha256:" and 64 lower-case hexadecimal digits
	Use           // what the object may be used for; the target may be [AnyTarget]
	KeyID  string // the key that signs
	// Valid from NotBefore, inclusive, to NotAfter, exclusive. Both are needed; whole seconds.
	NotBefore, NotAfter time.Time
}

// wire is a manifest in JSON, in the order of its fields.
type wire struct {
	Object    string `json:"object"`
	Program   string `json:"program"`
	Hook      string `json:"hook"`
	Target    string `json:"target"`
	KeyID     string `json:"keyID"`
	NotBefore string `json:"notBefore"`
	NotAfter  string `json:"notAfter"`
}

// Digest is the name of an object in a manifest.
func Digest(object []byte) string {
	sum := sha256.Sum256(object)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// Encode checks the manifest and writes the only form that [ParseManifest] accepts: one line of JSON and a newline.
func (m Manifest) Encode() ([]byte, error) {
	if err := m.check(); err != nil {
		return nil, err
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	err := enc.Encode(wire{
		Object: m.Object, Program: m.Program, Hook: m.Hook, Target: m.Target, KeyID: m.KeyID,
		NotBefore: m.NotBefore.UTC().Format(time.RFC3339), NotAfter: m.NotAfter.UTC().Format(time.RFC3339),
	})
	return buf.Bytes(), err
}

func (m Manifest) check() error {
	algorithm, digest, _ := bytes.Cut([]byte(m.Object), []byte(":"))
	var sum [sha256.Size]byte
	if n, err := hex.Decode(sum[:], digest[:min(len(digest), 2*len(sum))]); string(algorithm) != "sha256" ||
		len(digest) != 2*len(sum) || err != nil || n != len(sum) || !bytes.Equal(digest, bytes.ToLower(digest)) {
		return fail("object", ErrMalformed, "%.80q is not sha256: and 64 lower-case hexadecimal digits", m.Object)
	}
	for _, field := range []struct {
		name, value string
		empty       bool
	}{{"program", m.Program, false}, {"hook", m.Hook, false}, {"target", m.Target, true}, {"keyID", m.KeyID, false}} {
		if field.value == "" && !field.empty {
			return fail(field.name, ErrMalformed, "it is empty")
		}
		if !utf8.ValidString(field.value) || len(field.value) > 1024 {
			return fail(field.name, ErrMalformed, "it is not text, or longer than 1024 bytes")
		}
	}
	for name, at := range map[string]time.Time{"notBefore": m.NotBefore, "notAfter": m.NotAfter} {
		if at.IsZero() || at.UTC().Year() > 9999 || at.UTC().Year() < 1 || !at.Truncate(time.Second).Equal(at) {
			return fail(name, ErrMalformed, "it is not a time in whole seconds")
		}
	}
	if !m.NotAfter.After(m.NotBefore) {
		return fail("notAfter", ErrMalformed, "it is not after notBefore")
	}
	return nil
}

// ParseManifest reads what [Manifest.Encode] wrote, and nothing else: other spacing, other order, unknown or repeated
// fields are [ErrMalformed]. Parsing a manifest says nothing about who wrote it.
func ParseManifest(raw []byte) (Manifest, error) {
	if len(raw) == 0 {
		return Manifest{}, &Error{Part: "manifest", Err: ErrUnsigned}
	}
	if len(raw) > maxManifest {
		return Manifest{}, fail("manifest", ErrMalformed, "%d bytes are more than %d", len(raw), maxManifest)
	}
	var w wire
	if err := json.Unmarshal(raw, &w); err != nil {
		return Manifest{}, fail("manifest", ErrMalformed, "%v", err)
	}
	m := Manifest{Object: w.Object, Use: Use{Program: w.Program, Hook: w.Hook, Target: w.Target}, KeyID: w.KeyID}
	var err error
	if m.NotBefore, err = time.Parse(time.RFC3339, w.NotBefore); err != nil {
		return Manifest{}, fail("notBefore", ErrMalformed, "%v", err)
	}
	if m.NotAfter, err = time.Parse(time.RFC3339, w.NotAfter); err != nil {
		return Manifest{}, fail("notAfter", ErrMalformed, "%v", err)
	}
	canonical, err := m.Encode()
	if err != nil {
		return Manifest{}, err
	}
	// Two readers that disagree about a document are how signed documents are abused: there is one form only.
	if !bytes.Equal(canonical, raw) {
		return Manifest{}, fail("manifest", ErrMalformed, "it is not in the form that Encode and bpfsign write")
	}
	return m, nil
}

// allows holds a use against the manifest.
func (m Manifest) allows(use Use) error {
	for _, field := range []struct{ name, signed, wanted string }{
		{"program", m.Program, use.Program}, {"hook", m.Hook, use.Hook}, {"target", m.Target, use.Target},
	} {
		if field.signed != field.wanted && (field.name != "target" || field.signed != AnyTarget) {
			return fail(field.name, ErrBinding, "signed for %q, not for %q", field.signed, field.wanted)
		}
	}
	return nil
}
