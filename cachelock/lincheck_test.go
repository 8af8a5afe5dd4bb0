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
	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/internal/testing/redistest"

	"github.com/stretchr/testify/require"
)

// parallel is the number of concurrent runs, which mostly wait. With more of them requests time out
// for lack of processor time, and the histories are longer and show less.
const parallel = 3

// TestLinearizable: the histories of many processes, whose networks and servers fail, are histories
// of one ideal lock. LOCK_SEEDS is the number of histories; LOCK_SEED is the seed of a single
// history to repeat.
func TestLinearizable(t *testing.T) {
	t.Parallel()
	first, last := uint64(1), uint64(number(t, "LOCK_SEEDS", 4))
	if one := number(t, "LOCK_SEED", 0); one != 0 {
		first, last = uint64(one), uint64(one)
	}
	var taken, commits, lost atomic.Int64
	play := func(seed uint64) bool {
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
	}
	n := last - first + 1
	enough := func() bool { return lost.Load() > 0 && taken.Load() > int64(n)/4 }
	for round := 1; ; round++ {
		each(first, last, play)
		if enough() || n == 1 || t.Failed() || round == 5 {
			break
		}
		first, last = last+1, last+n // on a busy machine most requests fail
	}
	t.Logf("%d histories: %d acquisitions, %d of them lost or abandoned, %d extensions and commits", last, taken.Load(),
		lost.Load(), commits.Load())
	// A single history shows too little for this check.
	require.True(t, enough() || n == 1 || t.Failed(), "hardly anybody got or lost the lock: this has shown little")
}

// TestTakenTogether: a process that acquires several locks together leaves the queue of each in
// Redis. Its other waiters for one of these locks enter the queue again, so that a release wakes
// them.
func TestTakenTogether(t *testing.T) {
	t.Parallel()
	rdb := redistest.Shared(t).Client()
	open := func() *cachelock.Client {
		c := cachelock.New(rdb, cachelock.Options{Prefix: t.Name(), Poll: time.Hour})
		t.Cleanup(func() { require.NoError(t, c.Close()) })
		return c
	}
	hour := cachelock.LockOptions{TTL: time.Hour}
	waiting := cachelock.LockOptions{TTL: time.Hour, Policy: cachelock.WaitFor(time.Hour)}
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	other, mine := open(), open()
	_, err := other.Acquire(ctx, "b", hour)
	require.NoError(t, err)
	first, err := other.Acquire(ctx, "a", hour)
	require.NoError(t, err)

	queued := func(key string) {
		eventually.True(t, func() bool { return rdb.ZCard(ctx, t.Name()+":{0}:queue:"+key).Val() == 1 })
	}
	both, one := make(chan *cachelock.Lock, 1), make(chan error, 1)
	go func() {
		lock, err := mine.Acquire(ctx, "b", waiting)
		if err == nil {
			err = lock.Release(ctx)
		}
		one <- err
	}()
	queued("b")
	go func() {
		lock, _ := mine.AcquireAll(ctx, []string{"a", "b"}, waiting)
		both <- lock
	}()
	queued("a")
	require.NoError(t, rdb.Del(ctx, t.Name()+":{0}:lock:b").Err()) // as by an expiry, without a notification
	require.NoError(t, first.Release(ctx))
	lock := <-both
	require.NotNil(t, lock)
	queued("b")
	require.NoError(t, lock.Release(ctx))
	require.NoError(t, <-one)
}

// number returns a number from the environment, or value.
func number(t *testing.T, name string, value int) int {
	text := os.Getenv(name)
	if text == "" {
		return value
	}
	n, err := strconv.Atoi(text)
	require.NoError(t, err, name)
	return n
}

// each calls do for the seeds, several at a time, until a call returns false.
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
