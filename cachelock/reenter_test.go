package cachelock_test

import (
	"testing"
	"time"

	"fastdfs-gateway/cachelock"

	"github.com/stretchr/testify/require"
)

// The keys of the lock "k" in an office.
const (
	lockKey  = "cachelock:{0}:lock:k"
	holdsKey = "cachelock:{0}:holds:k"
)

// hold acquires the lock "k" for the owner "me".
func (o *office) hold(c *cachelock.Client, ttl time.Duration) *cachelock.Lock {
	o.Helper()
	lock, err := c.Acquire(o.Context(), "k", cachelock.LockOptions{Owner: "me", TTL: ttl})
	require.NoError(o, err)
	return lock
}

// TestLongestHoldCounts: neither another hold of the owner nor its extension shortens the lock.
func TestLongestHoldCounts(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	c := o.client(cachelock.Options{})
	first, second := o.hold(c, 2*time.Hour), o.hold(c, time.Hour)
	require.NoError(t, second.Extend(t.Context(), time.Hour))
	for _, key := range []string{lockKey, holdsKey} {
		require.Greater(t, o.admin.PTTL(t.Context(), key).Val(), 90*time.Minute, key)
	}
	require.NoError(t, second.Release(t.Context()))
	require.NoError(t, first.Release(t.Context()))
}

// TestLostHolds: holds from before the loss of a lock are neither extended nor released, even if
// their owner has acquired the lock again, and do not keep it locked.
func TestLostHolds(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	c := o.client(cachelock.Options{})
	extended, released := o.hold(c, time.Hour), o.hold(c, time.Hour)
	require.NoError(t, o.admin.Del(t.Context(), lockKey).Err())
	hold := o.hold(c, time.Hour)
	require.ErrorIs(t, extended.Extend(t.Context(), time.Hour), cachelock.ErrLost)
	require.ErrorIs(t, released.Release(t.Context()), cachelock.ErrLost)
	require.EqualValues(t, 1, o.admin.Exists(t.Context(), lockKey).Val())
	require.NoError(t, hold.Release(t.Context()))
	require.Zero(t, o.admin.Exists(t.Context(), lockKey).Val())
}

// TestHoldOfAnothersLock: a hold does not release the lock of another holder, even if the holds of
// its owner are still in Redis.
func TestHoldOfAnothersLock(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	hold := o.hold(o.client(cachelock.Options{}), time.Hour)
	require.NoError(t, o.admin.Set(t.Context(), lockKey, "another", time.Hour).Err())
	require.ErrorIs(t, hold.Release(t.Context()), cachelock.ErrLost)
	require.Equal(t, "another", o.admin.Get(t.Context(), lockKey).Val())
}

// TestOwnerLeavesQueue: an owner that acquires the lock after waiting is removed from its queue.
func TestOwnerLeavesQueue(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	first := o.acquire(o.client(cachelock.Options{}), "k")
	got := o.waitsWith(o.client(cachelock.Options{}), "k", 1,
		cachelock.LockOptions{Owner: "me", TTL: 2 * farOff, Policy: cachelock.WaitFor(farOff)})
	require.NoError(t, first.Release(t.Context()))
	r := await(t, got)
	require.NoError(t, r.err)
	require.Zero(t, o.admin.ZCard(t.Context(), "cachelock:{0}:queue:k").Val())
	require.NoError(t, r.lock.Release(t.Context()))
}
