package locktest

import (
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"fastdfs-gateway/cachelock"

	"github.com/stretchr/testify/require"
)

// testReentrant: an owner can acquire its lock again, other owners cannot. The lock is free when
// every hold has been released.
func testReentrant(s *suite) {
	a, b := s.with(cachelock.Options{Holder: "a:1"}), s.client()
	me := cachelock.LockOptions{Owner: "job:7", TTL: time.Minute}
	first, second := s.acquire(a, me), s.acquire(a, me)
	require.Equal(s, first.Token(), second.Token())
	require.Equal(s, first.Fence(), second.Fence())
	_, err := b.Acquire(s.ctx, s.key, cachelock.LockOptions{Owner: "job:8"})
	held, ok := heldError(err)
	require.True(s, ok, err)
	require.Equal(s, "a:1", held.Holder)
	s.held(b)
	s.held(a) // a request without Owner is from another holder
	s.releaseLock(first)
	require.ErrorIs(s, first.Release(s.ctx), cachelock.ErrNotHeld)
	s.held(b)
	third := s.acquire(a, me)
	s.releaseLock(second)
	s.held(b)
	s.releaseLock(third)
	s.free(b)
	again := s.acquire(a, me)
	if !s.impl.NoFences {
		require.Greater(s, again.Fence(), third.Fence())
	}
	s.releaseLock(again)
}

// testReentrantExtend: each hold can extend the lock. The lock lasts as long as its longest hold.
func testReentrantExtend(s *suite) {
	a, b := s.client(), s.client()
	first := s.acquire(a, cachelock.LockOptions{Owner: "me", TTL: time.Minute})
	second, _ := s.brief(a, cachelock.LockOptions{Owner: "me"})
	require.NoError(s, first.Extend(s.ctx, long))
	s.ended(second)
	s.lasts(b, time.Minute)
	require.NoError(s, first.Context().Err())
	s.releaseLock(first)
	require.ErrorIs(s, second.Release(s.ctx), cachelock.ErrLost) // the hold in Redis is released nevertheless
	s.free(b)
}

// testReentrantExpiry: a hold of an expired lock is lost, even if the owner has acquired the lock
// again.
func testReentrantExpiry(s *suite) {
	c := s.client()
	old, _ := s.brief(c, cachelock.LockOptions{Owner: "me"})
	s.ended(old)
	other := s.acquire(c, cachelock.LockOptions{Policy: cachelock.WaitFor(soon)})
	s.releaseLock(other)
	again := s.acquire(c, cachelock.LockOptions{Owner: "me", TTL: time.Minute})
	require.ErrorIs(s, old.Release(s.ctx), cachelock.ErrLost)
	s.held(c)
	s.releaseLock(again)
	s.free(c)
}

// testReentrantWaited: another client waits for the last release of an owner, and an owner waits
// for another holder.
func testReentrantWaited(s *suite) {
	a, b := s.client(), s.client()
	me := cachelock.LockOptions{Owner: "me", TTL: 2 * long, Policy: cachelock.WaitFor(long)}
	first, second := s.acquire(a, me), s.acquire(a, me)
	got := s.waits(b, cachelock.LockOptions{TTL: 2 * long, Policy: cachelock.WaitFor(long)})
	s.releaseLock(first)
	s.held(b)
	s.releaseLock(second)
	other := s.got(got)
	got = s.waits(a, me)
	s.releaseLock(other)
	s.releaseLock(s.got(got))
}

// queued waits until n names are in the lock's queue.
func (s *suite) queued(n int) {
	s.Helper()
	for start := time.Now(); s.impl.Queued(s.T, s.key) != n; time.Sleep(5 * time.Millisecond) {
		require.Less(s, time.Since(start), soon, "not so many wait")
	}
}

// testFairOrder: the waiters of all processes acquire a fair lock in the order of their arrival.
func testFairOrder(s *suite) {
	one := cachelock.Options{Poll: long}
	clients := []*cachelock.Client{s.with(one), s.with(one)}
	lock := s.acquire(clients[0], cachelock.LockOptions{Fair: true, TTL: 2 * long})
	const waiters = 8
	order := make(chan int, waiters)
	for i := range waiters {
		go func() {
			lock, err := clients[i%2].Acquire(s.ctx, s.key,
				cachelock.LockOptions{Fair: true, TTL: 2 * long, Policy: cachelock.WaitFor(long)})
			order <- i
			if err == nil {
				err = lock.Release(s.ctx)
			}
			if err != nil {
				s.Error(err)
			}
		}()
		s.queued(i + 1)
	}
	s.releaseLock(lock)
	for i := range waiters {
		select {
		case got := <-order:
			require.Equal(s, i, got)
		case <-time.After(soon):
			s.Fatal("a fair lock is not handed on")
		}
	}
}

// testFairGivenUp: a waiter for a fair lock that gives up does not block the waiters behind it.
func testFairGivenUp(s *suite) {
	one := cachelock.Options{Poll: long}
	a, b := s.with(one), s.with(one)
	lock := s.acquire(a, cachelock.LockOptions{Fair: true, TTL: 2 * long})
	gone := s.waits(a, cachelock.LockOptions{Fair: true, Policy: cachelock.WaitFor(short)})
	got := s.waits(b, cachelock.LockOptions{Fair: true, Policy: cachelock.WaitFor(long)})
	require.ErrorIs(s, s.within(gone).err, cachelock.ErrHeld)
	s.queued(1)
	s.releaseLock(lock)
	s.releaseLock(s.got(got))
}

