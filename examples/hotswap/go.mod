module github.com/ashlar-go/ashlar/examples/hotswap

go 1.26.0

require (
	github.com/ashlar-go/ashlar v0.0.0-00010101000000-000000000000
	github.com/cilium/ebpf v0.22.0
	golang.org/x/sys v0.47.0
)

tool github.com/cilium/ebpf/cmd/bpf2go

replace github.com/ashlar-go/ashlar => ../..
