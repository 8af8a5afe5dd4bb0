package cachelock_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"fastdfs-gateway/cachelock"
	"fastdfs-gateway/internal/eventually"
	"fastdfs-gateway/internal/redistest"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// committed is what a value's hash holds.
func committed(t *testing.T, rdb redis.UniversalClient, key string) map[string]string {
	t.Helper()
	all, err := rdb.HGetAll(t.Context(), key).Result()
	require.NoError(t, err)
	return all
}

// A later fence writes, the same fence may write again, and an older one is refused and changes
// nothing.
func TestCommit(t *testing.T) {
	t.Parallel()
	rdb, ctx, key := cachelock.PatientClient(t, redistest.Shared(t)), t.Context(), t.Name()
	require.NoError(t, rdb.Del(ctx, key).Err()) // of an earlier round
	const last = int64(1)<<53 - 1               // the highest that Lua holds exactly
	for _, step := range []struct {
		fence int64
		value string
		lost  bool
	}{
		{5, "five", false}, {5, "five again", false}, {4, "four", true}, {1, "one", true}, {40, "forty", false},
		{5, "five", true},
		{last - 1, "", false}, {last - 2, "late", true}, {last, "bin\x00\xff\r\n", false}, {last - 1, "late", true},
		{last, "end", false},
	} {
		before := committed(t, rdb, key)
		err := cachelock.Commit(ctx, rdb, key, step.fence, []byte(step.value), time.Minute)
		if step.lost {
			require.ErrorIs(t, err, cachelock.ErrLost, step)
			require.Equal(t, before, committed(t, rdb, key), step)
			continue
		}
		require.NoError(t, err, step)
		require.Equal(t, map[string]string{"fence": fmt.Sprint(step.fence), "value": step.value},
			committed(t, rdb, key), step)
	}
}

// A value lasts as long as its last write says; a refused write changes nothing about that, and
// what has expired is forgotten.
func TestCommitExpires(t *testing.T) {
	t.Parallel()
	rdb, ctx, key := cachelock.PatientClient(t, redistest.Shared(t)), t.Context(), t.Name()
	require.NoError(t, cachelock.Commit(ctx, rdb, key, 7, nil, time.Hour))
	require.Greater(t, rdb.PTTL(ctx, key).Val(), time.Minute)
	require.ErrorIs(t, cachelock.Commit(ctx, rdb, key, 6, nil, time.Millisecond), cachelock.ErrLost)
	require.Greater(t, rdb.PTTL(ctx, key).Val(), time.Minute)
	require.NoError(t, cachelock.Commit(ctx, rdb, key, 8, nil, 50*time.Millisecond))
	eventually.True(t, func() bool { return rdb.Exists(ctx, key).Val() == 0 })
	require.NoError(t, cachelock.Commit(ctx, rdb, key, 1, nil, time.Minute), "the ttl has to outlast any pause")
}

// Whatever can never work is refused before Redis is asked.
func TestCommitRefuses(t *testing.T) {
	nobody := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, DialerRetries: 1})
	defer nobody.Close()
	for _, bad := range []struct {
		key   string
		fence int64
		ttl   time.Duration
	}{
		{"", 1, time.Minute}, {strings.Repeat("k", 4097), 1, time.Minute}, {"k", 0, time.Minute},
		{"k", -1, time.Minute},
		{"k", 1 << 53, time.Minute}, {"k", 1, 0}, {"k", 1, -time.Second}, {"k", 1, time.Millisecond - 1},
	} {
		require.ErrorIs(t, cachelock.Commit(t.Context(), nobody, bad.key, bad.fence, nil, bad.ttl),
			cachelock.ErrInvalid, bad)
	}
	require.ErrorIs(t, cachelock.Commit(t.Context(), nobody, "k", 1, nil, time.Minute), cachelock.ErrUnreachable)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, cachelock.Commit(ctx, nobody, "k", 1, nil, time.Minute), cachelock.ErrCancelled)
}

// A holder that was overtaken while it slept writes nothing, though it cannot know yet.
func TestCommitFencesSleeper(t *testing.T) {
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

// clusterCommits writes values into all slots.
func clusterCommits(t *testing.T, rdb *redis.ClusterClient) {
	for i := range 64 {
		key := fmt.Sprint("value ", i)
		require.NoError(t, cachelock.Commit(t.Context(), rdb, key, 2, []byte("x"), time.Minute))
		require.ErrorIs(t, cachelock.Commit(t.Context(), rdb, key, 1, []byte("y"), time.Minute), cachelock.ErrLost)
	}
}
