package cachelock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/template"
	"text/template/parse"
	"time"
)

// releaseTimeout bounds the wait for the release at the end of a guarded call; after that the lock
// is released in the background, or expires.
const releaseTimeout = 5 * time.Second

// Guard returns a function that calls fn under a lock. The key is a text/template over the
// argument, such as "thumbnail:{{.FileID}}:{{.Width}}"; a template without an action is an error,
// and so is a missing field, at the latest in the call. LockOptions set the time to live, the
// renewal, and the waiting. A call that does not acquire the lock returns the error without calling
// fn.
//
// The context of fn ends with the caller's and when the lock is lost; then the error of the call
// has ErrLost besides that of fn. LockFrom returns the lock with its fence to fn.
func Guard[A, R any](locker Locker, key string, o LockOptions,
	fn func(context.Context, A) (R, error)) (func(context.Context, A) (R, error), error) {
	keyOf, err := template.New("key").Option("missingkey=error").Parse(key)
	if err != nil {
		return nil, fmt.Errorf("%w: key template: %w", ErrInvalid, err)
	}
	if keyOf.Tree == nil || !slices.ContainsFunc(keyOf.Root.Nodes, isAction) {
		return nil, invalid("key template %q has no action such as {{.}}: all calls would have one key", key)
	}
	return func(ctx context.Context, arg A) (result R, err error) {
		var name strings.Builder
		if err := keyOf.Execute(&name, arg); err != nil {
			return result, fmt.Errorf("%w: key template: %w", ErrInvalid, err)
		}
		lock, err := locker.Acquire(ctx, name.String(), o)
		if err != nil {
			return result, err
		}
		return guarded(ctx, lock, func(ctx context.Context) (R, error) { return fn(ctx, arg) })
	}, nil
}

// isAction reports whether a node of a template is more than text.
func isAction(n parse.Node) bool { return n.Type() != parse.NodeText }

// guarded calls fn under the lock and releases it, also if fn panics.
func guarded[R any](ctx context.Context, lock *Lock, fn func(context.Context) (R, error)) (result R, err error) {
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
		defer cancel()
		if released := lock.Release(ctx); errors.Is(released, ErrLost) {
			err = errors.Join(err, released)
		}
	}()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(lock.Context(), func() { cancel(context.Cause(lock.Context())) })
	defer stop()
	return fn(context.WithValue(ctx, lockKey{}, lock))
}

// lockKey is the context key of a guarded function's lock.
type lockKey struct{}

// LockFrom returns the innermost lock of a guarded function from its context; nil outside of
// guarded functions.
func LockFrom(ctx context.Context) *Lock {
	lock, _ := ctx.Value(lockKey{}).(*Lock)
	return lock
}
