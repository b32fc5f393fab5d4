# Copyright The Ashlar Authors
# SPDX-License-Identifier: Apache-2.0

# The whole repository is built without cgo, so that a machine with Go, git and make
# is enough and all modules share one build cache. Only the race detector needs a C compiler.
export CGO_ENABLED = 0
export GOFLAGS += -buildvcs=false

PKG ?=
FUZZTIME ?= 20s

.DEFAULT_GOAL := help

.PHONY: help
help: ## List the targets.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: ## Run the database operator end to end on a real control plane (KEEP=1 leaves it running; KUBECONFIG=… uses that cluster).
	@command -v go >/dev/null || { echo "make demo: Go 1.26 or newer is not installed" >&2; exit 1; }
	go run -C test/integration ./cmd/demo

.PHONY: demo-ebpf
demo-ebpf: ## Replace an eBPF program 500 times under traffic and show what happened (Linux, root).
	@command -v go >/dev/null || { echo "make demo-ebpf: Go 1.26 or newer is not installed" >&2; exit 1; }
	go run -C examples/hotswap .

.PHONY: test
test: ## Run every lane of the test suite.
	test/all

.PHONY: unit
unit: ## Run the tests of the library alone (seconds, no cluster).
	go test ./...

.PHONY: integration
integration: ## Run the tests that need the control plane.
	go test -C test/integration -count=1 -timeout 40m ./...

.PHONY: bench
bench: ## Measure against peers: make bench PKG=conditions. Prints one line per figure.
	go run -C test/bench ./cmd/bench -pkg "$(PKG)"

.PHONY: fuzz
fuzz: ## Fuzz every target for 10 minutes each (FUZZTIME=…).
	test/fuzz $(if $(filter command line environment,$(origin FUZZTIME)),$(FUZZTIME),10m)

.PHONY: soak
soak: ## Long variants of the crash and churn tests, and 102 000 random walks through conversions.
	SOAK=1 go test -count=1 -timeout 120m ./conversion/conversiontest
	SOAK=1 go test -C test/kernel -count=1 -timeout 60m ./...
	SOAK=1 go test -C test/ebpf -count=1 -timeout 60m ./...
	SOAK=1 go test -C test/integration -count=1 -timeout 120m ./...

.PHONY: controlplane
controlplane: ## Build the control plane (once, about ten minutes) and run one until interrupted.
	go run -C test/controlplane ./cmd/controlplane run

.PHONY: generate
generate: ## Write the generated files again: deep copies, CRDs, RBAC, decision tables.
	test/generate

.PHONY: lint
lint: ## gofmt, go vet and staticcheck over every module.
	test/lint

.PHONY: tidy
tidy: ## Tidy every module with the versions of tools/pins.tsv.
	tools/tidy
