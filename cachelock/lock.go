package cachelock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Lock is a lock that is held, until it is released or lost. It is safe for use by many goroutines.
type Lock struct {
	c       *Client
	keys    []string
	token   string
	holding holding
	fence   int64
	taken   time.Time
	base    context.Context // the values of the caller's, without its end

	// extending holds a value during an extension: in Redis they come in the same order as here, so until is never later than there.
	extending chan struct{} // made when it is used, see turn

	mu     sync.Mutex // guards all below
	o      LockOptions
	until  time.Time
	final  bool  // until stays: a request that makes the lock end sooner may be on its way
	state  error // nil while it is held, then ErrNotHeld or ErrLost
	ctx    context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer // stands at until, or at the next renewal when that is sooner; nil while nobody is to be told of the end
}

// newLock describes what was acquired by a request that began at start.
func (c *Client) newLock(ctx context.Context, keys []string, token string, h holding, fence int64, start time.Time, o LockOptions) *Lock {
	l := &Lock{c: c, keys: keys, token: token, holding: h, fence: fence, taken: start, o: o, base: ctx}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.until = start.Add(validity(o.TTL))
	if o.Renew {
		l.lookLocked(l.nextLocked())
	}
	return l
}

// lookLocked makes tick look at the lock after a while. It is not needed where the lock is not renewed and nobody has asked for its
// context: whoever asks for its state then finds that it has ended. l.mu is held.
func (l *Lock) lookLocked(after time.Duration) {
	switch {
	case l.timer != nil:
		l.timer.Reset(after)
	case l.o.Renew || l.ctx != nil:
		l.timer = time.AfterFunc(after, l.tick)
	}
}

// validity is how long the holder may rely on a lock of this ttl: clocks run at different speeds.
func validity(ttl time.Duration) time.Duration { return ttl - ttl/100 - 2*time.Millisecond }

// Key returns the key, or the first of several.
func (l *Lock) Key() string { return l.keys[0] }

// Token returns the random bits and the holder's name that are the lock's value in Redis.
func (l *Lock) Token() string { return l.token }

// Fence returns a number that rises with every acquisition of the lock. What the lock protects can refuse a holder with a
// smaller number than it has seen. It is 0 for a Redlock, which has none.
func (l *Lock) Fence() int64 { return l.fence }

// Until returns when the lock ends by this process's clock, unless it is extended.
func (l *Lock) Until() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.until
}

// Context returns a context that ends when the lock does: its cause is ErrLost when it was lost, ErrNotHeld when it was released.
// It has the values of the context that the lock was acquired with, but not its end.
func (l *Lock) Context() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx == nil {
		l.ctx, l.cancel = context.WithCancelCause(context.WithoutCancel(l.base))
		if state := l.stateLocked(); state != nil {
			l.cancel(state)
		} else {
			l.lookLocked(l.nextLocked())
		}
	}
	return l.ctx
}

// Extend makes the lock last ttl from now, also when that is sooner than before; renewals go on with this ttl. It is ErrLost when
// the lock is not ours any more, ErrNotHeld after Release. After any other error the lock ends at the sooner of the two times; when
// that is the new one, it can be neither extended nor renewed any more, since the request may arrive at any time.
// Where the Redis client repeats requests, do not extend for longer after a success either: the first may be on its way yet.
func (l *Lock) Extend(ctx context.Context, ttl time.Duration) error {
	if ttl < MinTTL {
		return invalid("ttl %s is below %s", ttl, MinTTL)
	}
	select {
	case l.turn() <- struct{}{}:
		defer func() { <-l.turn() }()
	case <-ctx.Done():
		return cancelled(ctx)
	}
	start := time.Now()
	sooner, err := l.shorten(start.Add(validity(ttl)))
	if err != nil {
		return err
	}
	return l.extended(start, ttl, sooner, l.holding.extend(ctx, ttl, sooner))
}

