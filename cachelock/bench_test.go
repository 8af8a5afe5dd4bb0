package cachelock_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"fastdfs-gateway/cachelock"
	"fastdfs-gateway/internal/redistest"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// contender is a lock library in the benchmarks. take waits until it has the lock and returns how to release it.
type contender struct {
	name string
	open func(tb testing.TB, rdb *redis.Client) (take func(ctx context.Context, key string) (release func() error, err error))
}

// contenders are this library and the two that it is measured against, each with the retries that it recommends itself: a random
// 50 to 250 ms in redsync, and 100 ms in the examples of redislock.
var contenders = []contender{
	ours("cachelock", cachelock.WaitFor(time.Hour)),
	{"redsync", func(tb testing.TB, rdb *redis.Client) func(context.Context, string) (func() error, error) {
		rs := redsync.New(goredis.NewPool(rdb))
		return func(ctx context.Context, key string) (func() error, error) {
			mutex := rs.NewMutex(key, redsync.WithExpiry(time.Minute), redsync.WithTries(1_000_000))
			if err := mutex.LockContext(ctx); err != nil {
				return nil, err
			}
			return func() error {
				_, err := mutex.UnlockContext(ctx)
				return err
			}, nil
		}
	}},
	{"redislock", func(tb testing.TB, rdb *redis.Client) func(context.Context, string) (func() error, error) {
		c := redislock.New(rdb)
		return func(ctx context.Context, key string) (func() error, error) {
			lock, err := c.Obtain(ctx, key, time.Minute, &redislock.Options{RetryStrategy: redislock.LinearBackoff(100 * time.Millisecond)})
			if err != nil {
				return nil, err
			}
			return func() error { return lock.Release(ctx) }, nil
		}
	}},
}

// ours is this library with a policy.
func ours(name string, policy cachelock.Policy) contender {
	return contender{name, func(tb testing.TB, rdb *redis.Client) func(context.Context, string) (func() error, error) {
		c := cachelock.New(rdb, cachelock.Options{})
		tb.Cleanup(func() { require.NoError(tb, c.Close()) })
		return func(ctx context.Context, key string) (func() error, error) {
			lock, err := c.Acquire(ctx, key, cachelock.LockOptions{TTL: time.Minute, Policy: policy})
			if err != nil {
				return nil, err
			}
			return func() error { return lock.Release(ctx) }, nil
		}
	}}
}

// BenchmarkCycle takes a free lock and releases it.
func BenchmarkCycle(b *testing.B) {
	for _, lib := range append([]contender{ours("cachelock-without-waiting", cachelock.GiveUp())}, contenders...) {
		b.Run(lib.name, func(b *testing.B) {
			server := redistest.Shared(b)
			rdb, sent := counted(server.Client())
			take := lib.open(b, rdb)
			key, ctx := "cycle-"+lib.name, context.Background()
			b.ReportAllocs()
			before := sent.Load()
			for b.Loop() {
				release, err := take(ctx, key)
				if err == nil {
					err = release()
				}
				if err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(sent.Load()-before)/float64(b.N), "commands/op")
		})
	}
}

// BenchmarkWake measures the time from the release of a lock until the next of those who wait has it.
func BenchmarkWake(b *testing.B) {
	for _, waiters := range []int{1, 1000} {
		for _, lib := range contenders {
			b.Run(fmt.Sprintf("%s/waiters=%d", lib.name, waiters), func(b *testing.B) { benchmarkWake(b, lib, waiters) })
		}
	}
}

func benchmarkWake(b *testing.B, lib contender, waiters int) {
	rdb := redis.NewClient(&redis.Options{Addr: redistest.Shared(b).Addr(), PoolTimeout: time.Minute})
	defer rdb.Close()
	take := lib.open(b, rdb)
	ctx, cancel := context.WithCancel(context.Background())
	key := fmt.Sprint("wake-", lib.name, waiters)
	got := make(chan func() error)
	var all sync.WaitGroup
	for range waiters {
		all.Go(func() {
			for ctx.Err() == nil {
				release, err := take(ctx, key)
				if err != nil {
					return
				}
				select {
				case got <- release:
				case <-ctx.Done():
					_ = release()
				}
			}
		})
	}
	release := <-got
	time.Sleep(300 * time.Millisecond) // All of them are waiting now.
	var took []time.Duration
	for b.Loop() {
		start := time.Now()
		if err := release(); err != nil {
			b.Fatal(err)
		}
		release = <-got
		took = append(took, time.Since(start))
	}
	cancel()
	_ = release()
	all.Wait()
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2])/1e6, "ms-median")
	b.ReportMetric(float64(took[len(took)*99/100])/1e6, "ms-p99")
	b.ReportMetric(float64(took[len(took)-1])/1e6, "ms-worst")
}

// sentCounter counts the commands that a client sends.
type sentCounter struct{ commands atomic.Int64 }

var _ redis.Hook = (*sentCounter)(nil)

// counted makes a client count what it sends.
func counted(rdb *redis.Client) (*redis.Client, *atomic.Int64) {
	c := &sentCounter{}
	rdb.AddHook(c)
	return rdb, &c.commands
}

// DialHook leaves dialing alone.
func (c *sentCounter) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook counts one command.
func (c *sentCounter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.commands.Add(1)
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook counts several.
func (c *sentCounter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c.commands.Add(int64(len(cmds)))
		return next(ctx, cmds)
	}
}

// A lock that nobody waits for costs two commands, of the client and by the count of the server, whatever the policy.
func TestTwoCommandsACycle(t *testing.T) {
	server := redistest.Start(t)
	rdb, sent := counted(server.Client())
	c := cachelock.New(rdb, cachelock.Options{})
	defer c.Close()
	cycle := func(o cachelock.LockOptions) {
		lock, err := c.Acquire(t.Context(), "k", o)
		require.NoError(t, err)
		require.NoError(t, lock.Release(t.Context()))
	}
	for name, o := range map[string]cachelock.LockOptions{
		"give up": {}, "wait": {Policy: cachelock.WaitFor(time.Minute)}, "renew": {Renew: true}, "owner": {Owner: "me"},
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
		for _, other := range []string{"eval", "script|load", "subscribe", "ping", "publish"} {
			require.Equal(t, beforeServer[other], after[other], "%s: %s", name, other)
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

// A release wakes one of a thousand who wait in a process: Redis gets a few commands, and not one for each of them.
func TestReleaseDoesNotThunder(t *testing.T) {
	const waiters = 1000
	rdb, sent := counted(redistest.Shared(t).Client())
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
	// One command each of a release and of the next acquisition, which may have to look twice, and the first looks.
	require.LessOrEqual(t, sent.Load()-before, int64(20*4+10))
	cancel()
	all.Wait()
	require.NoError(t, lock.Release(context.Background()))
}
