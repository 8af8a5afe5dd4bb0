package cachelock_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"fastdfs-gateway/cachelock"
	"fastdfs-gateway/internal/redistest"

	"github.com/stretchr/testify/require"
)

// replace returns a change of one script, which must still contain what is replaced.
func replace(t *testing.T, script, old, by string) func(*cachelock.Client) {
	return func(c *cachelock.Client) {
		cachelock.ReplaceScripts(c, func(name, text string) string {
			if name != script {
				return text
			}
			if !strings.Contains(text, old) {
				t.Errorf("%s.lua has no %q any more", name, old)
			}
			return strings.Replace(text, old, by, 1)
		})
	}
}

// The mistakes that locks are known for are made on purpose: each has to show in the history of one of the first seeds.
func TestMutantsAreCaught(t *testing.T) {
	late := replace(t, "acquire", "'NX', 'PX', ARGV[2])", "'NX')")
	for _, test := range []struct {
		name   string
		change func(*cachelock.Client)
	}{
		{"release by plain DEL", replace(t, "release", "redis.call('GET', KEYS[i]) == ARGV[1]", "true")},
		{"extend without comparing the token", replace(t, "extend", "redis.call('GET', KEYS[i]) ~= ARGV[1]", "redis.call('EXISTS', KEYS[i]) == 0")},
		{"take what another holds", replace(t, "acquire", "if holder == ARGV[1] then", "if true then")},
		{"the fence is the clock in seconds", replace(t, "acquire", "return {1, fence}", "return {1, tonumber(time[1])}")},
		{"expiry in a second command", func(c *cachelock.Client) {
			late(c)
			cachelock.SetExpiryLate(c)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			caught := make(map[uint64][]string)
			var mu sync.Mutex // guards caught
			each(1, uint64(number(t, "LOCK_MUTANT_SEEDS", 100)), func(seed uint64) bool {
				r := newRun(t, seed)
				r.change = test.change
				wrongs := r.do()
				mu.Lock()
				defer mu.Unlock()
				if len(wrongs) > 0 {
					caught[seed] = wrongs
				}
				return len(wrongs) == 0
			})
			require.NotEmpty(t, caught, "nobody has noticed")
			for seed, wrongs := range caught {
				t.Logf("seed %d: %.300s", seed, strings.Join(wrongs, "\n"))
			}
		})
	}
}

// Whoever looks first and enters the queue afterwards misses the release in between, and sleeps until the lock would have
// expired. Those who look again when they are in the queue never do.
func TestMissingRecheckIsCaught(t *testing.T) {
	t.Parallel()
	require.True(t, allServed(t, nil, patience), "a waiter has missed a release")
	for range 100 { // the first or second does it, where the processes run side by side
		if !allServed(t, cachelock.QueueLate, time.Second) {
			return
		}
	}
	t.Fatal("nobody has noticed that the second look is missing")
}

// allServed lets processes pass a lock among them, and tells whether all are served within the limit. Neither the expiry of the
// lock nor the poll helps them.
func allServed(t *testing.T, change func(*cachelock.Client), limit time.Duration) bool {
	const processes, rounds = 8, 5
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	server := redistest.Shared(t)
	prefix := "recheck-" + t.Name() + time.Now().Format("150405.000000")
	var all sync.WaitGroup
	var missed atomic.Int32
	for range processes {
		c := cachelock.New(server.Client(), cachelock.Options{Prefix: prefix, Poll: time.Hour})
		defer c.Close()
		if change != nil {
			change(c)
		}
		all.Go(func() {
			for range rounds {
				lock, err := c.Acquire(ctx, "k", cachelock.LockOptions{TTL: time.Hour, Policy: cachelock.WaitFor(time.Hour)})
				if err != nil {
					missed.Add(1)
					return
				}
				if err := lock.Release(ctx); err != nil {
					missed.Add(1)
					return
				}
			}
		})
	}
	all.Wait()
	return missed.Load() == 0
}