// keys returns the keys of further locks of the test.
func (s *suite) keys(names ...string) []string {
	keys := make([]string, len(names))
	for i, name := range names {
		keys[i] = s.key + "/" + name
	}
	return keys
}

// testAllOrNothing: a request for several locks acquires all or none.
func testAllOrNothing(s *suite) {
	a, b := s.client(), s.client()
	all := s.keys("1", "2", "3", "4", "5", "6", "7", "8", "3", "1")
	lock, err := a.AcquireAll(s.ctx, all, cachelock.LockOptions{TTL: time.Minute})
	require.NoError(s, err)
	for _, key := range all {
		_, err := b.Acquire(s.ctx, key, cachelock.LockOptions{})
		require.ErrorIs(s, err, cachelock.ErrHeld)
	}
	require.Equal(s, s.impl.NoFences, lock.Fence() == 0)
	s.releaseLock(lock)

	s.key = all[4]
	one := s.acquire(b, cachelock.LockOptions{TTL: time.Minute})
	_, err = a.AcquireAll(s.ctx, all, cachelock.LockOptions{})
	held, ok := heldError(err)
	require.True(s, ok, err)
	require.Equal(s, s.key, held.Key)
	for _, key := range all {
		if key != s.key {
			s.key = key
			s.releaseLock(s.acquire(b, cachelock.LockOptions{Policy: cachelock.WaitFor(long)}))
			s.key = all[4]
		}
	}
	s.releaseLock(one)
	lock, err = a.AcquireAll(s.ctx, all, cachelock.LockOptions{Policy: cachelock.WaitFor(long)})
	require.NoError(s, err)
	s.releaseLock(lock)
}

// testAllCrossing: two clients never hold overlapping sets of locks at the same time, and never
// deadlock.
func testAllCrossing(s *suite) {
	const workers, rounds, locks = 6, 10, 6
	clients := []*cachelock.Client{s.client(), s.client()}
	var inside [locks]atomic.Int64
	var all sync.WaitGroup
	errs := make(chan error, workers*rounds*locks)
	for i := range workers {
		all.Go(func() {
			for range rounds {
				if err := s.takeSome(clients[i%2], inside[:]); err != nil {
					errs <- err
				}
			}
		})
	}
	all.Wait()
	close(errs)
	for err := range errs {
		require.NoError(s, err)
	}
}

// takeSome acquires three of the locks in random order, checks that no other worker holds one of
// them, and releases them.
func (s *suite) takeSome(c *cachelock.Client, inside []atomic.Int64) error {
	mine := rand.Perm(len(inside))[:3]
	var names []string
	for _, n := range mine {
		names = append(names, strconv.Itoa(n))
	}
	// A lost notification fails the test: no client polls, and no lock expires before the end of
	// the wait.
	lock, err := c.AcquireAll(s.ctx, s.keys(names...),
		cachelock.LockOptions{TTL: 2 * long, Policy: cachelock.WaitFor(2 * soon)})
	if err != nil {
		return err
	}
	for _, n := range mine {
		if inside[n].Add(1) != 1 {
			err = errors.New("two have a lock")
		}
	}
	for _, n := range mine {
		inside[n].Add(-1)
	}
	return errors.Join(err, lock.Release(s.ctx))
}

// testAllWaits: a waiter for several held locks is notified of their releases, in any order, and
// acquires all locks after the last one.
func testAllWaits(s *suite) {
	a, b := s.client(), s.client()
	keys := s.keys("1", "2", "3", "4", "5")
	locks := map[string]*cachelock.Lock{}
	for _, key := range keys {
		s.key = key
		locks[key] = s.acquire(a, cachelock.LockOptions{TTL: 2 * long})
	}
	got := make(chan taken, 1)
	go func() {
		lock, err := b.AcquireAll(s.ctx, keys, cachelock.LockOptions{Policy: cachelock.WaitFor(long)})
		got <- taken{lock, err}
	}()
	for _, i := range []int{3, 0, 4, 1, 2} {
		s.settle()
		select {
		case <-got:
			s.Fatal("not all were free")
		default:
		}
		s.releaseLock(locks[keys[i]])
	}
	s.releaseLock(s.got(got))
}

// testAllExtended: locks that were acquired together are extended together and lost together.
func testAllExtended(s *suite) {
	a, b := s.client(), s.client()
	keys := s.keys("1", "2", "3", "4", "5")
	lock, err := a.AcquireAll(s.ctx, keys, cachelock.LockOptions{TTL: time.Minute})
	require.NoError(s, err)
	require.NoError(s, lock.Extend(s.ctx, long))
	for _, key := range keys {
		s.key = key
		s.lasts(b, time.Minute)
	}
	s.releaseLock(lock)
	for asked := time.Now(); ; asked = time.Now() {
		lock, err = a.AcquireAll(s.ctx, keys, cachelock.LockOptions{TTL: short, Policy: cachelock.WaitFor(soon)})
		if !s.late(err, asked) {
			break
		}
	}
	require.NoError(s, err)
	s.ended(lock)
	next, err := b.AcquireAll(s.ctx, keys, cachelock.LockOptions{Policy: cachelock.WaitFor(long)})
	require.NoError(s, err)
	require.ErrorIs(s, lock.Release(s.ctx), cachelock.ErrLost)
	s.releaseLock(next)
}
