package cachelock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// The kinds of failure. Every error of this package is one of them, by errors.Is; what Redis or the network said is wrapped.
var (
	// ErrHeld: another has the lock. The error is a *HeldError.
	ErrHeld = errors.New("the lock is held by another")
	// ErrUnreachable: Redis cannot be reached, or does not serve. The lock may have been taken or released nevertheless; a lock
	// that was taken so is given back as soon as Redis is there again, or expires.
	ErrUnreachable = errors.New("redis does not serve")
	// ErrLost: it was ours, and has expired or been taken since. It is the cause of a lost lock's Context too.
	ErrLost = errors.New("the lock was lost")
	// ErrNotHeld: it has been released already, by ourselves.
	ErrNotHeld = errors.New("the lock is not held")
	// ErrCancelled: the caller's context ended first. errors.Is finds context.Canceled or context.DeadlineExceeded as well.
	ErrCancelled = errors.New("cancelled")
	// ErrInvalid: a key, path or option that can never work.
	ErrInvalid = errors.New("invalid lock request")
	// ErrClosed: the client has been closed.
	ErrClosed = errors.New("the lock client is closed")
)

// HeldError says who is in the way.
type HeldError struct {
	Key    string        // the one that is held
	Holder string        // Options.Holder of whoever has it; "" when it is free and others wait in a fair queue
	TTL    time.Duration // it is free after that, unless it is extended; 0 = not known

	line string // where to wait for it; "" = the line of Key
}

// lineKey is where to wait.
func (e *HeldError) lineKey() string {
	if e.line != "" {
		return e.line
	}
	return e.Key
}

// Error implements error.
func (e *HeldError) Error() string {
	return fmt.Sprintf("the lock %q is held by %q for %s", e.Key, e.Holder, e.TTL)
}

// Is makes errors.Is(err, ErrHeld) true.
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// heldBy makes the error from a holder's token.
func heldBy(key, token string, ttl time.Duration) error {
	_, holder, _ := strings.Cut(token, ":")
	return &HeldError{Key: key, Holder: holder, TTL: max(ttl, 0)}
}

// failed gives an error of Redis or the network its kind.
func failed(ctx context.Context, what string, err error) error {
	if ctx.Err() != nil {
		return cancelled(ctx)
	}
	return fmt.Errorf("cannot %s: %w: %w", what, ErrUnreachable, err)
}

// errLate is for an answer that says yes, but so late that the lock has expired.
var errLate = errors.New("the answer came after the lock's ttl")

// cancelled is the error of a context that has ended. Its cause is said, but not wrapped: it may be that another lock was lost.
func cancelled(ctx context.Context) error {
	if cause := context.Cause(ctx); cause != ctx.Err() {
		return fmt.Errorf("%w: %w: %v", ErrCancelled, ctx.Err(), cause)
	}
	return fmt.Errorf("%w: %w", ErrCancelled, ctx.Err())
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrInvalid, fmt.Sprintf(format, args...))
}
