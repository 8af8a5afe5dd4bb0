package cachelock_test

import (
	"context"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"fastdfs-gateway/cachelock"
	"fastdfs-gateway/internal/redistest"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// parallel is how many histories are made at a time: they mostly wait.
const parallel = 6

// Histories of many processes over networks and servers that break look as if there were one ideal lock. LOCK_SEEDS says how
// many histories, LOCK_SEED repeats one of them.
func TestLinearizable(t *testing.T) {
	first, last := uint64(1), uint64(number(t, "LOCK_SEEDS", 200))
	if one := number(t, "LOCK_SEED", 0); one != 0 {
		first, last = uint64(one), uint64(one)
	}
	var taken, commits, lost atomic.Int64
	each(first, last, func(seed uint64) bool {
		r := newRun(t, seed)
		if wrongs := r.do(); len(wrongs) > 0 {
			t.Errorf("seed %d: %s\n%v", seed, strings.Join(wrongs, "\n"), r.history)
			return false
		}
		taken.Add(int64(len(r.history.tenures)))
		commits.Add(int64(len(r.history.deeds)))
		for _, h := range r.history.tenures {
			if h.endRet == forever {
				lost.Add(1)
			}
		}
		return true
	})
	t.Logf("%d histories: %d acquisitions, %d of them lost or abandoned, %d extensions and commits", last-first+1, taken.Load(), lost.Load(), commits.Load())
	require.Positive(t, lost.Load(), "nothing has gone wrong for anybody: this has shown little")
	require.Greater(t, taken.Load(), int64(last-first), "hardly anybody got the lock: this has shown little")
}

// A holder that asks for less time has only that, from the moment when the server may have heard of it: not from its answer.
func TestShorterAtOnce(t *testing.T) {
	server := redistest.Shared(t)
	relay := redistest.NewRelay(t, server.Addr())
	rdb := redis.NewClient(&redis.Options{Addr: relay.Addr(), ReadTimeout: patience, MaxRetries: -1})
	defer rdb.Close()
	c := cachelock.New(rdb, cachelock.Options{Prefix: t.Name(), Shards: 1})
	defer c.Close()
	lock, err := c.Acquire(t.Context(), "k", cachelock.LockOptions{TTL: time.Minute})
	require.NoError(t, err)
	require.NoError(t, lock.Extend(t.Context(), time.Minute)) // The server knows the script.
	relay.Mute()
	answered := make(chan error, 1)
	go func() { answered <- lock.Extend(t.Context(), 50*time.Millisecond) }()
	require.Eventually(t, func() bool {
		return server.Client().Exists(t.Context(), t.Name()+":{0}:lock:k").Val() == 0
	}, patience, time.Millisecond, "it has expired")
	require.False(t, time.Now().Before(lock.Until()), "the holder relies on a lock that is free")
	<-lock.Context().Done()
	require.ErrorIs(t, context.Cause(lock.Context()), cachelock.ErrLost)
	relay.Restore()
	require.ErrorIs(t, <-answered, cachelock.ErrLost)
}

// number reads a number from the environment.
func number(t *testing.T, name string, value int) int {
	text := os.Getenv(name)
	if text == "" {
		return value
	}
	n, err := strconv.Atoi(text)
	require.NoError(t, err, name)
	return n
}

// each runs the seeds, several at a time, until one of them says to stop.
func each(first, last uint64, do func(seed uint64) bool) {
	var next, stop atomic.Uint64
	next.Store(first - 1)
	var all sync.WaitGroup
	for range parallel {
		all.Go(func() {
			for seed := next.Add(1); seed <= last && stop.Load() == 0; seed = next.Add(1) {
				if !do(seed) {
					stop.Store(seed)
				}
			}
		})
	}
	all.Wait()
}
