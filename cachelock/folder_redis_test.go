package cachelock

import (
	"context"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"fastdfs-gateway/internal/testing/redistest"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// ownRedis returns folders on a server that no other test uses.
func ownRedis(t testing.TB, args ...string) (*redistest.Server, *redis.Client, *Folders) {
	t.Helper()
	server := redistest.Start(t, args...)
	rdb := server.Client()
	c := New(rdb, Options{Prefix: "own"})
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	f, err := c.Folders("project")
	require.NoError(t, err)
	return server, rdb, f
}

func TestFolderKeysExpire(t *testing.T) {
	t.Parallel()
	_, rdb, f := ownRedis(t)
	look := func(least, most time.Duration) {
		t.Helper()
		keys, err := rdb.Keys(t.Context(), "*").Result()
		require.NoError(t, err)
		require.NotEmpty(t, keys)
		for _, key := range keys {
			ttl := rdb.PTTL(t.Context(), key).Val()
			if strings.HasSuffix(key, ":fence") {
				require.Equal(t, time.Duration(-1), ttl, "the counter stays")
				continue
			}
			if ttl == -2 { // the key has expired since
				continue
			}
			require.Less(t, least, ttl, key)
			require.LessOrEqual(t, ttl, most, key)
		}
	}
	l, err := f.Acquire(t.Context(), "a/b", Shared, LockOptions{TTL: 10 * time.Minute})
	require.NoError(t, err)
	look(5*time.Minute, 10*time.Minute)
	short, err := f.Acquire(t.Context(), "a/b", Shared, LockOptions{TTL: 3 * time.Minute})
	require.NoError(t, err)
	look(5*time.Minute, 10*time.Minute)
	require.NoError(t, l.Extend(t.Context(), time.Hour))
	look(30*time.Minute, time.Hour)
	_, err = f.Begin(t.Context(), OpMoveDir, "x", "y", LockOptions{TTL: 2 * time.Hour})
	require.NoError(t, err)
	_, err = f.Acquire(t.Context(), "a", Exclusive, LockOptions{Policy: WaitFor(20 * time.Millisecond)})
	require.ErrorIs(t, err, ErrHeld)
	look(0, 2*time.Hour)
	require.NoError(t, l.Release(t.Context()))
	require.NoError(t, short.Release(t.Context()))
	look(0, 2*time.Hour)
}

// TestFolderSweep: an acquisition removes all expired claims, even if these are more than one call
// of the script removes.
func TestFolderSweep(t *testing.T) {
	t.Parallel()
	_, rdb, f := ownRedis(t)
	holdMany(t, rdb, f, 1000, func(i int) []claim { return []claim{{kindExclusive, "/p/" + strconv.Itoa(i)}} })
	names := f.keys
	pipe := rdb.Pipeline()
	for i := range 1000 {
		pipe.ZAddXX(t.Context(), names[1], redis.Z{Score: 1, Member: "held:" + strconv.Itoa(i)})
	}
	_, err := pipe.Exec(t.Context())
	require.NoError(t, err)
	l, err := f.Acquire(t.Context(), "p", Exclusive, LockOptions{TTL: time.Hour})
	require.NoError(t, err)
	require.EqualValues(t, 1, rdb.ZCard(t.Context(), names[1]).Val())
	require.EqualValues(t, 1, rdb.HLen(t.Context(), names[3]).Val())
	require.NoError(t, l.Release(t.Context()))
}

// holdMany acquires n locks in few round trips, with the tokens held:0, held:1, ...
func holdMany(t testing.TB, rdb *redis.Client, f *Folders, n int, claims func(i int) []claim) {
	t.Helper()
	require.NoError(t, folderAcquireScript.Load(t.Context(), rdb).Err())
	for from := 0; from < n; from += 1000 {
		pipe := rdb.Pipeline()
		for i := from; i < min(n, from+1000); i++ {
			w := folderRequest{claims: claims(i), token: "held:" + strconv.Itoa(i), ttl: time.Hour}
			folderAcquireScript.EvalSha(t.Context(), pipe, f.keys, folderArgs(w)...)
		}
		replies, err := pipe.Exec(t.Context())
		require.NoError(t, err)
		for _, reply := range replies {
			if list, _ := reply.(*redis.Cmd).Slice(); len(list) != 2 {
				t.Fatalf("not taken: %v", reply)
			}
		}
	}
}

// TestFullServer: a server without free memory extends and releases locks, and acquires none.
func TestFullServer(t *testing.T) {
	t.Parallel()
	_, rdb, f := ownRedis(t)
	folder := mustAcquire(t, f, "a/b", Exclusive, LockOptions{})
	locks := []*Lock{folder}
	for key, o := range map[string]LockOptions{"plain": {}, "fair": {Fair: true}, "owner": {Owner: "me"}} {
		lock, err := f.c.Acquire(t.Context(), key, o)
		require.NoError(t, err)
		locks = append(locks, lock)
	}
	require.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory", "1").Err())
	_, err := f.c.Acquire(t.Context(), "another", LockOptions{})
	require.ErrorIs(t, err, ErrUnreachable)
	for _, lock := range locks {
		require.NoError(t, lock.Extend(t.Context(), time.Hour), lock.Key())
		require.NoError(t, lock.Release(t.Context()), lock.Key())
	}
	require.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory", "0").Err())
}

// TestFolderLostReply: a lock is released in the background if the reply to its request was lost.
func TestFolderLostReply(t *testing.T) {
	t.Parallel()
	_, rdb, f := ownRedis(t)
	require.NoError(t, folderAcquireScript.Load(t.Context(), rdb).Err())
	lost := false
	redistest.Hook(rdb, func(next redis.ProcessHook) redis.ProcessHook {
		return func(ctx context.Context, cmd redis.Cmder) error {
			err := next(ctx, cmd)
			if err == nil && cmd.Name() == "evalsha" && !lost {
				lost = true
				cmd.SetErr(io.ErrUnexpectedEOF)
				return io.ErrUnexpectedEOF
			}
			return err
		}
	})
	_, err := f.Acquire(t.Context(), "a", Exclusive, LockOptions{})
	require.ErrorIs(t, err, ErrUnreachable)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	_, err = f.Acquire(t.Context(), "a", Exclusive, LockOptions{Policy: WaitFor(5 * time.Minute)})
	require.NoError(t, err)
}

// TestFolderClock: the scripts use the clock of the server, and no client sends a time of day.
func TestFolderClock(t *testing.T) {
	t.Parallel()
	number := regexp.MustCompile(`^\d{9,}$`)
	w := folderRequest{claims: []claim{{kindExclusive, "/a"}}, token: "t", ttl: 24 * time.Hour, queueTTL: time.Hour}
	for _, arg := range folderArgs(w) {
		require.False(t, number.MatchString(fmt.Sprint(arg)), "%v looks like a time", arg)
	}
	_, rdb, f := ownRedis(t)
	before := rdb.Time(t.Context()).Val()
	_, err := f.Acquire(t.Context(), "a", Exclusive, LockOptions{TTL: time.Hour})
	require.NoError(t, err)
	after := rdb.Time(t.Context()).Val()
	until := rdb.ZRangeWithScores(t.Context(), f.keys[1], 0, -1).Val()
	require.Len(t, until, 1)
	require.GreaterOrEqual(t, int64(until[0].Score), before.Add(time.Hour).UnixMilli())
	require.LessOrEqual(t, int64(until[0].Score), after.Add(time.Hour).UnixMilli())
}

// shapes are sets of held claims. The cost of a request for p/q/r must not depend on their size.
var shapes = map[string]struct {
	held   func(i int) []claim
	wanted kind
}{
	"elsewhere": {func(i int) []claim {
		return []claim{{kindExclusive, fmt.Sprintf("/p/%d/%d/x", i%100, i)}}
	}, kindExclusive},
	"shared below": {func(i int) []claim {
		return []claim{{kindShared, fmt.Sprintf("/p/q/r/%d/%d", i%100, i)}}
	}, kindShared},
	"shared on it": {func(i int) []claim { return []claim{{kindShared, "/p/q/r"}} }, kindShared},
	"uploads below": {func(i int) []claim {
		return []claim{{kindOf(OpUpload, roleSource), fmt.Sprintf("/p/q/r/%d/%d", i%100, i)}}
	}, kindOf(OpDeleteFile, roleSource)},
}

// TestFolderCost: an acquisition and a release cost Redis the same commands, whether few or many
// claims are held.
func TestFolderCost(t *testing.T) {
	t.Parallel()
	for name, shape := range shapes {
		t.Run(name, func(t *testing.T) {
			server, rdb, f := ownRedis(t)
			var costs []map[string]int64
			for _, size := range []int{10, 1000} {
				ns, err := f.c.Folders(strconv.Itoa(size))
				require.NoError(t, err)
				holdMany(t, rdb, ns, size, shape.held)
				cycle(t, ns, shape.wanted)
				before := server.Commands()
				cycle(t, ns, shape.wanted)
				costs = append(costs, spent(before, server.Commands()))
			}
			require.Equal(t, costs[0], costs[1])
			require.Equal(t, int64(2), costs[0]["evalsha"])
		})
	}
}

// cycle acquires and releases the lock.
func cycle(t testing.TB, f *Folders, wanted kind) {
	t.Helper()
	h, _, err := f.claim(t.Context(),
		folderRequest{claims: []claim{{wanted, "/p/q/r"}}, token: "me:me", ttl: time.Minute})
	require.NoError(t, err)
	require.NoError(t, h.releaseKeys(t.Context()))
}

// spent returns the numbers of commands between two counts, without the commands of the counting.
func spent(before, after map[string]int64) map[string]int64 {
	for name, calls := range before {
		after[name] -= calls
	}
	maps.DeleteFunc(after, func(name string, calls int64) bool {
		return calls == 0 || slices.Contains([]string{"info", "hello", "client|setinfo", "client|setname", "client"},
			name)
	})
	return after
}
