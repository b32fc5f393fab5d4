// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"errors"
	"fmt"
)

// ErrChanged says that the CRD is not the one that was migrated: its generation or storage version is another, so objects
// may have been stored at an old version since. Run again.
var ErrChanged = errors.New("the CRD changed since the run")

// ErrIncomplete says that a run left objects behind. Mend them and run again.
var ErrIncomplete = errors.New("not every object was migrated")

// ErrNoConverter says that Rehearse has nothing to rehearse: WithConverter was not given.
var ErrNoConverter = errors.New("no converter was given")

// Failure is one object that could not be written.
type Failure struct {
	Namespace, Name string // of the object
	Err             error  // the server's answer
}

// Error names the object.
func (f Failure) Error() string { return fmt.Sprintf("%s: %v", key(f.Namespace, f.Name), f.Err) }

// Unwrap returns the server's answer.
func (f Failure) Unwrap() error { return f.Err }

func key(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}
