package cachelock

import (
	"context"
	"strings"
	"testing"
	"time"

	"fastdfs-gateway/internal/testing/redistest"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// formerToken returns a token of an earlier process with this holder's name.
func formerToken(holder string) string { return strings.Repeat("0", 32) + ":" + holder }

// takers returns functions that open a client with the holder's name "me", for one Redis and for a
// Redlock with one node.
func takers(t *testing.T) map[string]func(prefix string) (*Client, redis.Cmdable) {
	rdb := redistest.Shared(t).Client()
	o := Options{Holder: "me", NodeTimeout: time.Minute}
	return map[string]func(string) (*Client, redis.Cmdable){
		"redis": func(prefix string) (*Client, redis.Cmdable) {
			o.Prefix = prefix
			return New(rdb, o), rdb
		},
		"redlock": func(prefix string) (*Client, redis.Cmdable) {
			o.Prefix = prefix
			return NewRedlock([]redis.UniversalClient{rdb}, o), rdb
		},
	}
}

// TestTakeOver: a lock of an earlier process with the same holder's name is acquired at once. A
// lock of this process, of another holder, or of an owner is not taken over.
func TestTakeOver(t *testing.T) {
	t.Parallel()
	for name, open := range takers(t) {
		t.Run(name, func(t *testing.T) {
			c, rdb := open(t.Name())
			t.Cleanup(func() { require.NoError(t, c.Close()) })
			o := LockOptions{TTL: time.Hour, TakeOver: true}
			lockOf := func(key string) string { return c.slot + ":lock:" + key }
			set := func(key, token string) {
				require.NoError(t, rdb.Set(t.Context(), lockOf(key), token, time.Hour).Err())
			}

			set("former", formerToken("me"))
			_, err := c.Acquire(t.Context(), "former", LockOptions{})
			require.ErrorIs(t, err, ErrHeld, "without TakeOver")
			lock, err := c.Acquire(t.Context(), "former", o)
			require.NoError(t, err)
			require.NotEqual(t, formerToken("me"), rdb.Get(t.Context(), lockOf("former")).Val())
			_, err = c.Acquire(t.Context(), "former", o)
			require.ErrorIs(t, err, ErrHeld, "it is a lock of this process now")
			require.NoError(t, lock.Release(t.Context()))

			for key, token := range map[string]string{
				"another": formerToken("you"), "longer": formerToken("me too"), "owner": ownerPrefix + "x:me",
			} {
				set(key, token)
				_, err = c.Acquire(t.Context(), key, o)
				require.ErrorIs(t, err, ErrHeld, key)
				require.Equal(t, token, rdb.Get(t.Context(), lockOf(key)).Val())
			}
		})
	}
}

// TestHolderOfOneLock: LockOptions.Holder replaces Options.Holder as the holder's name of the lock,
// and as the name whose locks TakeOver releases.
func TestHolderOfOneLock(t *testing.T) {
	t.Parallel()
	c, rdb := takers(t)["redis"](t.Name())
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	set := func(key, holder string) {
		require.NoError(t, rdb.Set(t.Context(), c.slot+":lock:"+key, formerToken(holder), time.Hour).Err())
	}
	o := LockOptions{TTL: time.Hour, TakeOver: true, Holder: "later"}
	for _, all := range []bool{false, true} {
		acquire := c.Acquire
		if all {
			acquire = func(ctx context.Context, key string, o LockOptions) (*Lock, error) {
				return c.AcquireAll(ctx, []string{key}, o)
			}
		}
		set("k", "me")
		var held *HeldError
		_, err := acquire(t.Context(), "k", o)
		require.ErrorAs(t, err, &held)
		require.Equal(t, "me", held.Holder)
		set("k", "later")
		lock, err := acquire(t.Context(), "k", o)
		require.NoError(t, err)
		_, err = acquire(t.Context(), "k", LockOptions{TakeOver: true})
		require.ErrorAs(t, err, &held)
		require.Equal(t, "later", held.Holder)
		require.NoError(t, lock.Release(t.Context()))
	}
}

// TestTakeOverOfSeveral: AcquireAll takes over each of several locks.
func TestTakeOverOfSeveral(t *testing.T) {
	t.Parallel()
	rdb := redistest.Shared(t).Client()
	c := New(rdb, Options{Prefix: t.Name(), Holder: "me"})
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	keys := []string{"a", "b", "c", "d"}
	for _, key := range keys[1:] {
		require.NoError(t, rdb.Set(t.Context(), c.slot+":lock:"+key, formerToken("me"), time.Hour).Err())
	}
	lock, err := c.AcquireAll(t.Context(), keys, LockOptions{TakeOver: true})
	require.NoError(t, err)
	require.NoError(t, lock.Release(t.Context()))
}

// TestTakeOverNotifies: waiters for a lock are notified when it is taken over, and acquire it in
// their turn.
func TestTakeOverNotifies(t *testing.T) {
	t.Parallel()
	rdb := redistest.Shared(t).Client()
	o := Options{Prefix: t.Name(), Holder: "me"}
	c := New(rdb, o)
	o.Holder, o.Poll = "you", time.Hour // only a message wakes the waiter
	waiting := New(rdb, o)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	t.Cleanup(func() { require.NoError(t, waiting.Close()) })
	require.NoError(t, rdb.Set(t.Context(), t.Name()+":{0}:lock:k", formerToken("me"), time.Hour).Err())
	acquired := make(chan error, 1)
	go func() {
		lock, err := waiting.Acquire(t.Context(), "k", LockOptions{TTL: time.Hour, Policy: WaitFor(time.Hour)})
		if err == nil { // the call that takes the lock over may be waiting for this
			err = lock.Release(t.Context())
		}
		acquired <- err
	}()
	require.Eventually(t, func() bool {
		return rdb.ZCard(t.Context(), t.Name()+":{0}:queue:k").Val() == 1
	}, time.Minute, time.Millisecond, "it waits")
	lock, err := c.Acquire(t.Context(), "k", LockOptions{TTL: time.Hour, TakeOver: true, Policy: WaitFor(time.Hour)})
	require.NoError(t, err)
	require.NoError(t, lock.Release(t.Context()))
	require.NoError(t, <-acquired)
}

// TestTakeOverIsNoticed: an earlier process that still runs gets ErrLost from its next extension
// after its lock was taken over, and does not release the lock of its successor.
func TestTakeOverIsNoticed(t *testing.T) {
	t.Parallel()
	rdb := redistest.Shared(t).Client()
	c := New(rdb, Options{Prefix: t.Name(), Holder: "me"})
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	former, _, err := c.store.acquire(t.Context(),
		lockRequest{keys: []string{"k"}, token: formerToken("me"), ttl: time.Hour})
	require.NoError(t, err)
	lock, err := c.Acquire(t.Context(), "k", LockOptions{TTL: time.Hour, TakeOver: true})
	require.NoError(t, err)
	require.ErrorIs(t, former.extend(t.Context(), time.Hour), ErrLost)
	require.ErrorIs(t, former.releaseKeys(t.Context()), ErrLost)
	require.NoError(t, lock.Extend(t.Context(), time.Hour))
	require.NoError(t, lock.Release(t.Context()))
}
