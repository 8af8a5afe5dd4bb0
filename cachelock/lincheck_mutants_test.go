package cachelock_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"fastdfs-gateway/cachelock"
	"fastdfs-gateway/internal/testing/redistest"

	"github.com/redis/go-redis/v9"
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

// The well-known mistakes are made on purpose: each has to show in the history of one of the first
// seeds.
func TestMutantsAreCaught(t *testing.T) {
	late := replace(t, "acquire", "'NX', 'PX', ARGV[2])", "'NX')")
	for _, test := range []struct {
		name   string
		change func(*cachelock.Client)
	}{
		{"release by plain DEL", replace(t, "release", "redis.call('GET', KEYS[i]) == ARGV[1]", "true")},
		{"take what another holds", replace(t, "acquire", "if holder == ARGV[1] then", "if true then")},
		{"the fence is the clock in seconds",
			replace(t, "acquire", "return {1, fence}", "return {1, tonumber(time[1])}")},
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

// A request to extend a lock that arrives when another process has it changes nothing. If it is
// executed nevertheless, the history shows it.
func TestOvertakenExtension(t *testing.T) {
	t.Parallel()
	require.Empty(t, newRun(t, 1).overtaken())
	broken := newRun(t, 2)
	broken.change = replace(t, "extend", "redis.call('GET', KEYS[i]) ~= ARGV[1]", "redis.call('EXISTS', KEYS[i]) == 0")
	wrongs := broken.overtaken()
	require.NotEmpty(t, wrongs, "nobody has noticed")
	t.Logf("%.300s", strings.Join(wrongs, "\n"))
}

// overtaken makes that history, and returns what is wrong with it. A holder extends its lock over a
// network that stalls; the lock expires, a second process gets it, the request arrives, and a third
// process tries.
func (r *run) overtaken() []string {
	relay, direct := redistest.NewRelay(r.t, r.server.Addr()), cachelock.PatientClient(r.t, r.server)
	o := &redis.Options{Addr: relay.Addr(), DialerRetries: 1, MaxRetries: -1, ReadTimeout: waitBudget}
	far := redis.NewClient(o)
	defer far.Close()
	first, others := r.client(far), r.client(direct)
	defer first.Close()
	defer others.Close()
	r.history.start = time.Now()
	asked, lock := r.tenure(1, first, cachelock.GiveUp())
	require.NotNil(r.t, lock)
	require.NoError(r.t, lock.Extend(r.t.Context(), farOff), "the script is known now")
	relay.Hang()
	arrived := make(chan error, 1)
	go func() { arrived <- lock.Extend(context.Background(), cachelock.MinTTL) }()
	<-lock.Context().Done()
	asked.until = r.history.at(lock.Until())
	require.NoError(r.t, direct.Del(r.t.Context(), r.prefix+":{0}:lock:k").Err()) // as if it had expired
	_, second := r.tenure(2, others, cachelock.GiveUp())
	require.NotNil(r.t, second)
	relay.Restore()
	require.ErrorIs(r.t, <-arrived, cachelock.ErrLost)
	if _, third := r.tenure(3, others, cachelock.WaitFor(10*cachelock.MinTTL)); third != nil {
		require.NoError(r.t, third.Release(r.t.Context()))
	} else {
		require.NoError(r.t, second.Release(r.t.Context()))
	}
	return r.history.check()
}

// client opens a client of the run.
func (r *run) client(rdb *redis.Client) *cachelock.Client {
	c := cachelock.New(rdb, cachelock.Options{Prefix: r.prefix, Shards: 1})
	if r.change != nil {
		r.change(c)
	}
	return c
}

// tenure asks for the lock and notes it when a process gets it. It does not say when it ends.
func (r *run) tenure(process int, c *cachelock.Client, policy cachelock.Policy) (*tenure, *cachelock.Lock) {
	t := &tenure{process: process, call: r.history.now(), endCall: forever, endRet: forever, end: "not asked"}
	lock, err := c.Acquire(r.t.Context(), "k", cachelock.LockOptions{TTL: farOff, Policy: policy})
	if err != nil {
		require.ErrorIs(r.t, err, cachelock.ErrHeld)
		return nil, nil
	}
	t.ret, t.fence, t.until = r.history.now(), lock.Fence(), r.history.at(lock.Until())
	r.history.addTenure(t)
	return t, lock
}

// A waiter that checks the lock first and enters the queue afterwards misses a release in between,
// and sleeps until the lock would have expired. One that checks again in the queue never does.
func TestMissingRecheckIsCaught(t *testing.T) {
	t.Parallel()
	require.True(t, allServed(t, nil, waitBudget), "a waiter has missed a release")
	for range 100 { // the first or second does it, where the processes run side by side
		if !allServed(t, cachelock.QueueLate, time.Second) {
			return
		}
	}
	t.Fatal("nobody has noticed that the second look is missing")
}

// allServed lets processes pass a lock among them, and tells whether all are served within the
// limit. Neither the expiry of the lock nor the poll helps them.
func allServed(t *testing.T, change func(*cachelock.Client), limit time.Duration) bool {
	const processes, rounds = 8, 5
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	rdb := cachelock.PatientClient(t, redistest.Shared(t))
	prefix := "recheck-" + t.Name() + time.Now().Format("150405.000000")
	var all sync.WaitGroup
	var missed atomic.Int32
	for range processes {
		c := cachelock.New(rdb, cachelock.Options{Prefix: prefix, Poll: time.Hour})
		defer c.Close()
		if change != nil {
			change(c)
		}
		all.Go(func() {
			for range rounds {
				lock, err := c.Acquire(ctx, "k",
					cachelock.LockOptions{TTL: time.Hour, Policy: cachelock.WaitFor(time.Hour)})
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
