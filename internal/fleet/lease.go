package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"fastdfs-gateway/cachelock"
	"fastdfs-gateway/internal/cache"
)

// defaultLeadTimeout bounds the wait of the first gateway in rank for a lease, since a client waits
// for its first byte meanwhile. After that the fill continues without the lease; cachelock releases
// one that comes later.
const defaultLeadTimeout = 100 * time.Millisecond

// errLateLease is the error for a lease that has not come within leadTimeout.
var errLateLease = errors.New("redis has not replied in time")

// AcquireLease implements cache.Fleet.
func (f *Fleet) AcquireLease(ctx context.Context, key string, first bool) (
	lease context.Context, release func(), err error) {
	self := f.self.Load()
	if self.pending(&f.o) {
		f.wake()
		return nil, nil, fmt.Errorf("cannot take a lease: %w: the address of this gateway is not known yet",
			cache.ErrFleetDown)
	}
	limited, cancel := ctx, func() {}
	if first && self.advertise != "" { // without peers, only the lease prevents a second fetch
		limited, cancel = context.WithTimeoutCause(ctx, f.leadTimeout, errLateLease)
	}
	defer cancel()
	lock, err := f.takeLease(limited, key, self)
	var held *cachelock.HeldError
	switch {
	case err == nil:
		return lock.Context(), f.listLease(key, lock), nil
	case errors.As(err, &held):
		name, ours := self.records.parse(held.Holder)
		if held.TTL > 0 && (self.advertise == "" || ours) {
			f.stats.change(func(n *Stats) { n.Held++ })
			return nil, nil, &cache.Held{Holder: f.peerOf(name), Wait: func(ctx context.Context) error {
				return f.awaitRelease(ctx, name, LockInfo{Key: key, Holder: cmp.Or(name, held.Holder), TTL: held.TTL})
			}}
		}
		// A lease without an expiry, or of another program, may last for ever: the fill does not
		// wait.
		f.warn.Warn("lease", "a lease in redis is not one of this fleet: entries are fetched without it",
			"key", held.Key, "holder", fmt.Sprintf("%.255s", held.Holder),
			"advice", "give all gateways the same secret in [peer]")
		err = fmt.Errorf("%w: another program has written the lease of %q", cache.ErrFleetDown, key)
	}
	f.stats.change(func(n *Stats) { n.Failed++ })
	if ctx.Err() == nil && !errors.Is(err, cache.ErrFleetDown) {
		err = fmt.Errorf("%w: %w", cache.ErrFleetDown, err)
	}
	return nil, nil, err
}

// takeLease requests a lease from Redis.
func (f *Fleet) takeLease(ctx context.Context, key string, self *identity) (lock *cachelock.Lock, err error) {
	err = f.ask(ctx, "take a lease", func(limited context.Context) (err error) {
		// A lease from before a restart of this gateway is taken over: no process would release it.
		// After HandOver, another lease with this name is one of the new process.
		o := cachelock.LockOptions{Renew: true, TakeOver: !f.handedOver.Load(), Holder: self.holder}
		lock, err = f.locks.Acquire(limited, key, o)
		return err
	})
	return lock, err
}

// listLease counts an acquired lease, and lists it until it ends or is released.
func (f *Fleet) listLease(key string, lock *cachelock.Lock) (release func()) {
	f.stats.change(func(n *Stats) { n.Acquired++ })
	end := f.stats.list(LockInfo{Key: key, Holder: f.Name(), Since: time.Now(), TTL: f.o.LockTTL, Fence: lock.Fence()})
	held := lock.Context()
	context.AfterFunc(held, func() {
		if errors.Is(context.Cause(held), cachelock.ErrLost) {
			f.stats.change(func(n *Stats) { n.Lost++ })
		}
		end()
	})
	return func() {
		f.releaseLock(lock)
		end() // not later, as by the function above: the list is right when release returns
	}
}

// awaitRelease waits until a lease is released or has expired. A gateway that has released one is
// running: its back-off ends, also if requests to it have failed.
func (f *Fleet) awaitRelease(ctx context.Context, peer string, l LockInfo) error {
	began := time.Now()
	err := f.waitForLease(ctx, l)
	if err == nil && time.Since(began) < l.TTL { // released, not expired
		f.lives.ofPeer(peer).noteReply()
	}
	return err
}

// waitForLease waits until a lease is released or has expired, the breaker opens, or ctx ends. A
// waiter takes the lease and releases it at once, which wakes the next one: all waiters continue
// one after the other, within the time of a few messages.
func (f *Fleet) waitForLease(ctx context.Context, l LockInfo) error {
	up, err := f.breaker.allow()
	if err != nil {
		return err
	}
	l.Waiting, l.Since = true, time.Now()
	defer f.stats.list(l)()
	defer func() { f.o.Waited(time.Since(l.Since)) }()
	until, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(up, func() { cancel(cache.ErrFleetDown) })()
	ttl := min(f.o.LockTTL, 4*f.o.Timeout)
	o := cachelock.LockOptions{TTL: ttl, Policy: cachelock.WaitFor(time.Hour), Holder: f.self.Load().waiting}
	lock, err := f.locks.Acquire(until, l.Key, o)
	if err == nil {
		f.releaseLock(lock)
		return nil
	}
	if ctx.Err() == nil && up.Err() != nil {
		return cache.ErrFleetDown
	}
	return f.judge(ctx, fmt.Sprintf("wait for the lease of %q", l.Key), err)
}

// releaseLock releases a lock. While Redis is unavailable the lock expires.
func (f *Fleet) releaseLock(lock *cachelock.Lock) {
	ctx, cancel := context.WithTimeout(context.Background(), f.o.Timeout)
	defer cancel()
	if f.breaker.isOpen() {
		cancel() // the lock ends for this process, without a request to Redis
	}
	if err := lock.Release(ctx); errors.Is(err, cachelock.ErrUnreachable) {
		f.breaker.note(err, false)
	}
}
