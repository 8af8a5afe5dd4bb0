package cachelock

import (
	"context"
	"errors"
	"sync"
	"time"

	"fastdfs-gateway/internal/process/panics"
)

// Lock is a lock that is held until it is released or lost. It is safe for concurrent use.
type Lock struct {
	c       *Client
	keys    []string
	token   string
	holding holding
	fence   int64
	taken   time.Time
	base    context.Context // the caller's context, for its values

	mu     sync.Mutex // guards the fields below
	o      LockOptions
	until  time.Time // never later than the expiry in Redis
	state  error     // nil while the lock is held, then ErrNotHeld or ErrLost
	ctx    context.Context
	cancel context.CancelCauseFunc
	// timer fires at until, or at the next renewal if that is sooner; nil if neither is needed.
	timer *time.Timer
}

// setTimerLocked makes the timer call tick after the given time. A lock without renewal whose
// context was not requested needs no timer: its state is computed when it is used. l.mu is held.
func (l *Lock) setTimerLocked(after time.Duration) {
	switch {
	case l.timer != nil:
		l.timer.Reset(after)
	case l.o.Renew || l.ctx != nil:
		l.timer = time.AfterFunc(after, l.tick)
	}
}

// validity returns the time for which a holder relies on a lock with this ttl: less 1 % and 2 ms
// for clock drift.
func validity(ttl time.Duration) time.Duration { return ttl - ttl/100 - 2*time.Millisecond }

// Key returns the key; of several, the first one in order.
func (l *Lock) Key() string { return l.keys[0] }

// Token returns the lock's value in Redis: random bits and the holder's name; for a reentrant lock,
// the owner and the holder's name.
func (l *Lock) Token() string { return l.token }

// Fence returns a number that rises with every acquisition of the lock. All holds of the owner of a
// reentrant lock have the number of the first. A resource that the lock protects can reject a
// smaller number than it has seen. The fence is 0 for a Redlock, which has none.
func (l *Lock) Fence() int64 { return l.fence }

// Until returns the end of the lock by this process's clock, unless it is extended.
func (l *Lock) Until() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.until
}

// Context returns a context that ends with the lock, with the cause ErrLost or ErrNotHeld. It has
// the values of the context given to Acquire, but does not end with it.
func (l *Lock) Context() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx == nil {
		l.ctx, l.cancel = context.WithCancelCause(context.WithoutCancel(l.base))
		if state := l.stateLocked(); state != nil {
			l.cancel(state)
		} else {
			l.setTimerLocked(l.timerDelayLocked())
		}
	}
	return l.ctx
}

// Extend makes the lock end ttl from now, unless it ends later already; renewals use this ttl. It
// returns ErrLost if the lock is not held any more, ErrNotHeld after Release. If the request fails
// otherwise, the lock ends when it did before.
func (l *Lock) Extend(ctx context.Context, ttl time.Duration) error {
	if ttl < MinTTL {
		return invalid("ttl %s is below %s", ttl, MinTTL)
	}
	l.mu.Lock()
	state := l.stateLocked()
	l.mu.Unlock()
	if state != nil {
		return state
	}
	start := time.Now()
	return l.extended(start, ttl, l.holding.extend(ctx, ttl))
}

// Release releases the lock. It returns ErrLost if the lock was not held any more, ErrNotHeld if it
// has been released already. If Redis is unavailable, or ctx ends, the lock is released in the
// background as soon as Redis is available, or expires. If a reply is lost, Release may return
// ErrLost although it released the lock, but never nil if it did not.
func (l *Lock) Release(ctx context.Context) error {
	was := l.endHolding(ErrNotHeld)
	if errors.Is(was, ErrNotHeld) {
		return was
	}
	err := l.holding.releaseKeys(ctx)
	if was != nil { // lost before: the request released the rest, if any
		return was
	}
	if errors.Is(err, ErrUnreachable) || errors.Is(err, ErrCancelled) {
		l.c.releaseInBackground(l.holding, time.Until(l.Until()))
	}
	return err
}

// endHolding ends the lock for this process and returns its previous state.
func (l *Lock) endHolding(state error) (was error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.stateLocked() // it may have expired
	return l.endLocked(state)
}

// stateLocked returns the state, which becomes ErrLost at until. l.mu is held.
func (l *Lock) stateLocked() error {
	if l.state == nil && !time.Now().Before(l.until) {
		l.endLocked(ErrLost)
	}
	return l.state
}

func (l *Lock) endLocked(state error) (was error) {
	if was = l.state; errors.Is(was, ErrNotHeld) {
		return was
	}
	l.state = state
	if l.timer != nil {
		l.timer.Stop()
	}
	if l.cancel != nil && was == nil {
		l.cancel(state)
	}
	return was
}

// extended records the result of an extension that was sent at start. A lock that has ended
// meanwhile stays ended.
func (l *Lock) extended(start time.Time, ttl time.Duration, err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.stateLocked() != nil:
		return l.state
	case errors.Is(err, ErrLost):
		l.endLocked(ErrLost)
		return err
	case err != nil: // the request may have been executed, or arrive later
		l.setTimerLocked(min(l.timerDelayLocked(), max(ttl/20, time.Millisecond)))
		return err
	}
	l.o.TTL = ttl
	if until := start.Add(validity(ttl)); until.After(l.until) {
		l.until = until
	}
	l.setTimerLocked(l.timerDelayLocked())
	return nil
}

// ttl returns the ttl of renewals.
func (l *Lock) ttl() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.o.TTL
}

// renewsLocked reports whether the lock is still to be renewed. l.mu is held.
func (l *Lock) renewsLocked() bool {
	return l.o.Renew && time.Since(l.taken) < l.o.MaxHold
}

// timerDelayLocked returns the time until the next renewal or the end. l.mu is held.
func (l *Lock) timerDelayLocked() time.Duration {
	left := time.Until(l.until)
	if l.renewsLocked() {
		return min(left, l.o.TTL/3)
	}
	return left
}

// tick ends the lock at until, and renews it before. It sets the timer before it sends a request,
// which may hang.
func (l *Lock) tick() {
	l.mu.Lock()
	left := time.Until(l.until)
	renew := l.state == nil && left > 0 && l.renewsLocked()
	switch {
	case l.state != nil:
	case left <= 0:
		l.endLocked(ErrLost)
	default:
		l.setTimerLocked(l.timerDelayLocked())
	}
	l.mu.Unlock()
	if renew && l.c.beginWork() {
		defer l.c.running.Done()
		defer panics.Contain("renewing a lock")
		l.renew(left)
	}
}

// renew extends the lock. tick retries soon after a failure.
func (l *Lock) renew(left time.Duration) {
	ctx, cancel := context.WithTimeout(l.c.ctx, left)
	defer cancel()
	start, ttl := time.Now(), l.ttl()                      // read now: an extension may have changed it
	_ = l.extended(start, ttl, l.holding.extend(ctx, ttl)) // callers see a failure in the lock's context
}
