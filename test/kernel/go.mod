module github.com/ashlar-go/ashlar/test/kernel

go 1.26.0

require (
	github.com/ashlar-go/ashlar v0.0.0
	github.com/cilium/ebpf v0.22.0
	golang.org/x/sys v0.47.0
)

replace github.com/ashlar-go/ashlar => ../..
