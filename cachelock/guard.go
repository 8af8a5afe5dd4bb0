package cachelock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"text/template"
	"time"
)

// releaseTimeout bounds how long a guarded call waits for its lock to be released; after that it expires.
const releaseTimeout = 5 * time.Second

// Guard returns fn such that each call runs under a lock. The key is a text/template over the call's argument, like
// "thumbnail:{{.FileID}}:{{.Width}}"; a field that is not there is an error, at the latest in the call. LockOptions say how long
// the lock lasts, whether it is renewed, and what to do while another has it: a call that does not get the lock returns that
// error and does not run.
//
// The context that fn gets ends with the caller's, and when the lock is lost; then the call's error has ErrLost besides fn's own. LockFrom
// gives fn its lock, whose fence a Commit needs.
func Guard[A, R any](locker Locker, key string, o LockOptions, fn func(context.Context, A) (R, error)) (func(context.Context, A) (R, error), error) {
	keyOf, err := template.New("key").Option("missingkey=error").Parse(key)
	if err != nil {
		return nil, fmt.Errorf("%w: key template: %w", ErrInvalid, err)
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

// guarded runs fn under the lock and releases it, also when fn panics.
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

// lockKey is the key of a guarded function's lock in its context.
type lockKey struct{}

// LockFrom gives the lock that a guarded function runs under, by the context that it was given: the innermost, where one calls another. It is
// nil elsewhere.
func LockFrom(ctx context.Context) *Lock {
	lock, _ := ctx.Value(lockKey{}).(*Lock)
	return lock
}
