package fleet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"fastdfs-gateway/cachelock"
	"fastdfs-gateway/internal/cache"
)

const (
	maxHold = time.Hour // of a lease: it is not renewed for longer
	// defaultLeadTimeout bounds the wait for a lease. A request waits for it before its first byte,
	// and the owner of an entry fetches it once without a lease too.
	defaultLeadTimeout = 100 * time.Millisecond
)

// Lead implements cache.Fleet.
func (f *Fleet) Lead(ctx context.Context, key string) (context.Context, func(), error) {
	limited, cancel := ctx, func() {}
	if f.peerTLS != nil { // without peers, the lease alone keeps others from fetching
		limited, cancel = context.WithTimeout(ctx, f.leadTimeout)
	}
	defer cancel()
	var lock *cachelock.Lock
	err := f.ask(limited, "take a lease", func(limited context.Context) (err error) {
		lock, err = f.locks.Acquire(limited, key, cachelock.LockOptions{Renew: true, MaxHold: maxHold})
		return err
	})
	var held *cachelock.HeldError
	switch {
	case err == nil:
		f.leases.acquired.Add(1)
		release := f.hold(key, lock)
		return lock.Context(), release, nil
	case errors.As(err, &held) && f.isForeign(held):
		f.leases.failed.Add(1)
		f.peers.warn.Warn("lease", "a lease in redis is not one of this fleet: entries are fetched without it",
			"key", held.Key, "holder", shown(held.Holder), "advice", "give all gateways the same secret in [peer]")
		return nil, nil, fmt.Errorf("%w: another program has written the lease of %q", cache.ErrFleetDown, key)
	case errors.As(err, &held):
		f.leases.held.Add(1)
		return nil, nil, &cache.Held{Holder: f.memberOf(held.Holder)}
	}
	f.leases.failed.Add(1)
	if ctx.Err() == nil && !errors.Is(err, cache.ErrFleetDown) {
		err = fmt.Errorf("%w: %w", cache.ErrFleetDown, err)
	}
	return nil, nil, err
}

// isForeign tells whether no gateway of the fleet has taken a lease: its holder is not named by a
// record made with the secret, or it does not expire. It is not waited for.
func (f *Fleet) isForeign(held *cachelock.HeldError) bool {
	_, ok := f.records.authentic(held.Holder)
	return f.peerTLS != nil && (!ok || held.TTL == 0)
}

// waitingName is the name under which a gateway looks whether a lease is free: it leads to no peer.
const waitingName = "waiting"

// hold lists a lease until it ends.
func (f *Fleet) hold(key string, lock *cachelock.Lock) (release func()) {
	id := f.leases.add(LockInfo{Key: key, Holder: f.o.Name, Since: time.Now(), TTL: f.o.LockTTL, Fence: lock.Fence()})
	held := lock.Context()
	stop := context.AfterFunc(held, func() {
		if errors.Is(context.Cause(held), cachelock.ErrLost) {
			f.leases.lost.Add(1)
		}
		f.leases.remove(id)
	})
	return func() {
		f.release(lock)
		stop()
		f.leases.remove(id) // here: a reader of the list sees that the lease has ended
	}
}

// Wait implements cache.Fleet. It ends when the breaker opens as well. A waiter takes the lease and
// gives it back at once, which wakes the next one: so all waiters are served, one after the other,
// within the time of a few messages.
func (f *Fleet) Wait(ctx context.Context, key string) error {
	up, err := f.breaker.allow()
	if err != nil {
		return err
	}
	start := time.Now()
	id := f.leases.add(LockInfo{Key: key, Since: start, Waiting: true})
	defer func() {
		f.leases.remove(id)
		f.o.Waited(time.Since(start))
	}()
	until, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(up, func() { cancel(cache.ErrFleetDown) })()
	ttl := max(minTTL, min(f.o.LockTTL, 4*f.o.Timeout))
	lock, err := f.waiting.Acquire(until, key, cachelock.LockOptions{TTL: ttl, Policy: cachelock.WaitFor(f.o.LockWait)})
	if err == nil {
		f.release(lock)
		return nil
	}
	if ctx.Err() == nil && up.Err() != nil {
		return cache.ErrFleetDown
	}
	return f.judge(ctx, fmt.Sprintf("wait for the lease of %q", key), err)
}

// release gives a lock back. When Redis does not serve it expires by itself.
func (f *Fleet) release(lock *cachelock.Lock) {
	ctx, cancel := context.WithTimeout(context.Background(), f.o.Timeout)
	defer cancel()
	if f.breaker.retryAfter() > 0 {
		cancel() // it ends for this process, and Redis is not asked
	}
	if err := lock.Release(ctx); errors.Is(err, cachelock.ErrUnreachable) {
		f.breaker.note(err)
	}
}
