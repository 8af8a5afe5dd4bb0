package cachelock_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"fastdfs-gateway/cachelock"
	"fastdfs-gateway/internal/testing/redistest"

	"github.com/stretchr/testify/require"
)

// TestFenceStopsSleeper: a holder that has been paused beyond the end of its lock writes nothing.
func TestFenceStopsSleeper(t *testing.T) {
	t.Parallel()
	rdb, ctx, key := cachelock.PatientClient(t, redistest.Shared(t)), t.Context(), t.Name()
	c := cachelock.New(rdb, cachelock.Options{Prefix: key, Shards: 1})
	defer c.Close()
	sleeper, err := c.Acquire(ctx, "k", cachelock.LockOptions{TTL: time.Hour})
	require.NoError(t, err)
	ended, err := rdb.Del(ctx, key+":{0}:lock:k").Result() // as if it had expired
	require.NoError(t, err)
	require.EqualValues(t, 1, ended)
	next, err := c.Acquire(ctx, "k", cachelock.LockOptions{Policy: cachelock.WaitFor(soon)})
	require.NoError(t, err)
	require.NoError(t, cachelock.Commit(ctx, rdb, key+":value", next.Fence(), []byte("next"), time.Minute))
	require.ErrorIs(t, cachelock.Commit(ctx, rdb, key+":value", sleeper.Fence(), []byte("sleeper"), time.Minute),
		cachelock.ErrLost)
	require.Equal(t, "next", rdb.HGet(ctx, key+":value", "value").Val())
	require.NoError(t, next.Release(ctx))
}

// TestFenceRisesWithoutTheClock: a fence is higher than the last one, also where the clock of the
// server has gone back.
func TestFenceRisesWithoutTheClock(t *testing.T) {
	t.Parallel()
	rdb, ctx, key := cachelock.PatientClient(t, redistest.Shared(t)), t.Context(), t.Name()
	c := cachelock.New(rdb, cachelock.Options{Prefix: key, Shards: 1})
	defer c.Close()
	ahead := time.Now().Add(time.Hour).UnixMicro()
	require.NoError(t, rdb.Set(ctx, key+":{0}:fence", ahead, time.Hour).Err())
	for i := range int64(3) {
		lock, err := c.Acquire(ctx, "k", cachelock.LockOptions{})
		require.NoError(t, err)
		require.Equal(t, ahead+1+i, lock.Fence())
		require.NoError(t, lock.Release(ctx))
	}
}

// TestCommitDocument: docs/locks.md shows the script that the tests write values with.
func TestCommitDocument(t *testing.T) {
	text, err := os.ReadFile("../docs/locks.md")
	require.NoError(t, err)
	require.Contains(t, string(text), "```lua\n"+strings.TrimSpace(cachelock.CommitText)+"\n```\n")
}
