// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package finalizers

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// holdPrefix begins the finalizer that keeps an object for somebody's cleanup.
const holdPrefix = "ashlar-go.github.io/hold-"

const (
	opHold   = "hold"
	opUnhold = "unhold"
)

// Hold keeps objects that the cleanup of owner will need, credentials for instance, until [Unhold]: each gets a
// finalizer of its own for this owner, so somebody may delete it, but it stays readable. Call it in apply, before the
// thing that will have to be cleaned up is created; call Unhold in a last cleanup step.
//
// The finalizer is named after the owner's kind and ends in a hash of its uid, so several owners may hold one object,
// and [Sweep] finds holds of owners that are gone.
//
// needed must be read from the server (a cache will do) and is not modified. An object that is being deleted cannot be
// held any more: the error matches [ErrTerminating]. One that does not exist any more, or whose name belongs to another
// object now, matches [ErrGone]. A cleanup step that finds its object missing should say [Stuck], never [Done]. All
// objects are tried; the errors are joined, each an [*Error].
//
// Cost: nothing for an object that is held already, else one PATCH; worst case three, each followed by one more that
// changes nothing and serves as a live read. RBAC: patch on the kinds of needed.
func Hold(ctx context.Context, c client.Client, owner client.Object, needed ...client.Object) error {
	name, err := holdOf(c, owner)
	if err != nil {
		return err
	}
	var errs []error
	for _, obj := range needed {
		errs = append(errs, hold(ctx, c, name, obj))
	}
	return errors.Join(errs...)
}

// Unhold takes away what [Hold] has put on the objects for this owner. An object that is gone needs no release. An
// object that was only waiting for this is deleted by the server in the same request. needed may come from a cache that
// does not show the hold yet.
//
// Cost: one PATCH for each object, which changes nothing when there was no hold; worst case three, each followed by one
// more that serves as a live read. RBAC: patch on the kinds of needed. All objects are tried; the errors are joined,
// each an [*Error].
func Unhold(ctx context.Context, c client.Client, owner client.Object, needed ...client.Object) error {
	name, err := holdOf(c, owner)
	if err != nil {
		return err
	}
	var errs []error
	for _, obj := range needed {
		errs = append(errs, unhold(ctx, c, name, obj))
	}
	return errors.Join(errs...)
}

func hold(ctx context.Context, c client.Client, name string, obj client.Object) error {
	k := call[client.Object]{c: c, live: patchReader{c: c, uid: obj.GetUID()}, finalizer: name}
	if obj.GetUID() == "" {
		return k.fail(opHold, obj, errNoUID)
	}
	for {
		if slices.Contains(obj.GetFinalizers(), name) {
			return nil
		}
		if obj.GetDeletionTimestamp() != nil {
			return k.fail(opHold, obj, ErrTerminating)
		}
		ops := append([]op{testUID(obj.GetUID())}, addOps(obj.GetFinalizers(), name)...)
		next, wrote, err := k.patch(ctx, opHold, obj, ops)
		if wrote || err != nil {
			return err
		}
		obj = next
	}
}

func unhold(ctx context.Context, c client.Client, name string, obj client.Object) error {
	k := call[client.Object]{c: c, live: patchReader{c: c, uid: obj.GetUID()}, finalizer: name}
	if obj.GetUID() == "" {
		return k.fail(opUnhold, obj, errNoUID)
	}
	ours := func(entry string) bool { return entry == name }
	for fresh := false; ; fresh = true {
		ops := removeOps(obj.GetFinalizers(), ours)
		if len(ops) == 0 && fresh {
			return nil
		}
		// Without operations this is a look at the live object: a cache that does not show the hold yet must not be
		// taken for its absence, because nobody would come back for it.
		next, wrote, err := k.patch(ctx, opUnhold, obj, append([]op{testUID(obj.GetUID())}, ops...))
		if errors.Is(err, ErrGone) || wrote && !slices.ContainsFunc(next.GetFinalizers(), ours) {
			return nil
		}
		if err != nil {
			return err
		}
		obj = next
	}
}

var errNoUID = errors.New("metadata.uid is empty: the object was not read from a server")

// holdOf names the hold of owner.
func holdOf(c client.Client, owner client.Object) (string, error) {
	if owner.GetUID() == "" {
		return "", &Error{Op: opHold, Object: refOf(owner), Err: errNoUID}
	}
	gvk, err := c.GroupVersionKindFor(owner)
	if err != nil {
		return "", &Error{Op: opHold, Object: refOf(owner), Err: err}
	}
	return holdName(gvk.GroupKind(), owner.GetUID()), nil
}

// holdName is at most 63 characters after the slash, as a qualified name must be. The kind is there for whoever looks
// at the held object; the first hash tells kinds apart that share a name, so that a sweep for one owner kind does not
// take the holds of another for leftovers.
func holdName(owner schema.GroupKind, uid types.UID) string {
	return holdNameOf(owner) + hash(string(uid))[:30]
}

func holdNameOf(owner schema.GroupKind) string {
	kind := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return -1
	}, strings.ToLower(owner.Kind))
	if len(kind) > 20 {
		kind = kind[:20]
	}
	return holdPrefix + kind + "-" + hash(owner.String())[:6] + "-"
}

func hash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// patchReader reads the live object with a client whose reads may be cached: a patch that only tests the uid changes
// nothing and is answered with what is stored. It needs no right but patch, which a hold needs anyhow.
type patchReader struct {
	c   client.Client
	uid types.UID
}

func (r patchReader) Get(ctx context.Context, _ client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	err := r.c.Patch(ctx, obj, client.RawPatch(types.JSONPatchType, encode([]op{testUID(r.uid)})))
	if apierrors.IsInvalid(err) { // only the test can have failed
		return apierrors.NewNotFound(schema.GroupResource{}, obj.GetName())
	}
	return err
}

func (patchReader) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return fmt.Errorf("list: %w", errors.ErrUnsupported)
}
