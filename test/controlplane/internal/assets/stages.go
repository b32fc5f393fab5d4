// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package assets

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
)

const stagesModule = "sigs.k8s.io/kwok"

// stages returns the stage files in kwok's module, relative to its kustomize/stage: nodes become ready at once and
// renew a lease, pods run or complete at once, claims of class kwok-volume are provisioned, bound and released.
func stages() []string {
	return []string{
		"node/fast/node-initialize.yaml",
		"node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
		"pod/fast/pod-ready.yaml", "pod/fast/pod-complete.yaml", "pod/fast/pod-delete.yaml",
		"volume/fast/pvc-provision.yaml", "volume/fast/pvc-delete.yaml",
		"volume/fast/pv-bind.yaml", "volume/fast/pv-delete.yaml",
	}
}

// joinStages reads the stage files of the kwok module at dir into one document stream.
func joinStages(dir string) ([]byte, error) {
	var out bytes.Buffer
	for _, name := range stages() {
		text, err := os.ReadFile(filepath.Join(dir, "kustomize", "stage", filepath.FromSlash(name)))
		if err != nil {
			return nil, fmt.Errorf("read kwok stage: %w", err)
		}
		out.WriteString("---\n")
		out.Write(bytes.TrimSpace(text))
		out.WriteByte('\n')
	}
	return out.Bytes(), nil
}
