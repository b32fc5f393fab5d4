// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"errors"
	"fmt"
	"strings"
)

var (
	// ErrIllegalReference is matched by errors of New and Plan about a native reference that Kubernetes does not allow:
	// across namespaces, or from a cluster-scoped child to a namespaced owner. The garbage collector would delete the
	// child, or never collect it.
	ErrIllegalReference = errors.New("native owner reference is not allowed")
	// ErrNoFinalizer is matched by errors about a claim that no garbage collector knows, on an owner which lacks the
	// finalizer that would clean it up.
	ErrNoFinalizer = errors.New("claim needs a finalizer on the owner")
	// ErrUndeclared is matched by errors about objects whose kind the set does not declare.
	ErrUndeclared = errors.New("kind is not declared")
	// ErrPruneRefused is matched by *PruneError.
	ErrPruneRefused = errors.New("prune refused")
)

// PruneError says that a plan would have deleted more than the policy allows. The plan returned beside it still holds
// every other decision, with Keep in place of each refused Prune. It matches ErrPruneRefused.
type PruneError struct {
	// Owner of the members.
	Owner Ref
	// Members is how many members are alive, Refused those that would have been deleted.
	Members int
	Refused []Ref
	// Rule is the rule that refused, in words.
	Rule string
}

// Error names the owner, the rule and the first refused members.
func (e *PruneError) Error() string {
	names := make([]string, 0, 4)
	for i, r := range e.Refused {
		if i == 3 {
			names = append(names, fmt.Sprintf("+%d more", len(e.Refused)-i))
			break
		}
		names = append(names, r.String())
	}
	return fmt.Sprintf("prune members of %s: %s (%d of %d members: %s)",
		e.Owner, e.Rule, len(e.Refused), e.Members, strings.Join(names, ", "))
}

// Is makes errors.Is(err, ErrPruneRefused) true.
func (e *PruneError) Is(target error) bool { return target == ErrPruneRefused }
