package locktest

import (
	"context"
	"strconv"
	"strings"
	"time"

	"fastdfs-gateway/cachelock"

	"github.com/stretchr/testify/require"
)

// testRejected: a request for a held lock is rejected. The error has the holder and the remaining
// time.
func testRejected(s *suite) {
	a := s.with(cachelock.Options{Holder: "host-a:8080"})
	b := s.with(cachelock.Options{Holder: "host-a:8080"})
	lock := s.acquire(a, cachelock.LockOptions{TTL: time.Minute})
	require.Equal(s, s.key, lock.Key())
	require.True(s, strings.HasSuffix(lock.Token(), ":host-a:8080"), lock.Token())
	require.Less(s, time.Until(lock.Until()), time.Minute)
	require.Greater(s, time.Until(lock.Until()), time.Second)

	held := s.held(b)
	require.Equal(s, s.key, held.Key)
	require.Equal(s, "host-a:8080", held.Holder)
	require.LessOrEqual(s, held.TTL, time.Minute)
	require.Greater(s, held.TTL, time.Second)
	s.held(a) // the same client is rejected too
	s.releaseLock(lock)
	s.free(b)
}

// testOwnerReleases: the former holder of a lost lock can neither extend nor release the lock of
// the next holder.
func testOwnerReleases(s *suite) {
	a, b := s.client(), s.client()
	old, _ := s.brief(a, cachelock.LockOptions{})
	s.ended(old)
	next := s.acquire(b, cachelock.LockOptions{Policy: cachelock.WaitFor(soon)})
	require.NotEqual(s, old.Token(), next.Token())
	require.ErrorIs(s, old.Extend(s.ctx, time.Minute), cachelock.ErrLost)
	require.ErrorIs(s, old.Release(s.ctx), cachelock.ErrLost)
	require.ErrorIs(s, old.Release(s.ctx), cachelock.ErrNotHeld)
	require.ErrorIs(s, context.Cause(old.Context()), cachelock.ErrLost)
	s.held(a)
	require.NoError(s, next.Extend(s.ctx, time.Minute))
	s.releaseLock(next)
}

// testExpiry: a lock that is not extended expires for its holder before it expires for other
// clients.
func testExpiry(s *suite) {
	c := s.client()
	lock, asked := s.brief(c, cachelock.LockOptions{})
	next := s.acquire(s.client(), cachelock.LockOptions{Policy: cachelock.WaitFor(soon)})
	require.GreaterOrEqual(s, time.Since(asked), short-5*time.Millisecond) // clocks have a resolution
	require.False(s, time.Now().Before(lock.Until()))
	s.ended(lock)
	s.releaseLock(next)
}

func testExtend(s *suite) {
	a, b := s.client(), s.client()
	lock, asked := s.brief(a, cachelock.LockOptions{})
	until := lock.Until()
	err := lock.Extend(s.ctx, long)
	for err != nil { // only if the machine stalled until the lock had expired
		require.ErrorIs(s, err, cachelock.ErrLost)
		require.GreaterOrEqual(s, time.Since(asked), short-short/10)
		require.ErrorIs(s, lock.Release(s.ctx), cachelock.ErrLost) // the failed request may have extended the lock
		lock, asked = s.brief(a, cachelock.LockOptions{})
		until = lock.Until()
		err = lock.Extend(s.ctx, long)
	}
	require.True(s, lock.Until().After(until))
	time.Sleep(time.Until(until) + short)
	require.NoError(s, lock.Context().Err())
	s.lasts(b, short)
	s.releaseLock(lock)
}

// testRenew: a renewed lock lasts longer for its holder and for other clients, but not beyond its
// release. The test starts again if the lock expires, since the machine may have stalled that long.
func testRenew(s *suite) {
	a, b := s.client(), s.client()
	var lock *cachelock.Lock
	var acquired time.Time
	for scene := 0; lock == nil; scene++ {
		require.Less(s, scene, 20, "the lock is not renewed")
		asked := time.Now()
		var err error
		lock, err = a.Acquire(s.ctx, s.key,
			cachelock.LockOptions{TTL: renewed, Renew: true, Policy: cachelock.WaitFor(soon)})
		if s.late(err, asked) {
			continue
		}
		require.NoError(s, err)
		acquired = time.Now()
		for until := lock.Until(); lock != nil && !lock.Until().After(until); time.Sleep(20 * time.Millisecond) {
			if lock.Context().Err() != nil {
				lock = nil
			}
		}
	}
	s.lasts(b, renewed-time.Since(acquired)) // remaining time of a lock without renewal
	s.releaseLock(lock)
	s.free(b)
}

func testReleasedTwice(s *suite) {
	c := s.client()
	lock := s.acquire(c, cachelock.LockOptions{})
	s.releaseLock(lock)
	next := s.acquire(c, cachelock.LockOptions{})
	require.ErrorIs(s, lock.Release(s.ctx), cachelock.ErrNotHeld)
	require.ErrorIs(s, lock.Extend(s.ctx, time.Minute), cachelock.ErrNotHeld)
	s.held(c)
	s.releaseLock(next)
}

