package fleet

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"testing"
	"time"

	"fastdfs-gateway/internal/cache"
	"fastdfs-gateway/internal/fdfs/backoff"
	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/internal/testing/logtest"
	"fastdfs-gateway/internal/testing/redistest"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// z returns a member of a sorted set.
func z(score float64, member string) redis.Z { return redis.Z{Score: score, Member: member} }

// TestRedisFails: whatever the failure of Redis, every method fails within bounded time, after a
// few failures at once, and works again by itself after the failure.
func TestRedisFails(t *testing.T) {
	for name, c := range map[string]struct {
		break_, mend func(t *testing.T, s *redistest.Server, r *redistest.Relay)
	}{
		"hung": {
			func(_ *testing.T, s *redistest.Server, _ *redistest.Relay) { s.Pause() },
			func(_ *testing.T, s *redistest.Server, _ *redistest.Relay) { s.Resume() }},
		"partition": {
			func(_ *testing.T, _ *redistest.Server, r *redistest.Relay) { r.Cut() },
			func(_ *testing.T, _ *redistest.Server, r *redistest.Relay) { r.Restore() }},
		"another password": {
			func(t *testing.T, s *redistest.Server, r *redistest.Relay) {
				configure("requirepass", "other")(t, s, r)
				r.Drop()
			},
			func(t *testing.T, s *redistest.Server, _ *redistest.Relay) {
				client := redis.NewClient(&redis.Options{Addr: s.Addr(), Password: "other"})
				defer client.Close()
				require.NoError(t, client.ConfigSet(t.Context(), "requirepass", "").Err())
			}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			relay := redistest.NewRelay(t, server.Addr())
			o := fleetOf(relay.Addr())
			o.Timeout, o.LockTTL = 500*time.Millisecond, 5*time.Second // a lease whose release was lost ends by its TTL
			log := &logtest.Buffer{}
			o.Log = slog.New(slog.NewTextHandler(log, nil))
			f := member(t, o, 1)
			start(t, f, (&memory{}).local())
			eventually.True(t, func() bool { return tryAll(f) == nil }, "it works")

			c.break_(t, server, relay)
			eventually.True(t, func() bool {
				_ = tryAll(f) // a few may still succeed
				return !f.Stats().Up
			}, "the breaker opens")
			begin := time.Now()
			for range 1000 {
				require.ErrorIs(t, tryAll(f), cache.ErrFleetDown)
			}
			require.Less(t, time.Since(begin), testTimeout/2, "no request waits for Redis")

			c.mend(t, server, relay)
			eventually.True(t, func() bool { return f.Stats().Up && tryAll(f) == nil }, "it works again")
			require.GreaterOrEqual(t, log.Count("running standalone"), 1)
			eventually.True(t, func() bool {
				opened := int(f.Stats().Opened)
				return log.Count("running standalone") == opened && log.Count("redis serves again") == opened
			}, "a line is logged for each change, and no more")
		})
	}
}

// TestFullRedis: a Redis without free memory counts as unavailable until it has memory again,
// although heartbeats succeed meanwhile.
func TestFullRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	f := member(t, fleetOf(server.Addr()), 1)
	start(t, f, (&memory{}).local())
	configure("maxmemory", "1")(t, server, nil)
	require.Error(t, tryAll(f))
	for range 3 {
		<-f.logRead.Load().next
		require.ErrorIs(t, tryAll(f), cache.ErrFleetDown)
	}
	require.EqualValues(t, 1, f.Stats().Opened)
	configure("maxmemory", "0")(t, server, nil)
	eventually.True(t, func() bool { return f.Stats().Up && tryAll(f) == nil }, "it works again")
}

func configure(key, value string) func(*testing.T, *redistest.Server, *redistest.Relay) {
	return func(t *testing.T, s *redistest.Server, _ *redistest.Relay) {
		require.NoError(t, s.Client().ConfigSet(t.Context(), key, value).Err())
	}
}

// tryAll calls AcquireLease and wait, and returns their errors. Each must be one with which the
// cache goes on: cache.ErrFleetDown or cache.Held.
func tryAll(f *Fleet) error {
	ctx := context.Background()
	var errs []error
	_, release, err := f.AcquireLease(ctx, testFile, true)
	errs = append(errs, err)
	if err == nil {
		release()
	}
	errs = append(errs, f.waitForLease(ctx, LockInfo{Key: testFile}))
	for _, err := range errs {
		var held *cache.Held
		if err != nil && !errors.Is(err, cache.ErrFleetDown) && !errors.As(err, &held) {
			panic(err)
		}
	}
	return errors.Join(errs...)
}

// TestWaitEndsWithTheBreaker: a wait for a lease ends when other requests find Redis unavailable,
// before its own request fails.
func TestWaitEndsWithTheBreaker(t *testing.T) {
	o := fleetOf(redistest.Shared(t).Addr())
	a, b := member(t, o, 1), member(t, o, 2)
	lease := lead(t, a, "key")
	defer lease.release()
	done := make(chan error)
	go func() { done <- b.waitForLease(t.Context(), LockInfo{Key: "key"}) }()
	eventually.True(t, func() bool { return b.Stats().LocksWaiting == 1 }, "it waits")
	b.breaker.note(redisError("OOM command not allowed"), false)
	begin := time.Now()
	require.Equal(t, cache.ErrFleetDown, <-done)
	require.Less(t, time.Since(begin), testTimeout)
}

