// Package locks compares cachelock with redsync and redislock on one Redis server.
//
//	go test -C tests/all/bench -bench . ./locks
package locks

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"fastdfs-gateway/cachelock"
	"fastdfs-gateway/internal/testing/redistest"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// contender is a lock library in the benchmarks. take waits until it has the lock, and returns the
// function that releases the lock.
type contender struct {
	name string
	open func(tb testing.TB, rdb *redis.Client) (take func(ctx context.Context, key string) (release func() error,
		err error))
}

// contenders are cachelock and the two libraries that it is compared with. Each uses the retries
// that its authors recommend: a random 50 to 250 ms in redsync, and 100 ms in the examples of
// redislock.
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
			lock, err := c.Obtain(ctx, key, time.Minute,
				&redislock.Options{RetryStrategy: redislock.LinearBackoff(100 * time.Millisecond)})
			if err != nil {
				return nil, err
			}
			return func() error { return lock.Release(ctx) }, nil
		}
	}},
}

// ours returns cachelock with a policy.
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

func TestMain(m *testing.M) { redistest.Main(m) }

// TestContenders: each library takes a lock and releases it, so its benchmark measures both.
func TestContenders(t *testing.T) {
	for _, lib := range contenders {
		t.Run(lib.name, func(t *testing.T) {
			take := lib.open(t, redistest.Shared(t).Client())
			for range 2 {
				release, err := take(t.Context(), "contenders-"+lib.name)
				require.NoError(t, err)
				require.NoError(t, release())
			}
		})
	}
}

// BenchmarkCycle takes a free lock and releases it.
func BenchmarkCycle(b *testing.B) {
	for _, lib := range append([]contender{ours("cachelock-without-waiting", cachelock.GiveUp())}, contenders...) {
		b.Run(lib.name, func(b *testing.B) {
			rdb := redistest.Shared(b).Client()
			sent := redistest.Count(rdb)
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

// BenchmarkWake measures the time from the release of a lock until the next waiter has it.
func BenchmarkWake(b *testing.B) {
	for _, waiters := range []int{1, 1000} {
		for _, lib := range contenders {
			b.Run(fmt.Sprintf("%s/waiters=%d", lib.name, waiters), func(b *testing.B) {
				benchmarkWake(b, lib, waiters)
			})
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
	time.Sleep(300 * time.Millisecond) // all waiters are waiting now
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
