// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"fmt"
	"strings"
)

// Children is how many children the owner of the ownership metrics has.
const Children = 1000

// Few and Many are the two sizes between which planning must stay linear.
const (
	Few  = 100
	Many = 3000
)

// Owner of the children; its uid is the one in [State.Reply].
const (
	OwnerNamespace = "shop"
	OwnerName      = "orders"
	OwnerUID       = "7c9f2b0e-4d6a-4b6e-9b62-3f1f5c1d2a10"
)

// Child is a ConfigMap that an operator declares.
type Child struct {
	Name   string
	Labels [][2]string
	Data   [][2]string
}

// ChildrenOf returns n children of the owner, all different.
func ChildrenOf(n int) []Child {
	out := make([]Child, n)
	for i := range out {
		out[i] = Child{
			Name: fmt.Sprintf("%s-shard-%05d", OwnerName, i),
			Labels: [][2]string{
				{"app.kubernetes.io/managed-by", "database-operator"}, {"app.kubernetes.io/name", OwnerName},
				{"shard", fmt.Sprint(i)},
			},
			Data: [][2]string{
				{"listen.conf", fmt.Sprintf("listen_addresses = '*'\nport = %d\n", 5000+i)},
				{"memory.conf", "shared_buffers = '256MB'\nwork_mem = '16MB'\n"},
				{"role", "shard"},
			},
		}
	}
	return out
}

// UID is the uid of a stored child.
func (c Child) UID() string { return "uid-of-" + c.Name }

// Stored is a child as an API server returns it to a manager that applied labels and data.
func (c Child) Stored(manager string) []byte {
	object := func(pairs [][2]string) string {
		var b strings.Builder
		for i, p := range pairs {
			if i > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, "%q:%q", p[0], p[1])
		}
		return b.String()
	}
	fields := func(pairs [][2]string) string {
		var b strings.Builder
		for i, p := range pairs {
			if i > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, "%q:{}", "f:"+p[0])
		}
		return b.String()
	}
	return []byte(`{"apiVersion":"v1","data":{` + object(c.Data) + `},"kind":"ConfigMap","metadata":{"creationTimestamp":` +
		`"2026-02-01T08:00:00Z","labels":{` + object(c.Labels) + `},"managedFields":[{"apiVersion":"v1","fieldsType":"FieldsV1",` +
		`"fieldsV1":{"f:data":{` + fields(c.Data) + `},"f:metadata":{"f:labels":{` + fields(c.Labels) + `}}},"manager":"` + manager +
		`","operation":"Apply","time":"2026-02-01T08:00:00Z"}],"name":"` + c.Name + `","namespace":"` + OwnerNamespace +
		`","resourceVersion":"7","uid":"` + c.UID() + `"}}`)
}
