package cachelock_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"fastdfs-gateway/cachelock"
	"fastdfs-gateway/internal/testing/redistest"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// TestCrashAtEveryStep: a process that crashes at any step of any operation leaves no key without
// an expiry: locks, queues and helper keys all expire, except for the fence counter. The steps are
// the packets between the process and Redis, in both directions. Each seventh one is tried, each
// one if LOCK_SEEDS is set.
func TestCrashAtEveryStep(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	admin := server.Client()
	other := cachelock.New(admin, cachelock.Options{Prefix: "crash"})
	defer other.Close()
	relay := redistest.NewRelay(t, server.Addr())
	stride := 7
	if os.Getenv("LOCK_SEEDS") != "" {
		stride = 1
	}
	steps := 0
	for whole := false; !whole; steps += stride {
		require.Less(t, steps, 1000, "the conversation has no end")
		require.NoError(t, admin.FlushAll(t.Context()).Err())
		if steps%2 == 0 {
			// The first use of a script sends other commands than later uses.
			require.NoError(t, admin.ScriptFlush(t.Context()).Err())
		}
		held, err := other.Acquire(t.Context(), "held", cachelock.LockOptions{TTL: farOff})
		require.NoError(t, err)
		whole = converse(t, relay, steps+1)
		if steps%8 == 0 {
			server.Restart() // the server crashes at this step too
		}
		require.Empty(t, server.Eternal(""), "after %d steps", steps)
		require.NoError(t, held.Release(t.Context()))
		require.Empty(t, server.Eternal(""), "after %d steps", steps)
	}
	t.Logf("%d steps", steps)
	require.Greater(t, steps, 30)
}

// converse executes every kind of lock operation through a relay that is cut after a number of
// steps, and crashes with the locks that it holds. It returns true if the relay was not cut before
// the end.
func converse(t *testing.T, relay *redistest.Relay, steps int) (whole bool) {
	relay.CutAfter(steps)
	defer relay.Restore()
	defer relay.CutAfter(0)
	rdb := redis.NewClient(&redis.Options{Addr: relay.Addr(), DialerRetries: 1, MaxRetries: -1,
		ReadTimeout: time.Second})
	defer rdb.Close()
	c := cachelock.New(rdb, cachelock.Options{Prefix: "crash"})
	defer c.Close()
	defer relay.Cut() // a crashed process sends no further requests
	ctx := t.Context()
	minute := cachelock.LockOptions{TTL: time.Minute}
	folders, err := c.Folders("project")
	require.NoError(t, err)
	for round, acquire := range []func() (*cachelock.Lock, error){
		func() (*cachelock.Lock, error) { return c.Acquire(ctx, "one", minute) },
		func() (*cachelock.Lock, error) { return c.Acquire(ctx, "held", minute) },
		func() (*cachelock.Lock, error) { return c.AcquireAll(ctx, []string{"a", "b", "c", "d", "e"}, minute) },
		func() (*cachelock.Lock, error) { return c.AcquireAll(ctx, []string{"a", "b", "c", "held"}, minute) },
		func() (*cachelock.Lock, error) {
			return c.Acquire(ctx, "owner", cachelock.LockOptions{TTL: time.Minute, Owner: "me"})
		},
		func() (*cachelock.Lock, error) { return folders.Acquire(ctx, "a/b", cachelock.Exclusive, minute) },
		func() (*cachelock.Lock, error) {
			return c.Acquire(ctx, "held",
				cachelock.LockOptions{TTL: time.Minute, Policy: cachelock.WaitFor(5 * time.Millisecond)})
		},
		func() (*cachelock.Lock, error) {
			return c.Acquire(ctx, "held",
				cachelock.LockOptions{TTL: time.Minute, Fair: true, Policy: cachelock.WaitFor(5 * time.Millisecond)})
		},
	} {
		lock, err := acquire()
		if err != nil {
			continue
		}
		_ = lock.Extend(ctx, time.Minute)
		_ = cachelock.Commit(ctx, rdb, fmt.Sprint("crash:value ", round), max(lock.Fence(), 1), []byte("x"),
			time.Minute)
		if again, err := acquire(); err == nil { // reentrant
			_ = again.Release(ctx)
		}
		_ = lock.Release(ctx)
		_, _ = acquire() // held at the crash
	}
	return rdb.Ping(context.WithoutCancel(ctx)).Err() == nil
}