// Release gives the lock back. It is ErrLost when it was not ours any more, ErrNotHeld when it has been released already. When
// Redis does not serve, or ctx ends, the lock is given back in the background as soon as Redis is there, and else expires by
// itself. An answer that is lost on its way may make ErrLost of a release that was one: never the other way round.
func (l *Lock) Release(ctx context.Context) error {
	was := l.end(ErrNotHeld)
	if errors.Is(was, ErrNotHeld) {
		return was
	}
	err := l.holding.release(ctx)
	if was != nil { // lost before: what is left of it, if anything, is gone now
		return was
	}
	if errors.Is(err, ErrUnreachable) || errors.Is(err, ErrCancelled) {
		l.c.giveBack(l.holding)
	}
	return err
}

// end ends the lock for this process and returns what state it had.
func (l *Lock) end(state error) (was error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.stateLocked() // it may have been lost without anybody looking
	return l.endLocked(state)
}

// stateLocked is the state, which is ErrLost when the time is over. l.mu is held.
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

// extended notes what came of an extension that began at start. A lock that has ended meanwhile stays so.
func (l *Lock) extended(start time.Time, ttl time.Duration, sooner bool, err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	until := start.Add(validity(ttl))
	switch {
	case l.stateLocked() != nil:
		return l.state
	case errors.Is(err, ErrLost):
		l.endLocked(ErrLost)
		return err
	case err != nil: // it may have happened nevertheless, or happen later
		l.final = l.final || sooner
		l.lookLocked(min(l.nextLocked(), max(ttl/20, time.Millisecond)))
		return err
	}
	l.o.TTL, l.until = ttl, until
	l.lookLocked(l.nextLocked())
	return nil
}

// shorten makes the lock end no later than until, before the server can have heard of it, and tells whether that is sooner. The
// error is what has become of the lock meanwhile.
func (l *Lock) shorten(until time.Time) (sooner bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch sooner = until.Before(l.until); {
	case l.stateLocked() != nil:
		return false, l.state
	case sooner:
		l.until = until
		l.lookLocked(l.nextLocked())
	case l.final:
		return false, errFinal
	}
	return sooner, nil
}

// errFinal is the error of an extension after one that may yet make the lock end sooner.
var errFinal = fmt.Errorf("cannot extend a lock: %w: a request to end it sooner may be on its way", ErrUnreachable)

// turn is what those who extend wait for.
func (l *Lock) turn() chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.extending == nil {
		l.extending = make(chan struct{}, 1)
	}
	return l.extending
}

// ttl is what the lock is renewed by.
func (l *Lock) ttl() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.o.TTL
}

// renewsLocked tells whether the lock is to be renewed yet. l.mu is held.
func (l *Lock) renewsLocked() bool {
	return l.o.Renew && !l.final && time.Since(l.taken) < l.o.MaxHold
}

// nextLocked is when the lock has to be looked at: to renew it, or because it ends. l.mu is held.
func (l *Lock) nextLocked() time.Duration {
	left := time.Until(l.until)
	if l.renewsLocked() {
		return min(left, l.o.TTL/3)
	}
	return left
}

// tick ends the lock when its time is over, and else renews it. The timer is set before Redis is asked, which may hang.
func (l *Lock) tick() {
	l.mu.Lock()
	left := time.Until(l.until)
	renew := l.state == nil && left > 0 && l.renewsLocked()
	switch {
	case l.state != nil:
	case left <= 0:
		l.endLocked(ErrLost)
	default:
		l.lookLocked(l.nextLocked())
	}
	l.mu.Unlock()
	if renew && l.c.begin() {
		defer l.c.running.Done()
		l.renew(left)
	}
}

// renew extends the lock, unless somebody is doing it. When Redis does not serve, it is tried again soon.
func (l *Lock) renew(left time.Duration) {
	select {
	case l.turn() <- struct{}{}:
		defer func() { <-l.turn() }()
	default:
		return
	}
	ctx, cancel := context.WithTimeout(l.c.ctx, left)
	defer cancel()
	start, ttl := time.Now(), l.ttl()                                    // of now: an extension may just have changed it
	_ = l.extended(start, ttl, false, l.holding.extend(ctx, ttl, false)) // whoever waits for it waits for the lock's context
}
