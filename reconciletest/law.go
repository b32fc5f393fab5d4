// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package reconciletest

import "fmt"

// Law is one rule about requests that a reconciler sends. Laws are numbered so that a failing test can be looked up.
type Law int

// The laws a [LawTransport] holds every request against.
const (
	// DeletePolicy (1): a delete states its propagation policy.
	//
	// Without one the type decides, and for batch/v1 Jobs and ReplicationControllers the answer is orphan: their Pods
	// stay behind (kubernetes/client-go#495).
	DeletePolicy Law = iota + 1
	// DeletePreconditions (2): a delete carries the uid and the resourceVersion it was decided on.
	//
	// The uid saves a namesake created since, the resourceVersion an object that changed since, such as one that was
	// handed to another owner. After two conflicts on the same uid the uid alone is enough, as the garbage collector
	// does it: on a busy object the resourceVersion would never match.
	DeletePreconditions
	// DeleteCollection (3): nobody deletes a collection.
	//
	// The request hits whatever matches when it arrives, also objects nobody looked at, and carries no uid.
	DeleteCollection
	// DeleteOnce (4): an object that is terminating is not deleted again.
	//
	// A second foreground delete can put the foregroundDeletion finalizer back after the garbage collector is done
	// with the object, which then never goes (kubernetes/kubernetes#77081).
	DeleteOnce
	// WriteIdentity (5): an update, patch or apply of an object names its uid or its resourceVersion.
	//
	// Otherwise a write decided on an object that is gone reaches the namesake created since; an apply even creates
	// one. The resourceVersion "1", which no object has, makes an apply create only. Creating by POST names nothing
	// and is exempt: it can only create.
	WriteIdentity
	// StatusVersion (6): a write of the status subresource names the resourceVersion.
	//
	// The server ignores a uid in the body there, so that only the resourceVersion protects a newcomer of the same
	// name, and a newer verdict.
	StatusVersion
	// StatusPut (7): the status is patched or applied, never replaced.
	//
	// A PUT writes back every field as it was read, those of other writers too, and those the writer's types do not
	// know are lost.
	StatusPut
	// ForeignWrite (8): nothing is written to an object that the predicate of [WithForeign] calls foreign.
	ForeignWrite
	// Readable (9): the body of a write can be read.
	//
	// What cannot be read cannot be shown to obey. JSON, YAML and Kubernetes protobuf are read; CBOR is not.
	Readable
)

var lawNames = map[Law]struct{ name, why string }{
	DeletePolicy:        {"DeletePolicy", "without a policy the type decides, and for Jobs that leaves their Pods behind"},
	DeletePreconditions: {"DeletePreconditions", "without uid and resourceVersion the delete hits a namesake, or an object that changed since"},
	DeleteCollection:    {"DeleteCollection", "it deletes what matches on arrival, also what nobody looked at"},
	DeleteOnce:          {"DeleteOnce", "a second delete can put foregroundDeletion back and wedge the object"},
	WriteIdentity:       {"WriteIdentity", "without uid or resourceVersion the write reaches a namesake created since"},
	StatusVersion:       {"StatusVersion", "the server ignores the uid on status, only resourceVersion protects a namesake and a newer verdict"},
	StatusPut:           {"StatusPut", "a replaced status takes other writers' fields back to what was read"},
	ForeignWrite:        {"ForeignWrite", "the object belongs to somebody else"},
	Readable:            {"Readable", "what cannot be read cannot be shown to obey"},
}

// String is the law's number and name, such as "law 4 DeleteOnce".
func (l Law) String() string { return fmt.Sprintf("law %d %s", int(l), lawNames[l].name) }

// Why is the law's reason, in half a sentence.
func (l Law) Why() string { return lawNames[l].why }

// Violation is one request that broke one law.
type Violation struct {
	// Law is the broken law.
	Law Law
	// Write is the request.
	Write Write
	// What says what is missing or wrong in it.
	What string
}

// String is one sentence: law, request, what is wrong, why it matters.
func (v Violation) String() string {
	return fmt.Sprintf("%v: %v: %s (%s)", v.Law, v.Write, v.What, v.Law.Why())
}
