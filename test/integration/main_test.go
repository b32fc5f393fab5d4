// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/ashlar-go/ashlar/test/integration/lab"
)

// cluster is the control plane of this test binary. TestMain sets it before any test
// and nobody changes it.
var cluster *lab.Lab

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	// The tests wait more than they compute.
	if err := flag.Set("test.parallel", "8"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	flag.Parse()
	log.SetLogger(logr.Discard())                                            // or controller-runtime complains that nobody has
	ctx, cancel := context.WithTimeout(context.Background(), 40*time.Minute) // it may have to be built
	defer cancel()
	var err error
	if cluster, err = lab.Start(ctx, os.Stderr, ""); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	if code == 0 {
		// Which rules were needed is known when everything has run.
		everything := flag.Lookup("test.run").Value.String() == "" && flag.Lookup("test.skip").Value.String() == ""
		if err := judgeRules(os.Stdout, everything); err != nil {
			fmt.Fprintln(os.Stderr, "--- FAIL: the operator's rules:", err)
			code = 1
		}
	}
	if err := cluster.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	return code
}
