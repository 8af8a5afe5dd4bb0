package fleet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"fastdfs-gateway/cachelock"
	"fastdfs-gateway/internal/cache"
)

// lease is the right to refresh one entry.
type lease struct {
	f    *Fleet
	lock *cachelock.Lock
	id   int64 // in the book
	stop func() bool
}

var _ cache.Lease = (*lease)(nil)

// Lead implements cache.Fleet.
func (f *Fleet) Lead(ctx context.Context, key string) (cache.Lease, error) {
	var lock *cachelock.Lock
	err := f.ask(ctx, "take a lease", func(limited context.Context) (err error) {
		lock, err = f.locks.Acquire(limited, key, cachelock.LockOptions{Renew: true, MaxHold: maxHold})
		return err
	})
	var held *cachelock.HeldError
	switch {
	case err == nil:
		f.book.acquired.Add(1)
		return f.newLease(key, lock), nil
	case errors.As(err, &held):
		f.book.held.Add(1)
		return nil, &cache.Held{Holder: f.reachable(held.Holder)}
	}
	f.book.failed.Add(1)
	return nil, err
}

// newLease notes a lease in the book until it ends.
func (f *Fleet) newLease(key string, lock *cachelock.Lock) *lease {
	l := &lease{f: f, lock: lock}
	l.id = f.book.add(LockInfo{Key: key, Holder: f.o.Name, Since: time.Now(), TTL: f.o.LockTTL, Fence: lock.Fence()})
	held := lock.Context()
	l.stop = context.AfterFunc(held, func() {
		if errors.Is(context.Cause(held), cachelock.ErrLost) {
			f.book.lost.Add(1)
		}
		f.book.remove(l.id)
	})
	return l
}

// reachable is the holder as it can be asked for bytes: "" when it gave no address or is this gateway itself, which holds the lease
// from before a restart, or is about to give it back.
func (f *Fleet) reachable(holder string) string {
	if f.peerTLS == nil || holder == f.o.Advertise {
		return ""
	}
	if _, err := parsePeer(holder); err != nil {
		return ""
	}
	return holder
}

// Wait implements cache.Fleet. It ends when the breaker opens as well. Whoever waits takes the lease and gives it back at once, which
// wakes the next one: so all who wait come by, one after the other, within the time of a few messages.
func (f *Fleet) Wait(ctx context.Context, key string) error {
	up, err := f.breaker.allow()
	if err != nil {
		return err
	}
	start := time.Now()
	id := f.book.add(LockInfo{Key: key, Since: start, Waiting: true})
	defer func() {
		f.book.remove(id)
		f.o.Waited(time.Since(start))
	}()
	until, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(up, func() { cancel(cache.ErrFleetDown) })()
	lock, err := f.waiting.Acquire(until, key, cachelock.LockOptions{TTL: max(minTTL, min(f.o.LockTTL, 4*f.o.Timeout)), Policy: cachelock.WaitFor(f.o.LockWait)})
	if err == nil {
		f.release(lock)
		return nil
	}
	if ctx.Err() == nil && up.Err() != nil {
		return cache.ErrFleetDown
	}
	return f.judge(ctx, fmt.Sprintf("wait for the lease of %q", key), err)
}

// Context implements cache.Lease.
func (l *lease) Context() context.Context { return l.lock.Context() }

// Release implements cache.Lease.
func (l *lease) Release() {
	l.f.release(l.lock)
	l.stop()
	l.f.book.remove(l.id) // not later: what has ended the lock may have begun to tell the book in a goroutine of its own
}

// release gives a lock back. When Redis does not serve it expires by itself.
func (f *Fleet) release(lock *cachelock.Lock) {
	ctx, cancel := context.WithTimeout(context.Background(), f.o.Timeout)
	defer cancel()
	if f.breaker.retryAfter() > 0 {
		cancel() // it ends for this process, and nobody is asked
	}
	if err := lock.Release(ctx); errors.Is(err, cachelock.ErrUnreachable) {
		f.breaker.note(err)
	}
}
