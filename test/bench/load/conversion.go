// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"fmt"
	"strings"
)

// The kind of the conversion metrics: Gadget of example.com, v1alpha1 and v1.
const (
	OldGadget = "v1alpha1"
	NewGadget = "v1"
)

// Bulk is how many objects the large review has, and BulkPad what makes each of them 20 KiB long.
const (
	Bulk    = 2000
	BulkPad = 18 << 10
)

// Gadget is an object of about 2 KiB as an API server sends it: names in order, half of it managedFields of two managers.
// With extra, about 5 % of it is something that only v1 has. Name tells several apart; pad makes it longer.
func Gadget(version, name string, extra bool, pad int) string {
	var b strings.Builder
	fmt.Fprintf(&b, `{"apiVersion":"example.com/%s","kind":"Gadget","metadata":{"annotations":{"example.com/owner":"team-data","example.com/ticket":"4711"},`+
		`"creationTimestamp":"2026-03-01T10:00:00Z","finalizers":["example.com/cleanup"],"generation":3,"labels":{"app":"orders","tier":"db"},"managedFields":[`, version)
	fmt.Fprintf(&b, `{"apiVersion":"example.com/%s","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:annotations":{"f:example.com/owner":{},"f:example.com/ticket":{}},"f:labels":{"f:app":{},"f:tier":{}}},`+
		`"f:spec":{"f:address":{"f:host":{},"f:port":{}},"f:config":{"f:checkpoint_timeout":{},"f:max_connections":{},"f:shared_buffers":{},"f:wal_level":{},"f:work_mem":{}},"f:rules":{},"f:scalePolicy":{"f:max":{},"f:min":{}},"f:timeout":{}}},"manager":"kubectl","operation":"Apply","time":"2026-03-01T10:00:00Z"},`, version)
	fmt.Fprintf(&b, `{"apiVersion":"example.com/%s","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:finalizers":{".":{},"v:\"example.com/cleanup\"":{}}},"f:status":{"f:message":{},"f:readyReplicas":{}}},"manager":"operator","operation":"Update","subresource":"status","time":"2026-03-01T10:00:00Z"}],`, version)
	fmt.Fprintf(&b, `"name":%q,"namespace":"default","uid":"6c1e8a4e-0b8f-4d0a-9b1c-2f6f3d5e7a90"},"spec":{`, name)
	if version == NewGadget {
		b.WriteString(`"address":{"host":"orders.default.svc.cluster.local","port":5432},`)
	}
	config := `"checkpoint_timeout":"15min","max_connections":"200","shared_buffers":"2GB","wal_level":"replica","work_mem":"64MB"`
	if pad > 0 {
		config = `"a_padding":"` + strings.Repeat("x", pad) + `",` + config
	}
	b.WriteString(`"config":{` + config + `},`)
	if version == OldGadget {
		b.WriteString(`"endpoint":"orders.default.svc.cluster.local:5432",`)
	}
	b.WriteString(`"paused":true,`)
	if version == OldGadget {
		b.WriteString(`"replicas":3,`)
	}
	b.WriteString(`"rules":[`)
	for i, rule := range []string{"app", "metrics", "replication", "backup"} {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"description":"who may reach the %s port of the database","name":%q,"port":%d}`, rule, rule, 5432+i)
	}
	b.WriteString(`]`)
	if version == NewGadget {
		b.WriteString(`,"scalePolicy":{"max":3,"min":3}`)
		if extra {
			b.WriteString(`,"tier":{"class":"gold","window":"sunday 02:00-04:00 UTC"}`)
		}
		b.WriteString(`,"timeout":"30s"`)
	} else {
		b.WriteString(`,"timeoutSeconds":30`)
	}
	b.WriteString(`},"status":{"message":"the database answers queries on all of its ports","readyReplicas":3}}`)
	return b.String()
}

// Review is a ConversionReview as an API server sends it.
func Review(to string, objects ...string) []byte {
	return []byte(`{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1","request":{"uid":"705ab4f5-6393-11e8-b7cc-42010a800002","desiredAPIVersion":"example.com/` + to +
		`","objects":[` + strings.Join(objects, ",") + `]},"response":{"uid":"","convertedObjects":null,"result":{"metadata":{}}}}`)
}
