// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"time"
)

// Certificates begin to be valid before now, for clocks that differ, and outlive any test run.
const (
	before   = time.Hour
	validFor = 30 * 24 * time.Hour
)

// Pair is a certificate and its key, both PEM.
type Pair struct {
	Cert, Key []byte
}

// CA signs server and client certificates.
type CA struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
	now  func() time.Time
}

// NewCA makes an authority that nobody else trusts. now is the clock.
func NewCA(name string, now func() time.Time) (*CA, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make CA key: %w", err)
	}
	ca := &CA{key: key, now: now}
	template := ca.template(pkix.Name{CommonName: name})
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make CA certificate: %w", err)
	}
	if ca.cert, err = x509.ParseCertificate(der); err != nil {
		return nil, fmt.Errorf("make CA certificate: %w", err)
	}
	ca.pem = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return ca, nil
}

// PEM returns the CA's certificate.
func (ca *CA) PEM() []byte {
	return ca.pem
}

// Server returns a pair for a server that is reached by these DNS names and addresses.
func (ca *CA) Server(names []string, ips ...net.IP) (Pair, error) {
	t := ca.template(pkix.Name{CommonName: names[0]})
	t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	t.DNSNames, t.IPAddresses = names, ips
	return ca.sign(t)
}

// Client returns a pair for a user: Kubernetes takes the common name as user name and the organizations as groups.
func (ca *CA) Client(user string, groups ...string) (Pair, error) {
	t := ca.template(pkix.Name{CommonName: user, Organization: groups})
	t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return ca.sign(t)
}

// HTTPClient returns a client that trusts this CA only and presents the pair.
func (ca *CA) HTTPClient(pair Pair) (*http.Client, error) {
	cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		return nil, fmt.Errorf("use client certificate: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca.cert)
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{cert}},
	}}, nil
}

// template leaves the serial number out: CreateCertificate then picks a random one.
func (ca *CA) template(subject pkix.Name) *x509.Certificate {
	now := ca.now()
	return &x509.Certificate{
		Subject:   subject,
		NotBefore: now.Add(-before),
		NotAfter:  now.Add(validFor),
		KeyUsage:  x509.KeyUsageDigitalSignature,
	}
}

func (ca *CA) sign(template *x509.Certificate) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("make key of %s: %w", template.Subject.CommonName, err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.cert, key.Public(), ca.key)
	if err != nil {
		return Pair{}, fmt.Errorf("sign certificate of %s: %w", template.Subject.CommonName, err)
	}
	keyPEM, err := privatePEM(key)
	if err != nil {
		return Pair{}, err
	}
	return Pair{Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), Key: keyPEM}, nil
}

// SigningKeys returns a private key and its public key, both PEM, for service account tokens.
func SigningKeys() (private, public []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make service account key: %w", err)
	}
	if private, err = privatePEM(key); err != nil {
		return nil, nil, err
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, nil, fmt.Errorf("encode service account key: %w", err)
	}
	return private, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), nil
}

// privatePEM uses the SEC 1 form, the one Kubernetes' keyutil reads for EC keys.
func privatePEM(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}
