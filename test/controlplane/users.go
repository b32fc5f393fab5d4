// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// AddUser returns the configuration of a user of this name and these groups, without client-side rate limit. It may do
// what RBAC grants to them, nothing by default, and is what the audit log calls User. On a control plane of ours it
// holds a certificate, on another one it impersonates, which the caller must be allowed to do.
func (cp *ControlPlane) AddUser(name string, groups ...string) (*rest.Config, error) {
	if name == "" {
		return nil, errors.New("add user: the name is empty")
	}
	if cp.group == nil {
		cfg := cp.Config()
		cfg.Impersonate = rest.ImpersonationConfig{UserName: name, Groups: groups}
		return cfg, nil
	}
	cfg, err := cp.userConfig(name, groups...)
	if err != nil {
		return nil, fmt.Errorf("add user: %w", err)
	}
	return cfg, nil
}

// tokenSeconds is how long a service account's token is good: longer than any test.
const tokenSeconds = 24 * 60 * 60

// ServiceAccount returns the configuration of a service account, with a token that is good for a day and without
// client-side rate limit. The account is created when it is missing; the namespace must be there. For the audit log its
// user is system:serviceaccount:<namespace>:<name>.
//
// At most two requests: create serviceaccounts, create serviceaccounts/token.
func (cp *ControlPlane) ServiceAccount(ctx context.Context, namespace, name string) (*rest.Config, error) {
	accounts := cp.client.CoreV1().ServiceAccounts(namespace)
	_, err := accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("create ServiceAccount %s/%s: %w", namespace, name, err)
	}
	seconds := int64(tokenSeconds)
	token, err := accounts.CreateToken(ctx, name, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("create token of ServiceAccount %s/%s: %w", namespace, name, err)
	}
	cfg := rest.AnonymousClientConfig(cp.admin)
	cfg.BearerToken, cfg.QPS = token.Status.Token, unlimited
	return cfg, nil
}

// WriteKubeconfig writes cfg to a file in the control plane's directory and returns its path. Only its owner can read
// it, and Stop removes it.
func (cp *ControlPlane) WriteKubeconfig(cfg *rest.Config) (path string, err error) {
	cp.mu.Lock()
	cp.files++
	name := fmt.Sprintf("kubeconfig-%d", cp.files)
	cp.mu.Unlock()
	return cp.writeKubeconfig(name, cfg)
}

// componentKubeconfig writes the kubeconfig of one of our own components.
func (cp *ControlPlane) componentKubeconfig(c Component, user string, groups ...string) (string, error) {
	cfg, err := cp.userConfig(user, groups...)
	if err != nil {
		return "", err
	}
	return cp.writeKubeconfig("kubeconfig-"+string(c), cfg)
}

func (cp *ControlPlane) writeKubeconfig(name string, cfg *rest.Config) (string, error) {
	text, err := clientcmd.Write(kubeconfigOf(cfg))
	if err != nil {
		return "", fmt.Errorf("encode kubeconfig: %w", err)
	}
	return cp.dir.write(name, text)
}

// kubeconfigOf says in a kubeconfig what cfg says, as far as kubeconfigs can.
func kubeconfigOf(cfg *rest.Config) clientcmdapi.Config {
	const name = "ashlar"
	out := clientcmdapi.NewConfig()
	out.Clusters[name] = &clientcmdapi.Cluster{
		Server: cfg.Host + cfg.APIPath, TLSServerName: cfg.ServerName, InsecureSkipTLSVerify: cfg.Insecure,
		CertificateAuthority: cfg.CAFile, CertificateAuthorityData: cfg.CAData,
	}
	out.AuthInfos[name] = &clientcmdapi.AuthInfo{
		ClientCertificate: cfg.CertFile, ClientCertificateData: cfg.CertData,
		ClientKey: cfg.KeyFile, ClientKeyData: cfg.KeyData,
		Token: cfg.BearerToken, TokenFile: cfg.BearerTokenFile,
		Username: cfg.Username, Password: cfg.Password,
		Impersonate: cfg.Impersonate.UserName, ImpersonateUID: cfg.Impersonate.UID,
		ImpersonateGroups: cfg.Impersonate.Groups, ImpersonateUserExtra: cfg.Impersonate.Extra,
		AuthProvider: cfg.AuthProvider, Exec: cfg.ExecProvider,
	}
	out.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name, Namespace: metav1.NamespaceDefault}
	out.CurrentContext = name
	return *out
}