// testContext: the context of a lock has the values of the caller's context. It ends with the lock,
// not with the caller's context.
func testContext(s *suite) {
	type name struct{}
	ctx, cancel := context.WithCancel(context.WithValue(s.ctx, name{}, "value"))
	lock, err := s.client().Acquire(ctx, s.key, cachelock.LockOptions{})
	require.NoError(s, err)
	cancel()
	require.NoError(s, lock.Context().Err())
	require.Equal(s, "value", lock.Context().Value(name{}))
	s.releaseLock(lock)
	require.ErrorIs(s, lock.Context().Err(), context.Canceled)
	require.ErrorIs(s, context.Cause(lock.Context()), cachelock.ErrNotHeld)
}

// testFenceRises: the fence rises with every acquisition, by any client, after a release
// and after an expiry.
func testFenceRises(s *suite) {
	a, b := s.client(), s.client()
	last := int64(0)
	rises := func(lock *cachelock.Lock) {
		s.Helper()
		require.Greater(s, lock.Fence(), last)
		last = lock.Fence()
	}
	for range 20 {
		for _, c := range []*cachelock.Client{a, b} {
			lock := s.acquire(c, cachelock.LockOptions{})
			rises(lock)
			s.releaseLock(lock)
		}
	}
	expired, _ := s.brief(a, cachelock.LockOptions{})
	rises(expired)
	s.ended(expired)
	next := s.acquire(b, cachelock.LockOptions{Policy: cachelock.WaitFor(soon)})
	rises(next)
	s.releaseLock(next)
}

// testKeys: a key may contain any bytes.
func testKeys(s *suite) {
	a, b := s.client(), s.client()
	keys := []string{
		"a", "A", "a ", " a", "a b", "a\nb", "a\r\nb", "a\x00b", "{}", "{a}", "}{", "a}:lock:b", ":lock:",
		"x:lock:y:queue:z", "a/b",
		"a*", "a?", "[a]", "a%b", "a.b", "ключ", "锁🔒", "\xff\xfe", strings.Repeat("k", 4096),
	}
	var locks []*cachelock.Lock
	for _, key := range keys { // different keys are different locks
		lock, err := a.Acquire(s.ctx, s.key+key, cachelock.LockOptions{TTL: 2 * long})
		if len(s.key+key) > 4096 {
			require.ErrorIs(s, err, cachelock.ErrInvalid)
			lock, err = a.Acquire(s.ctx, key, cachelock.LockOptions{TTL: 2 * long})
		}
		require.NoError(s, err, "%q", key)
		locks = append(locks, lock)
	}
	for _, lock := range locks { // the waiter for each key is notified of its release
		s.key = lock.Key()
		got := s.waits(b, cachelock.LockOptions{Policy: cachelock.WaitFor(long)})
		require.NoError(s, lock.Release(s.ctx), "%q", lock.Key())
		s.releaseLock(s.got(got))
	}
}

func testInvalid(s *suite) {
	c := s.client()
	for _, key := range []string{"", strings.Repeat("k", 4097)} {
		_, err := c.Acquire(s.ctx, key, cachelock.LockOptions{})
		require.ErrorIs(s, err, cachelock.ErrInvalid)
		_, err = c.AcquireAll(s.ctx, []string{"a", "b", key}, cachelock.LockOptions{})
		require.ErrorIs(s, err, cachelock.ErrInvalid)
	}
	for _, o := range []cachelock.LockOptions{
		{TTL: cachelock.MinTTL - 1}, {TTL: -time.Second}, {Owner: "me", Fair: true},
	} {
		_, err := c.Acquire(s.ctx, s.key, o)
		require.ErrorIs(s, err, cachelock.ErrInvalid)
	}
	for _, o := range []cachelock.LockOptions{{Owner: "me"}, {Fair: true}} {
		_, err := c.AcquireAll(s.ctx, []string{"a", "b"}, o)
		require.ErrorIs(s, err, cachelock.ErrInvalid)
	}
	many := make([]string, 1025)
	for i := range many {
		many[i] = strconv.Itoa(i)
	}
	for _, keys := range [][]string{nil, {}, many} {
		_, err := c.AcquireAll(s.ctx, keys, cachelock.LockOptions{})
		require.ErrorIs(s, err, cachelock.ErrInvalid)
	}
	lock := s.acquire(c, cachelock.LockOptions{})
	require.ErrorIs(s, lock.Extend(s.ctx, 0), cachelock.ErrInvalid)
	s.releaseLock(lock)
}

// testClosed: a closed client acquires no locks, and its waiters get ErrClosed.
func testClosed(s *suite) {
	c := s.client()
	holder := s.acquire(c, cachelock.LockOptions{})
	got := s.waits(c, cachelock.LockOptions{Policy: cachelock.WaitFor(long)})
	require.NoError(s, c.Close())
	require.ErrorIs(s, s.within(got).err, cachelock.ErrClosed)
	_, err := c.Acquire(s.ctx, "another", cachelock.LockOptions{})
	require.ErrorIs(s, err, cachelock.ErrClosed)
	require.NoError(s, c.Close())
	if err := holder.Release(s.ctx); err != nil { // a Redlock cannot release after Close: the lock expires
		require.ErrorIs(s, err, cachelock.ErrClosed)
	}
}
