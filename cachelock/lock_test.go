package cachelock

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// extending returns a lock whose extensions call extend.
func extending(t *testing.T, o LockOptions, extend func(ctx context.Context, ttl time.Duration) error) (*Client,
	*Lock) {
	t.Helper()
	c, s := newScripted(t, Options{})
	s.extend = extend
	lock, err := c.Acquire(t.Context(), "k", o)
	require.NoError(t, err)
	return c, lock
}

// TestHangingRenewal: a lock ends in time even if its renewal hangs.
func TestHangingRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		_, lock := extending(t, LockOptions{TTL: time.Minute, Renew: true}, func(context.Context, time.Duration) error {
			time.Sleep(time.Hour)
			return failed(context.Background(), "extend", errors.New("hangs"))
		})
		<-lock.Context().Done()
		require.ErrorIs(t, context.Cause(lock.Context()), ErrLost)
		require.Equal(t, validity(time.Minute), time.Since(begin))
		time.Sleep(2 * time.Hour)
	})
}

// TestFailingRenewal: a renewal that fails is repeated often, and the lock is kept if one succeeds
// in time.
func TestFailingRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		_, lock := extending(t, LockOptions{TTL: time.Minute, Renew: true}, func(context.Context, time.Duration) error {
			if asked.Add(1) <= 10 {
				return failed(context.Background(), "extend", errors.New("gone"))
			}
			return nil
		})
		time.Sleep(59 * time.Second)
		require.NoError(t, lock.Context().Err())
		require.Greater(t, asked.Load(), int64(10))
		require.NoError(t, lock.Release(t.Context()))
		n := asked.Load()
		time.Sleep(time.Hour)
		require.Equal(t, n, asked.Load())
	})
}

// TestLongestRenewal: a lock is renewed at each third of its ttl, until it was held for MaxHold.
func TestLongestRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		var renewed []time.Duration
		_, lock := extending(t, LockOptions{TTL: time.Minute, Renew: true, MaxHold: 70 * time.Second},
			func(context.Context, time.Duration) error {
				renewed = append(renewed, time.Since(begin))
				return nil
			})
		<-lock.Context().Done()
		require.Equal(t, []time.Duration{20 * time.Second, 40 * time.Second, time.Minute}, renewed)
		require.Equal(t, time.Minute+validity(time.Minute), time.Since(begin))
	})
}

// TestClosedClientEndsLocks: a closed client renews no locks, and they end in time.
func TestClosedClientEndsLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		c, lock := extending(t, LockOptions{TTL: time.Minute, Renew: true}, func(context.Context, time.Duration) error {
			asked.Add(1)
			return nil
		})
		require.NoError(t, c.Close())
		begin := time.Now()
		<-lock.Context().Done()
		require.ErrorIs(t, context.Cause(lock.Context()), ErrLost)
		require.LessOrEqual(t, time.Since(begin), time.Minute)
		require.Zero(t, asked.Load())
	})
}

// TestExtensionsInAnyOrder: extensions and renewals may run at the same time. The lock ends when
// the longest one does.
func TestExtensionsInAnyOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, lock := extending(t, LockOptions{TTL: time.Minute, Renew: true},
			func(context.Context, time.Duration) error {
				time.Sleep(time.Duration(rand.Int64N(int64(5 * time.Second))))
				return nil
			})
		for range 20 { // renewals come in between
			begin := time.Now()
			require.NoError(t, lock.Extend(t.Context(), 30*time.Second))
			require.False(t, lock.Until().Before(begin.Add(validity(30*time.Second))))
			time.Sleep(time.Duration(rand.Int64N(int64(30 * time.Second))))
		}
		require.NoError(t, lock.Context().Err())
		require.NoError(t, lock.Release(t.Context()))
	})
}

// TestExtensionCancelledByLoss: an extension that is cancelled because of the loss of another lock
// returns ErrCancelled, and the lock is still held.
func TestExtensionCancelledByLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, lock := extending(t, LockOptions{TTL: time.Hour}, func(ctx context.Context, _ time.Duration) error {
			return failed(ctx, "extend", ctx.Err())
		})
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(ErrLost)
		require.ErrorIs(t, lock.Extend(ctx, time.Hour), ErrCancelled)
		require.NoError(t, lock.Context().Err())
		require.NoError(t, lock.Release(t.Context()))
	})
}

// TestReleasedWhileExtending: the result of an extension that returns after the release, be it nil
// or ErrLost, does not change the state of the lock.
func TestReleasedWhileExtending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, reply := range []error{nil, ErrLost} {
			_, lock := extending(t, LockOptions{TTL: time.Hour}, func(context.Context, time.Duration) error {
				time.Sleep(time.Second)
				return reply
			})
			done := make(chan error)
			go func() { done <- lock.Extend(t.Context(), time.Hour) }()
			synctest.Wait()
			require.NoError(t, lock.Release(t.Context()))
			require.ErrorIs(t, <-done, ErrNotHeld)
			require.ErrorIs(t, context.Cause(lock.Context()), ErrNotHeld)
		}
	})
}

// TestRedlockNodeTimeout: the default node timeout is a tenth of the ttl, at most maxNodeTimeout,
// so that a node that hangs costs a small part of the ttl.
func TestRedlockNodeTimeout(t *testing.T) {
	for ttl, want := range map[time.Duration]time.Duration{
		MinTTL: time.Millisecond, 200 * time.Millisecond: 20 * time.Millisecond, time.Hour: maxNodeTimeout,
	} {
		require.Equal(t, want, (&redlockStore{}).limit(ttl), ttl)
	}
	require.Equal(t, time.Second, (&redlockStore{timeout: time.Second}).limit(time.Hour))
}

// TestRedlockSubscription: a subscription, which needs a new connection, has more time than a
// request to a node.
func TestRedlockSubscription(t *testing.T) {
	left := make(chan time.Duration, 3)
	rdb := redis.NewClient(&redis.Options{DialerRetries: 1, MaxRetries: -1, DialTimeout: time.Minute,
		Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
			deadline, _ := ctx.Deadline()
			left <- time.Until(deadline)
			return nil, errors.New("no route")
		}})
	defer rdb.Close()
	c := NewRedlock([]redis.UniversalClient{rdb}, Options{NodeTimeout: time.Second})
	defer c.Close()
	require.ErrorIs(t, c.store.listen(t.Context()), ErrUnreachable)
	require.Greater(t, <-left, time.Second)
}
