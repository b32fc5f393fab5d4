// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package finalizers

import "fmt"

// tell calls the observer, if there is one.
func (f *Finalizer[T]) tell(e Event) {
	if f.observe == nil {
		return
	}
	e.Finalizer = f.name
	if e.Regarding.IsZero() {
		e.Regarding = e.Object
	}
	f.observe(e)
}

// tellSkipped says which steps were given up in this pass. It comes before the write that stores it: saying it again
// after a failed write is better than never.
func (c *cleanup[T]) tellSkipped() {
	before := c.resume(c.stored)
	for i, s := range c.states() {
		if s.State != StateSkipped || before[i].State == StateSkipped || c.told[i] {
			continue
		}
		c.told[i] = true
		e := c.event(EventSkipped, s)
		why := fmt.Sprintf("cleanup step %q was %v", s.Step, s.Err)
		if onlyNamespaceTerminating(s.Err) {
			why = fmt.Sprintf("%s: cleanup step %q was skipped", c.namespaceTerminating(), s.Step)
		}
		e.Message = why + "; what it should have cleaned up may be left behind"
		c.tell(e)
	}
}

// tellSteps says which steps have changed, once that is stored.
func (c *cleanup[T]) tellSteps() {
	before := c.resume(c.stored)
	for i, s := range c.states() {
		if s.State == StateSkipped || s.State == before[i].State && s.Blocker == before[i].Blocker {
			continue
		}
		e := c.event(EventStep, s)
		e.Message = s.String()
		if s.State == StateNamespaceTerminating {
			e.Message = fmt.Sprintf("%s: cleanup step %q is stuck", c.namespaceTerminating(), s.Step)
		}
		c.tell(e)
	}
}

func (c *cleanup[T]) event(kind EventKind, s StepProgress) Event {
	e := Event{Kind: kind, Object: refOf(c.res.Object), Step: s.Step, State: s.State, Blocker: s.Blocker, Since: s.Since, Err: s.Err}
	if ns := c.res.Object.GetNamespace(); ns != "" && onlyNamespaceTerminating(s.Err) {
		e.Regarding = Ref{APIVersion: "v1", Kind: "Namespace", Name: ns}
	}
	return e
}

// namespaceTerminating is the sentence for what no step can get around. Which namespace it is only the server's message
// says; of a namespaced owner it is its own, because only that one must go together with it.
func (c *cleanup[T]) namespaceTerminating() string {
	if ns := c.res.Object.GetNamespace(); ns != "" {
		return "namespace " + ns + " is terminating, nothing can be created in it"
	}
	return "the namespace is terminating, nothing can be created in it"
}
