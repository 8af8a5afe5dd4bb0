package cachelock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// The kinds of errors. Every error of this package is one of them, by errors.Is, and wraps the
// error of Redis or the network.
var (
	// ErrHeld: another holder has the lock. The error is a *HeldError.
	ErrHeld = errors.New("another holder has the lock")
	// ErrUnreachable: Redis cannot be reached or returned an error. The lock may have been acquired
	// or released nevertheless; a lock that was acquired so is released as soon as Redis is
	// available, or expires.
	ErrUnreachable = errors.New("redis is unavailable")
	// ErrLost: the lock expired or was acquired by another holder. It is also the cause of a lost
	// lock's Context.
	ErrLost = errors.New("the lock was lost")
	// ErrNotHeld: this Lock has been released already.
	ErrNotHeld = errors.New("the lock is not held")
	// ErrCancelled: the caller's context ended first. The error is context.Canceled or
	// context.DeadlineExceeded too.
	ErrCancelled = errors.New("cancelled")
	// ErrInvalid: a key, a path or an option is invalid.
	ErrInvalid = errors.New("invalid lock request")
	// ErrClosed: the client has been closed.
	ErrClosed = errors.New("the lock client is closed")
)

// HeldError describes the lock that blocks a request.
type HeldError struct {
	Key    string        // of the lock
	Holder string        // name of its holder; "" if it is free and other waiters of a fair lock come first
	TTL    time.Duration // remaining time unless it is extended; 0 = unknown

	queue string // wait queue to join
	token string // value in Redis
}

// Error implements error.
func (e *HeldError) Error() string {
	return fmt.Sprintf("the lock %q is held by %q for %s", e.Key, e.Holder, e.TTL)
}

// Is reports whether target is ErrHeld.
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// heldBy returns the error for a lock that holds the token of another holder.
func heldBy(key, token string, ttl time.Duration) error {
	_, holder, _ := strings.Cut(token, ":")
	return &HeldError{Key: key, Holder: holder, TTL: max(ttl, 0), queue: key, token: token}
}

// failed wraps an error of Redis or the network in its kind.
func failed(ctx context.Context, what string, err error) error {
	if ctxErr(ctx) != nil {
		return cancelled(ctx)
	}
	return fmt.Errorf("cannot %s: %w: %w", what, ErrUnreachable, err)
}

// ctxErr returns the error of a context that has ended. It also compares the deadline with the
// clock: a network operation with the same deadline has a separate timer, which may fire before
// that of the context.
func ctxErr(ctx context.Context) error {
	if at, ok := ctx.Deadline(); ok && ctx.Err() == nil && !time.Now().Before(at) {
		return context.DeadlineExceeded
	}
	return ctx.Err()
}

// errLate: the lock was acquired, but the reply came after the end of its validity.
var errLate = errors.New("the reply came after the lock's ttl")

// cancelled returns the error for a context that has ended. Its cause is printed but not wrapped:
// it may be the loss of another lock.
func cancelled(ctx context.Context) error {
	err := ctxErr(ctx)
	if cause := context.Cause(ctx); cause != nil && cause != err {
		return fmt.Errorf("%w: %w: %v", ErrCancelled, err, cause)
	}
	return fmt.Errorf("%w: %w", ErrCancelled, err)
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrInvalid, fmt.Sprintf(format, args...))
}
