// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

// Package audit counts the requests that an API server answered, from its audit log: who asked, with which verb, for
// which object, and what the answer was. A test that promises "a converged object costs no request" or "the operator
// works under these rules" needs the server's own count; a counting client sees neither other clients nor retries.
//
//	log := cp.Audit()
//	mark := log.Mark()
//	reconcileAgain()
//	reqs, err := log.Since(mark, audit.ServiceAccount("db", "operator"))
//	if err != nil {
//		t.Fatal(err)
//	}
//	if len(reqs.Writes()) != 0 {
//		t.Errorf("a converged object was written:\n%s", reqs.Table())
//	}
//
// # Guarantees
//
// A request is counted once, when the server has answered it; a watch (and exec, attach, proxy, log, port-forward)
// once, when it starts. The log is written in blocking mode, before the server ends the answer, so whoever has read
// an answer to its end over HTTP/2 finds it counted. Over HTTP/1.1 with a Content-Length, a client may be microseconds
// ahead of the count when the answer is longer than the server's 4 KiB write buffer.
//
// # Assumptions
//
// The server runs with [Policy] and appends to one file, never rotated, as the control plane package starts it.
//
// # Cost
//
// No goroutine and no memory between calls: a [Mark] is an offset, and each call reads the file from there.
//
// # RBAC
//
// None: nothing here speaks to the server.
//
// # Not for
//
// Request or response bodies (the level is Metadata), and admission webhooks, which the server calls itself.
package audit
