package cachelock_test

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	"fastdfs-gateway/cachelock"
	"fastdfs-gateway/internal/testing/redistest"

	"github.com/stretchr/testify/require"
)

// A lock without waiters costs two commands, by the count of the client and of the server, with any
// policy, and beside any number of other locks.
func TestTwoCommandsACycle(t *testing.T) {
	server := redistest.Start(t)
	rdb := server.Client()
	sent := redistest.Count(rdb)
	c := cachelock.New(rdb, cachelock.Options{})
	defer c.Close()
	cycle := func(o cachelock.LockOptions) {
		lock, err := c.Acquire(t.Context(), "k", o)
		require.NoError(t, err)
		require.NoError(t, lock.Release(t.Context()))
	}
	for name, o := range map[string]cachelock.LockOptions{
		"give up": {}, "retry": {Policy: cachelock.DefaultRetry()}, "wait": {Policy: cachelock.WaitFor(time.Minute)},
		"renew": {Renew: true}, "owner": {Owner: "me"},
	} {
		cycle(o) // teaches the server the scripts
		before, beforeServer := sent.Load(), server.Commands()
		const cycles = 50
		for range cycles {
			cycle(o)
		}
		require.EqualValues(t, 2*cycles, sent.Load()-before, name)
		after := server.Commands()
		require.EqualValues(t, 2*cycles, after["evalsha"]-beforeServer["evalsha"], name)
		for _, other := range []string{"eval", "script|load", "subscribe", "ping", "publish", "scan", "keys"} {
			require.Equal(t, beforeServer[other], after[other], "%s: %s", name, other)
		}
		for i := range 30 {
			_, err := c.Acquire(t.Context(), name+strconv.Itoa(i), cachelock.LockOptions{TTL: time.Hour})
			require.NoError(t, err)
		}
	}
}

func TestAllocationsACycle(t *testing.T) {
	c := cachelock.New(redistest.Shared(t).Client(), cachelock.Options{})
	defer c.Close()
	ctx := context.Background()
	allocations := testing.AllocsPerRun(500, func() {
		lock, err := c.Acquire(ctx, "allocations", cachelock.LockOptions{})
		if err == nil {
			err = lock.Release(ctx)
		}
		if err != nil {
			t.Error(err)
		}
	})
	t.Logf("%.0f allocations a cycle", allocations)
	require.LessOrEqual(t, allocations, 25.0)
}

// A release wakes one of a thousand waiters of a process: Redis gets a few commands, not one for
// each waiter.
func TestReleaseDoesNotThunder(t *testing.T) {
	const waiters = 1000
	rdb := redistest.Shared(t).Client()
	sent := redistest.Count(rdb)
	c := cachelock.New(rdb, cachelock.Options{Poll: time.Hour})
	defer c.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	o := cachelock.LockOptions{TTL: time.Hour, Policy: cachelock.WaitFor(time.Hour)}
	lock, err := c.Acquire(ctx, "thunder", o)
	require.NoError(t, err)
	before := sent.Load()
	got := make(chan *cachelock.Lock)
	var all sync.WaitGroup
	for range waiters {
		all.Go(func() {
			if lock, err := c.Acquire(ctx, "thunder", o); err == nil {
				got <- lock
			}
		})
	}
	for range 20 {
		require.NoError(t, lock.Release(ctx))
		lock = <-got
	}
	time.Sleep(100 * time.Millisecond) // Whatever else the releases have set off has time to show.
	// One command each of a release and of the next acquisition, which may have to look twice, and
	// the first looks.
	require.LessOrEqual(t, sent.Load()-before, int64(20*4+10))
	cancel()
	all.Wait()
	require.NoError(t, lock.Release(context.Background()))
}
