package cachelock_test

import (
	"strconv"
	"testing"
	"time"

	"fastdfs-gateway/cachelock"
	"fastdfs-gateway/internal/testing/redistest"

	"github.com/stretchr/testify/require"
)

// TestTwoCommandsACycle: a lock without waiters costs two commands, as counted by the client and by
// the server, with any policy and beside any number of other locks.
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
		cycle(o) // loads the scripts
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
