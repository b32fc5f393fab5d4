// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package assets

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
)

// The names of the assets; each is a file name in the cache.
const (
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
	Kubectl           = "kubectl"
	Etcd              = "etcd"
	Kwok              = "kwok"
	// Stages is what kwok simulates: a file copied from kwok's module, next to the programs.
	Stages = "kwok-stages.yaml"
)

// Names returns all assets in the order in which they are built: the cheap one first, so that a broken set-up shows
// early.
func Names() []string {
	return []string{Etcd, APIServer, ControllerManager, Scheduler, Kubectl, Kwok, Stages}
}

// Recipe says how to make the assets. It is read from the tool-only modules in the directory build.
type Recipe struct {
	// Dir holds one module per set of pins: kube, etcd, kwok.
	Dir string
	// Kubernetes is the version of Kubernetes, with its v.
	Kubernetes string
	// Key names the content: everything that decides it is hashed into it.
	Key string
}

// layout is part of the key: raise it when what is stored changes without any input changing.
const layout = "1"

// LoadRecipe reads the modules below dir.
func LoadRecipe(dir string) (*Recipe, error) {
	sum := sha256.New()
	fmt.Fprintln(sum, layout, runtime.GOOS, runtime.GOARCH)
	r := &Recipe{Dir: dir}
	for _, module := range []string{"etcd", "kube", "kwok"} {
		for _, file := range []string{"go.mod", "go.sum"} {
			text, err := os.ReadFile(filepath.Join(dir, module, file))
			if err != nil {
				return nil, fmt.Errorf("read build recipe: %w", err)
			}
			fmt.Fprintf(sum, "%s/%s %d\n%s", module, file, len(text), text)
			if module == "kube" && file == "go.mod" {
				v := kubernetesVersion.FindSubmatch(text)
				if v == nil {
					return nil, fmt.Errorf("read build recipe: %s does not require k8s.io/kubernetes", filepath.Join(dir, module, file))
				}
				r.Kubernetes = string(v[1])
			}
		}
	}
	for _, name := range Names() {
		fmt.Fprintln(sum, r.build(name))
	}
	r.Key = r.Kubernetes + "-" + hex.EncodeToString(sum.Sum(nil))[:12]
	return r, nil
}

var kubernetesVersion = regexp.MustCompile(`(?m)^\s*(?:require\s+)?k8s\.io/kubernetes\s+(v\d+\.\d+\.\d+\S*)`)

// build is what to run for one asset: `go build` of a package in a module.
type build struct {
	module, pkg, ldflags string
}

func (r *Recipe) build(name string) build {
	const strip = "-s -w"
	switch name {
	case Etcd:
		return build{"etcd", "go.etcd.io/etcd/server/v3", strip}
	case Kwok:
		return build{"kwok", "sigs.k8s.io/kwok/cmd/kwok", strip}
	case Stages:
		return build{module: "kwok", pkg: stagesModule + " " + strings.Join(stages(), " ")}
	}
	// The version is stamped by Kubernetes' own release build; without it the server calls itself v0.0.0-master, and
	// clients that look at versions refuse it.
	flags := []string{strip}
	major, rest, _ := strings.Cut(strings.TrimPrefix(r.Kubernetes, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		flags = append(flags,
			"-X "+pkg+".gitVersion="+r.Kubernetes, "-X "+pkg+".gitMajor="+major, "-X "+pkg+".gitMinor="+minor,
			"-X "+pkg+".gitCommit=module", "-X "+pkg+".gitTreeState=clean")
	}
	return build{"kube", "k8s.io/kubernetes/cmd/" + name, strings.Join(flags, " ")}
}

// known says whether name is an asset.
func known(name string) bool {
	return slices.Contains(Names(), name)
}
