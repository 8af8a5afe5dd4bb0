package cachelock_test

import (
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

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
