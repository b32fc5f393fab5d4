// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// SecretName is the Secret that holds the certificate authority.
const SecretName = "database-operator-webhook"

const (
	authorityLife = 10 * 365 * 24 * time.Hour
	leafLife      = 30 * 24 * time.Hour // renewed after two thirds, in memory: a replica signs its own
)

// authority signs the certificates of the replicas. All share one, so that the
// API server trusts each of them with one bundle.
type authority struct {
	cert   *x509.Certificate
	key    *ecdsa.PrivateKey
	bundle []byte // PEM: what the API server is to trust; the first signs
}

// readAuthority reads the Secret, makes it when there is none, and puts a new
// authority in front of one that ends within a year. Both are trusted then.
func readAuthority(ctx context.Context, c client.Client, namespace string, now time.Time) (*authority, error) {
	for {
		secret := &corev1.Secret{}
		err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: SecretName}, secret)
		missing := apierrors.IsNotFound(err)
		if err != nil && !missing {
			return nil, err
		}
		if !missing {
			a, err := parseAuthority(secret.Data)
			if err != nil {
				return nil, fmt.Errorf("read Secret %s/%s: %w; delete it and it is made anew", namespace, SecretName, err)
			}
			if now.Before(a.cert.NotAfter.AddDate(-1, 0, 0)) {
				return a, nil
			}
		}
		cert, key, err := newAuthority(now)
		if err != nil {
			return nil, err
		}
		secret.Data = map[string][]byte{"ca.crt": append(cert, secret.Data["ca.crt"]...), "ca.key": key}
		if missing {
			secret.ObjectMeta = metav1.ObjectMeta{Namespace: namespace, Name: SecretName}
			err = c.Create(ctx, secret)
		} else {
			err = c.Update(ctx, secret)
		}
		if err != nil && !apierrors.IsAlreadyExists(err) && !apierrors.IsConflict(err) {
			return nil, err
		}
		// Written, or another replica was first: the next read tells.
	}
}

func parseAuthority(data map[string][]byte) (*authority, error) {
	cert, _ := pem.Decode(data["ca.crt"])
	key, _ := pem.Decode(data["ca.key"])
	if cert == nil || key == nil {
		return nil, errors.New("ca.crt or ca.key is not PEM")
	}
	a := &authority{bundle: data["ca.crt"]}
	var err error
	if a.cert, err = x509.ParseCertificate(cert.Bytes); err != nil {
		return nil, err
	}
	if a.key, err = x509.ParseECPrivateKey(key.Bytes); err != nil {
		return nil, err
	}
	if !a.key.PublicKey.Equal(a.cert.PublicKey) {
		return nil, errors.New("ca.key is not the key of ca.crt")
	}
	return a, nil
}

func newAuthority(now time.Time) (cert, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: SecretName}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(authorityLife),
	}
	der, err := sign(template, template, private, private)
	if err != nil {
		return nil, nil, err
	}
	raw, err := x509.MarshalECPrivateKey(private)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: raw}), err
}

// leaf is a certificate for the names that the API server calls the webhook by.
func (a *authority) leaf(hosts []string, now time.Time) (*tls.Certificate, error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: hosts[0]}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		KeyUsage: x509.KeyUsageDigitalSignature, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(leafLife),
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	der, err := sign(template, a.cert, private, a.key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private, Leaf: cert}, err
}

func sign(template, parent *x509.Certificate, private, by *ecdsa.PrivateKey) ([]byte, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	template.SerialNumber = serial
	return x509.CreateCertificate(rand.Reader, template, parent, &private.PublicKey, by)
}

func (a *authority) equal(b *authority) bool { return b != nil && bytes.Equal(a.bundle, b.bundle) }
