// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conversion_test

import (
	"fmt"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ashlar-go/ashlar/conversion"
)

// cpu is the processor time of this thread: other work on the machine does not count.
func cpu(t *testing.T) time.Duration {
	t.Helper()
	const thread = 1 // RUSAGE_THREAD
	var u syscall.Rusage
	if err := syscall.Getrusage(thread, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// A list four times as long takes about four times as long, not sixteen times: an object of a megabyte holds twenty
// thousand small items, and an API server waits for thirty seconds.
func TestLongListsTakeNoSquareOfTheirLength(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for name, tt := range map[string]struct {
		item string
		n    int
		opts []conversion.Option
	}{
		"kept, keys":    {`,{"name":"%d","cidr":"x"}`, 1000, []conversion.Option{conversion.WithListKeys("v1", "spec.rules", "name")}},
		"kept, content": {`,{"name":"%d","cidr":"x"}`, 1000, nil},
		"kept, equal":   {`,{"name":"a","cidr":"%d"}`, 800, nil},
	} {
		b := conversion.New(widgets, tt.opts...)
		conversion.Pair(b, "v1alpha1", "v1", up, down)
		c, err := b.Build()
		if err != nil {
			t.Fatal(err)
		}
		took := func(n int) time.Duration {
			var items strings.Builder
			for i := range n {
				fmt.Fprintf(&items, tt.item, i)
			}
			in := []byte(newWidget(`{"rules":[` + items.String()[1:] + `]}`))
			least := time.Hour
			for range 2 {
				start := cpu(t)
				if _, err := c.Convert(t.Context(), in, "v1alpha1"); err != nil {
					t.Fatal(err)
				}
				least = min(least, cpu(t)-start)
			}
			return least
		}
		few, many := took(tt.n), took(4*tt.n)
		t.Logf("%s: %v and %v", name, few, many)
		if many > 9*max(few, 8*time.Millisecond) {
			t.Errorf("%s: %d items take %v, %d items %v", name, tt.n, few, 4*tt.n, many)
		}
	}
}

// Who forges an annotation cannot make a conversion take the square of it, either.
func TestForgedStashTakesNoSquare(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	c := build(t)
	took := func(n int) time.Duration {
		var items, stash strings.Builder
		for i := range n {
			fmt.Fprintf(&items, `,{"name":"%d"}`, i)
			fmt.Fprint(&stash, `,{\"p\":\"/spec/rules\",\"d\":[\"x\"]},{\"p\":\"/spec/rules/#x.1\",\"n\":1}`)
		}
		in := []byte(strings.Replace(oldWidget(`{"rules":[`+items.String()[1:]+`]}`), `"uid"`, `"annotations":{"`+conversion.Annotation+`":"{\"v1\":[`+stash.String()[1:]+`]}"},"uid"`, 1))
		start := cpu(t)
		if _, err := c.Convert(t.Context(), in, "v1"); err != nil {
			t.Fatal(err)
		}
		return cpu(t) - start
	}
	if few, many := took(400), took(1600); many > 9*max(few, 8*time.Millisecond) {
		t.Errorf("400 changes take %v, 1600 %v", few, many)
	}
}