// TestCancelledRequestsAreNoFailures: a request that its caller cancels is no failure of Redis.
func TestCancelledRequestsAreNoFailures(t *testing.T) {
	f := member(t, fleetOf(redistest.Shared(t).Addr()), 1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 10 {
		require.ErrorIs(t, f.waitForLease(ctx, LockInfo{Key: "key"}), context.Canceled)
		_, _, err := f.AcquireLease(ctx, "key", true)
		require.ErrorIs(t, err, context.Canceled)
	}
	require.True(t, f.Stats().Up)

	// A connection may notice the deadline of a caller before its context does.
	for range 2 * maxFailures {
		err := f.judge(dueContext{t.Context()}, "ask", os.ErrDeadlineExceeded)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, cache.ErrFleetDown)
	}
	require.True(t, f.Stats().Up)
}

// dueContext is a context that has not ended yet, although its deadline has passed.
type dueContext struct{ context.Context }

func (dueContext) Deadline() (time.Time, bool) { return time.Now(), true }

func TestBreaker(t *testing.T) {
	log := &logtest.Buffer{}
	b := newBreaker(slog.New(slog.NewTextHandler(log, nil)))
	slow := context.DeadlineExceeded
	up, err := b.allow()
	require.NoError(t, err)
	for range 10 { // never three in a row
		b.note(slow, false)
		b.note(slow, false)
		b.note(nil, false)
	}
	require.NoError(t, up.Err())
	for range 5 {
		b.note(slow, false)
	}
	require.ErrorIs(t, context.Cause(up), cache.ErrFleetDown)
	_, err = b.allow()
	require.ErrorIs(t, err, cache.ErrFleetDown)
	b.note(nil, false) // of a request that began before
	for _, pause := range []time.Duration{1, 2, 3, 3} {
		require.InEpsilon(t, pause*time.Second, b.pause(), 0.25)
		b.note(slow, true)
	}
	require.Equal(t, 1, log.Count("running standalone"))
	b.note(nil, true)
	require.Zero(t, b.pause())
	up, err = b.allow()
	require.NoError(t, err)
	require.NoError(t, up.Err())
	require.Equal(t, 1, log.Count("serves again"))
	b.note(errors.Join(errors.New("cannot publish"), redisError("OOM command not allowed")), false)
	require.InEpsilon(
		t,
		time.Second,
		b.pause(),
		0.25,
		"a reply that it cannot serve is enough, and the pause begins anew",
	)
	require.EqualValues(t, 2, b.opened.Load())
}

// TestSubscriptionEndsThePause: a new subscription, which proves that Redis is back, ends the pause
// of the breaker.
func TestSubscriptionEndsThePause(t *testing.T) {
	t.Parallel()
	relay := redistest.NewRelay(t, redistest.Shared(t).Addr())
	o := fleetOf(relay.Addr())
	o.Timeout = time.Second
	f := member(t, o, 1)
	f.breaker.probes = backoff.Policy{First: time.Hour, Max: time.Hour}
	start(t, f, (&memory{}).local())
	relay.Cut()
	eventually.True(t, func() bool { f.wake(); return !f.Stats().Up }, "heartbeats alone open the breaker")
	relay.Restore()
	eventually.True(t, func() bool { return f.Stats().Up }, "it serves again before the pause is over")

	// The longest pause and its probe are over before other gateways count this one as gone.
	require.Less(t, redisBackoff.Max, defaultPurgeLimits.live/3)
}

type redisError string

func (e redisError) Error() string { return string(e) }
func (redisError) RedisError()     {}

// TestAdvice: the log line about an error of a real Redis, for a client with wrong settings, has
// the remedy.
func TestAdvice(t *testing.T) {
	server := redistest.Start(t)
	admin := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer func() { require.NoError(t, admin.Close()) }()
	require.NoError(t, admin.ConfigSet(t.Context(), "requirepass", "right").Err())
	for _, c := range []struct {
		name, advice string
		set          func(*Options)
	}{
		{"wrong password", "check username and password", func(o *Options) { o.Password = "wrong" }},
		{"no password", "set password", func(*Options) {}},
		{"no cluster", "mode = single", func(o *Options) { o.Password, o.Mode = "right", "cluster" }},
		{"no sentinel", "those of the sentinels", func(o *Options) {
			o.Password, o.Mode, o.MasterName = "right", "sentinel", "m"
		}},
		{"no such database", "check db", func(o *Options) { o.Password, o.DB = "right", 99 }},
		{"no server there", "that redis-server runs there", func(o *Options) { o.Addresses = []string{"127.0.0.1:1"} }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			log := &logtest.Buffer{}
			o := fleetOf(server.Addr())
			o.Log = slog.New(slog.NewTextHandler(log, nil))
			c.set(&o)
			f := member(t, o, 1)
			require.NoError(t, f.Start(Local{Purge: func(cache.Match) {}}))
			eventually.True(t, func() bool {
				return log.Count(c.advice) == 1 &&
					log.Count("redis="+o.Addresses[0]) == 1
			}, "it says so")
		})
	}
}
