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

// TestFenceRisesWithoutTheClock: a fence is higher than the last one, even if the clock of the
// server has gone back.
func TestFenceRisesWithoutTheClock(t *testing.T) {
	t.Parallel()
	rdb, ctx, key := redistest.Shared(t).Client(), t.Context(), t.Name()
	c := cachelock.New(rdb, cachelock.Options{Prefix: key})
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

// TestCommitDocument: docs/locks.md contains the script with which the tests write values.
func TestCommitDocument(t *testing.T) {
	text, err := os.ReadFile("../docs/locks.md")
	require.NoError(t, err)
	require.Contains(t, string(text), "```lua\n"+strings.TrimSpace(cachelock.CommitText)+"\n```\n")
}
