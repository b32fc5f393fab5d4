// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package pki_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/ashlar-go/ashlar/test/controlplane/internal/pki"
)

func newCA(t *testing.T, now time.Time) *pki.CA {
	t.Helper()
	ca, err := pki.NewCA("test", func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

func parse(t *testing.T, text []byte) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(text)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// TestHandshake has a server and a client of one authority meet, and strangers turned away.
func TestHandshake(t *testing.T) {
	t.Parallel()
	ca, stranger := newCA(t, time.Now()), newCA(t, time.Now())
	pair, err := ca.Server([]string{"localhost"}, net.IPv4(127, 0, 0, 1))
	if err != nil {
		t.Fatal(err)
	}
	cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca.PEM())
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		subject := r.TLS.PeerCertificates[0].Subject
		_, _ = w.Write([]byte(subject.CommonName + " of " + strings.Join(subject.Organization, ","))) // the client checks it
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: roots}
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // two handshakes are to fail
	server.StartTLS()
	defer server.Close()

	user, err := ca.Client("alice", "b", "a")
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := stranger.Client("alice", "b", "a")
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		reason string
		trusts *pki.CA
		pair   pki.Pair
		ok     bool
	}{
		"both":           {"one authority", ca, user, true},
		"foreign client": {"signed by another authority of the same name", ca, foreign, false},
		"foreign server": {"the client trusts its own authority only", stranger, user, false},
	} {
		client, err := test.trusts.HTTPClient(test.pair)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Get(server.URL)
		if ok := err == nil; ok != test.ok {
			t.Errorf("%s: %s: got %v", name, test.reason, err)
		}
		if err == nil {
			var body [100]byte
			n, _ := resp.Body.Read(body[:])
			resp.Body.Close()
			if got := string(body[:n]); got != "alice of a,b" {
				t.Errorf("%s: the server saw %q", name, got)
			}
		}
		client.CloseIdleConnections()
	}
}

func TestValidity(t *testing.T) {
	t.Parallel()
	now := time.Date(2020, 2, 3, 4, 5, 6, 0, time.UTC)
	ca := newCA(t, now)
	one, err := ca.Client("a")
	if err != nil {
		t.Fatal(err)
	}
	two, err := ca.Client("a")
	if err != nil {
		t.Fatal(err)
	}
	a, b := parse(t, one.Cert), parse(t, two.Cert)
	if a.SerialNumber.Cmp(b.SerialNumber) == 0 {
		t.Error("two certificates have one serial number")
	}
	if !a.NotBefore.Before(now) || a.NotAfter.Before(now.Add(24*time.Hour)) {
		t.Errorf("made at %s, valid from %s to %s", now, a.NotBefore, a.NotAfter)
	}
}
