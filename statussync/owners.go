// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package statussync

import (
	"cmp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Owner says that a field manager holds a condition.
type Owner struct {
	Path      string                            // of the condition list, such as status.conditions
	Condition string                            // type
	Manager   string                            // its name
	Operation metav1.ManagedFieldsOperationType // Apply or Update
	Since     time.Time                         // of the manager's last change, to any field; zero when unknown

	// Fields are the condition's fields it holds, sorted, the key left out. Empty: the rest was taken from it, or it
	// never had more. A condition others drop cannot go while such an entry exists.
	Fields []string
}

// Owners lists who holds which condition of obj, as managedFields tell, for every condition list below status: sorted
// by path, condition and manager. It returns nil when managedFields are missing, as in a cache that strips them. It
// sends nothing and does not change obj.
func Owners(obj client.Object) []Owner {
	if obj == nil {
		return nil
	}
	var out []Owner
	entries := obj.GetManagedFields()
	for i := range entries {
		e := &entries[i]
		var since time.Time
		if e.Time != nil {
			since = e.Time.UTC()
		}
		walkConditions(parseFields(e.FieldsV1).below("f:status"), "status", func(path, typ string, item fieldSet) {
			o := Owner{Path: path, Condition: typ, Manager: e.Manager, Operation: e.Operation, Since: since}
			for f := range item {
				if name, ok := strings.CutPrefix(f, "f:"); ok && name != "type" {
					o.Fields = append(o.Fields, name)
				}
			}
			slices.Sort(o.Fields)
			out = append(out, o)
		})
	}
	slices.SortFunc(out, func(a, b Owner) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Condition, b.Condition),
			cmp.Compare(a.Manager, b.Manager), cmp.Compare(a.Operation, b.Operation))
	})
	return out
}

// walkConditions finds lists whose items have the key {type} and a status. The items of other lists are entered too,
// and their key is part of the path.
func walkConditions(s fieldSet, path string, found func(path, typ string, item fieldSet)) {
	for k, v := range s {
		sub, _ := v.(map[string]any)
		switch {
		case strings.HasPrefix(k, "f:"):
			walkConditions(sub, path+"."+k[2:], found)
		case strings.HasPrefix(k, "k:"):
			if t, ok := conditionKey(k); ok && strings.HasSuffix(path, "onditions") {
				found(path, t, sub)
				continue
			}
			walkConditions(sub, path+"["+k[2:]+"]", found)
		}
	}
}
