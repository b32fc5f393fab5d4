// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
)

// etcd talks over a Unix socket in a directory only we may enter: it has no port to collide on, and no other user of
// the machine can read the Secrets in it.
func (cp *ControlPlane) etcdSocket() string {
	return filepath.Join(cp.dir.run, "etcd.sock")
}

func (cp *ControlPlane) etcdUnit() *unit {
	client, peer := "unix://"+cp.etcdSocket(), "unix://"+filepath.Join(cp.dir.run, "peer.sock")
	u := cp.program(Etcd)
	u.args = func(int) []string {
		return append([]string{
			"--name=ashlar",
			"--data-dir=" + filepath.Join(cp.dir.data, "etcd"),
			"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
			"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=ashlar=" + peer,
			"--unsafe-no-fsync", // what is lost in a power cut was of no value
			"--quota-backend-bytes=8589934592",
			"--log-level=warn",
		}, cp.opts.args[Etcd]...)
	}
	u.ready = func(ctx context.Context, _ int) error {
		_, err := cp.etcdGet(ctx, "/readyz")
		return err
	}
	return u
}

// etcdGet reads one of etcd's HTTP endpoints.
func (cp *ControlPlane) etcdGet(ctx context.Context, path string) ([]byte, error) {
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", cp.etcdSocket())
		},
	}}
	return get(ctx, client, "http://etcd"+path)
}

// EtcdMetrics returns etcd's metrics in Prometheus' text format: request and watch latencies, database size, revisions.
func (cp *ControlPlane) EtcdMetrics(ctx context.Context) ([]byte, error) {
	if cp.group == nil {
		return nil, fmt.Errorf("read etcd metrics: %w", ErrNotOurs)
	}
	return cp.etcdGet(ctx, "/metrics")
}

// get reads a URL and takes everything but 200 for an error.
func get(ctx context.Context, client *http.Client, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("GET %s: %s: %.200s", url, resp.Status, body)
	}
	return body, nil
}
