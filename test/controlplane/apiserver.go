// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"

	"github.com/ashlar-go/ashlar/test/controlplane/audit"
	"github.com/ashlar-go/ashlar/test/controlplane/internal/pki"
)

// keys are the paths of what was written for the API server and the controller manager.
type keys struct {
	ca, cert, key          string
	tokenKey, tokenPublic  string
	auditPolicy, auditFile string
}

// writeKeys makes all key material of this control plane.
func (cp *ControlPlane) writeKeys() (err error) {
	if cp.ca, err = pki.NewCA("ashlar test control plane", time.Now); err != nil {
		return err
	}
	names := []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"}
	server, err := cp.ca.Server(names, net.IPv4(127, 0, 0, 1), net.ParseIP(firstAddress(cp.opts.services).String()))
	if err != nil {
		return err
	}
	private, public, err := pki.SigningKeys()
	if err != nil {
		return err
	}
	files := []struct {
		path    *string
		name    string
		content []byte
	}{
		{&cp.keys.ca, "ca.crt", cp.ca.PEM()},
		{&cp.keys.cert, "apiserver.crt", server.Cert},
		{&cp.keys.key, "apiserver.key", server.Key},
		{&cp.keys.tokenKey, "sa.key", private},
		{&cp.keys.tokenPublic, "sa.pub", public},
		{&cp.keys.auditPolicy, "audit-policy.yaml", []byte(audit.Policy)},
	}
	for _, f := range files {
		if *f.path, err = cp.dir.write(f.name, f.content); err != nil {
			return err
		}
	}
	cp.keys.auditFile = filepath.Join(cp.dir.logs, auditLog)
	self, err := cp.ca.Client(ownUser, masters)
	if err != nil {
		return err
	}
	cp.probe, err = cp.ca.HTTPClient(self)
	return err
}

// firstAddress is the address the API server gives to its own Service.
func firstAddress(p netip.Prefix) netip.Addr {
	return p.Masked().Addr().Next()
}

// ownUser is whom the audit log names for what the handle itself asks, apart from the caller's admin.
const ownUser = "ashlar-controlplane"

const issuer = "https://kubernetes.default.svc.cluster.local"

func (cp *ControlPlane) apiServerUnit() *unit {
	u := cp.program(APIServer)
	u.port = true
	u.args = func(port int) []string {
		args := []string{
			"--etcd-servers=unix://" + cp.etcdSocket(),
			"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port),
			// A machine without a default route has no other address to advertise; and as Endpoints must not hold a
			// loopback address, nobody reconciles those of the Service kubernetes.
			"--advertise-address=127.0.0.1", "--endpoint-reconciler-type=none",
			"--service-cluster-ip-range=" + cp.opts.services.String(),
			"--authorization-mode=RBAC", "--allow-privileged=true",
			"--cert-dir=" + cp.dir.data, "--client-ca-file=" + cp.keys.ca,
			"--tls-cert-file=" + cp.keys.cert, "--tls-private-key-file=" + cp.keys.key,
			"--service-account-issuer=" + issuer, "--api-audiences=" + issuer,
			"--service-account-signing-key-file=" + cp.keys.tokenKey, "--service-account-key-file=" + cp.keys.tokenPublic,
		}
		if !cp.opts.noAudit {
			args = append(args,
				"--audit-policy-file="+cp.keys.auditPolicy, "--audit-log-path="+cp.keys.auditFile,
				"--audit-log-mode=blocking", // a count must be there when the answer is
				"--audit-log-maxsize=0",     // never rotated: marks are offsets
			)
		}
		return append(args, cp.opts.args[APIServer]...)
	}
	u.ready = func(ctx context.Context, port int) error {
		_, err := get(ctx, cp.probe, fmt.Sprintf("https://127.0.0.1:%d/readyz", port))
		return err
	}
	return u
}

// userConfig returns the configuration of a user that our CA vouches for.
func (cp *ControlPlane) userConfig(name string, groups ...string) (*rest.Config, error) {
	pair, err := cp.ca.Client(name, groups...)
	if err != nil {
		return nil, err
	}
	return &rest.Config{
		Host:            fmt.Sprintf("https://127.0.0.1:%d", cp.unit(APIServer).Port()),
		TLSClientConfig: rest.TLSClientConfig{CAData: cp.ca.PEM(), CertData: pair.Cert, KeyData: pair.Key},
		QPS:             unlimited,
	}, nil
}

// unlimited turns client-go's own rate limit off: a test wants to see what the code under test does.
const unlimited = -1
