package cachelock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"fastdfs-gateway/cachelock"
	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/internal/testing/redistest"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// foldersOf opens the folders of a new client.
func foldersOf(t *testing.T, rdb redis.UniversalClient, o cachelock.Options) *cachelock.Folders {
	t.Helper()
	c := cachelock.New(rdb, o)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	f, err := c.Folders("project")
	require.NoError(t, err)
	return f
}

// folderBefore acquires a folder lock before a failover, and starts a waiter for it. It returns the
// checks for after the failover: the holder has kept the lock, no other client gets it, and the
// waiter acquires it after the release.
func folderBefore(t *testing.T, rdb func() redis.UniversalClient) (after func()) {
	t.Helper()
	o := cachelock.Options{Prefix: "folders over a failover", Poll: 50 * time.Millisecond}
	mine, other := foldersOf(t, rdb(), o), foldersOf(t, rdb(), o)
	ctx, minutes := t.Context(), cachelock.LockOptions{TTL: 5 * time.Minute}
	lock, err := mine.Begin(ctx, cachelock.OpMoveDir, "a/b", "c", minutes)
	require.NoError(t, err)
	got := make(chan result, 1)
	go func() {
		waiting := cachelock.LockOptions{TTL: farOff, Policy: cachelock.WaitFor(farOff)}
		next, err := other.Begin(ctx, cachelock.OpUpload, "a/b/x", "", waiting)
		for end := time.Now().Add(farOff); errors.Is(err, cachelock.ErrUnreachable) && time.Now().Before(end); {
			next, err = other.Begin(ctx, cachelock.OpUpload, "a/b/x", "", waiting)
		}
		got <- result{next, err}
	}()
	return func() {
		t.Helper()
		eventually.True(t, func() bool { return lock.Extend(ctx, 5*time.Minute) == nil })
		eventually.True(t, func() bool { // until the other client uses the new master too
			_, err := other.Begin(ctx, cachelock.OpUpload, "c/x", "", minutes)
			require.Error(t, err)
			return errors.Is(err, cachelock.ErrHeld)
		})
		beside, err := other.Begin(ctx, cachelock.OpUpload, "a/bc", "", minutes)
		require.NoError(t, err)
		require.NoError(t, beside.Release(ctx))
		require.NoError(t, lock.Release(ctx))
		next := await(t, got)
		require.NoError(t, next.err)
		require.Greater(t, next.lock.Fence(), lock.Fence())
		require.NoError(t, next.lock.Release(ctx))
	}
}

// TestFolderCutOff: a holder whose network is cut loses its folder lock, and another client
// acquires the folder. Later requests of the former holder change nothing.
func TestFolderCutOff(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	relay := redistest.NewRelay(t, server.Addr())
	far := redis.NewClient(&redis.Options{Addr: relay.Addr(), DialerRetries: 1, ReadTimeout: soon})
	defer far.Close()
	o := cachelock.Options{Prefix: t.Name(), Poll: time.Hour}
	cut, other := foldersOf(t, far, o), foldersOf(t, server.Client(), o)
	ctx := context.Background()
	var lock *cachelock.Lock
	eventually.True(t, func() bool { // again if the machine stalls until the lock has expired
		var err error
		lock, err = cut.Acquire(ctx, "a/b", cachelock.Exclusive, cachelock.LockOptions{TTL: renewed, Renew: true})
		return err == nil
	})
	ended := lock.Context()
	relay.Cut()
	next, err := other.Acquire(ctx, "a", cachelock.Exclusive,
		cachelock.LockOptions{TTL: time.Minute, Policy: cachelock.WaitFor(soon)})
	require.NoError(t, err)
	require.False(t, time.Now().Before(lock.Until()), "the one who was cut off relies on it still")
	<-ended.Done()
	require.ErrorIs(t, context.Cause(ended), cachelock.ErrLost)
	require.NoError(t, cachelock.Commit(ctx, server.Client(), t.Name()+":value", next.Fence(), nil,
		time.Minute))

	relay.Restore()
	eventually.True(t, func() bool { return far.Ping(ctx).Err() == nil })
	require.ErrorIs(t, cachelock.Commit(ctx, far, t.Name()+":value", lock.Fence(), nil, time.Minute), cachelock.ErrLost)
	require.ErrorIs(t, lock.Extend(ctx, time.Minute), cachelock.ErrLost)
	require.ErrorIs(t, lock.Release(ctx), cachelock.ErrLost)
	require.NoError(t, next.Extend(ctx, time.Minute), "what another has stays")
	require.NoError(t, next.Release(ctx))
}
