package cachelock_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"fastdfs-gateway/cachelock"
	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/internal/testing/redistest"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	// soon is far below farOff, and enough for any step on a slow machine.
	soon = time.Minute
	// farOff is a time that no test waits for.
	farOff = 5 * time.Minute
	// renewed is the ttl of renewed locks. Such a lock is lost only if the machine stalls for two
	// thirds of its ttl.
	renewed = 3 * time.Second
)

// relayed has a client behind a relay, and a direct client.
type relayed struct {
	*testing.T
	relay   *redistest.Relay
	c       *cachelock.Client // behind the relay
	pending atomic.Int64      // commands of c without a reply
	direct  *cachelock.Client
	admin   *redis.Client
}

func newRelayed(t *testing.T, retries int, o cachelock.Options, more ...func(*redis.Options)) *relayed {
	t.Helper()
	server := redistest.Shared(t)
	r := &relayed{T: t, relay: redistest.NewRelay(t, server.Addr()), admin: server.Client()}
	o.Prefix = t.Name()
	ro := &redis.Options{Addr: r.relay.Addr(), MaxRetries: retries, DialerRetries: 1, DialTimeout: soon,
		ReadTimeout: soon}
	for _, set := range more {
		set(ro)
	}
	rdb := redis.NewClient(ro)
	t.Cleanup(func() { rdb.Close() })
	redistest.Hook(rdb, func(next redis.ProcessHook) redis.ProcessHook {
		return func(ctx context.Context, cmd redis.Cmder) error {
			r.pending.Add(1)
			defer r.pending.Add(-1)
			return next(ctx, cmd)
		}
	})
	r.c, r.direct = cachelock.New(rdb, o), cachelock.New(r.admin, o)
	t.Cleanup(func() {
		require.NoError(t, r.c.Close())
		require.NoError(t, r.direct.Close())
	})
	// The cycles open the connection and load the scripts. A client with a time-out of a few
	// seconds may need several attempts on a busy machine.
	for _, owner := range []string{"", "me"} {
		eventually.True(t, func() bool { return r.cycle("warm", owner) == nil })
	}
	return r
}

// cycle acquires, extends and releases a lock behind the relay.
func (r *relayed) cycle(key, owner string) error {
	lock, err := r.c.Acquire(r.Context(), key, cachelock.LockOptions{Owner: owner})
	if err != nil {
		return err
	}
	return errors.Join(lock.Extend(r.Context(), time.Minute), lock.Release(r.Context()))
}

// isSet waits until the lock is in Redis.
func (r *relayed) isSet(key string) {
	r.Helper()
	eventually.True(r, func() bool {
		return r.admin.Exists(context.Background(), r.Name()+":{0}:lock:"+key).Val() == 1
	})
}

// queued waits until one process is in the queue of the lock.
func (r *relayed) queued(key string) {
	r.Helper()
	eventually.True(r, func() bool {
		return r.admin.ZCard(context.Background(), r.Name()+":{0}:queue:"+key).Val() == 1
	})
}

// freeSoon requires that the lock becomes free long before it expires.
func (r *relayed) freeSoon(key string) {
	r.Helper()
	start := time.Now()
	lock, err := r.direct.Acquire(r.Context(), key, cachelock.LockOptions{Policy: cachelock.WaitFor(farOff)})
	require.NoError(r, err)
	require.Less(r, time.Since(start), soon)
	require.NoError(r, lock.Release(r.Context()))
}

// result is the result of an Acquire.
type result struct {
	lock *cachelock.Lock
	err  error
}

func acquireAsync(ctx context.Context, c *cachelock.Client, key string, o cachelock.LockOptions) <-chan result {
	got := make(chan result, 1)
	go func() {
		lock, err := c.Acquire(ctx, key, o)
		got <- result{lock, err}
	}()
	return got
}

func await(t *testing.T, got <-chan result) result {
	t.Helper()
	select {
	case r := <-got:
		return r
	case <-time.After(soon):
		t.Fatal("Acquire does not return")
		return result{}
	}
}

// TestReleaseFails: a release that does not reach Redis returns ErrUnreachable, and is repeated in
// the background until Redis is available again, even after a long outage.
func TestReleaseFails(t *testing.T) {
	t.Parallel()
	r := newRelayed(t, -1, cachelock.Options{})
	lock, err := r.c.Acquire(t.Context(), "k", cachelock.LockOptions{TTL: farOff})
	require.NoError(t, err)
	r.relay.Cut()
	err = lock.Release(t.Context())
	require.ErrorIs(t, err, cachelock.ErrUnreachable)
	require.ErrorIs(t, lock.Release(t.Context()), cachelock.ErrNotHeld)
	_, err = r.direct.Acquire(t.Context(), "k", cachelock.LockOptions{})
	require.ErrorIs(t, err, cachelock.ErrHeld)
	time.Sleep(2 * time.Second) // the outage
	r.relay.Restore()
	r.freeSoon("k")
}

// TestReleaseOfAShortHold: a hold whose acquisition got no reply is released after an outage that
// is longer than its ttl, since another hold of the owner keeps the lock.
func TestReleaseOfAShortHold(t *testing.T) {
	t.Parallel()
	r := newRelayed(t, -1, cachelock.Options{})
	hold := func(ttl time.Duration) cachelock.LockOptions { return cachelock.LockOptions{Owner: "me", TTL: ttl} }
	first, err := r.c.Acquire(t.Context(), "k", hold(farOff))
	require.NoError(t, err)
	const ttl = 100 * time.Millisecond
	r.relay.Mute()
	got := acquireAsync(t.Context(), r.c, "k", hold(ttl))
	time.Sleep(ttl)
	r.relay.Cut()
	require.ErrorIs(t, await(t, got).err, cachelock.ErrUnreachable)
	time.Sleep(20 * ttl)
	r.relay.Restore()
	eventually.True(t, func() bool { return first.Extend(t.Context(), farOff) == nil })
	require.NoError(t, first.Release(t.Context()))
	r.freeSoon("k")
}

// TestReleaseCancelled: Release with an ended context, as in a deferred call, returns ErrCancelled
// and releases the lock in the background.
func TestReleaseCancelled(t *testing.T) {
	t.Parallel()
	r := newRelayed(t, -1, cachelock.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	lock, err := r.c.Acquire(ctx, "k", cachelock.LockOptions{TTL: farOff})
	require.NoError(t, err)
	cancel()
	require.ErrorIs(t, lock.Release(ctx), cachelock.ErrCancelled)
	r.freeSoon("k")
}

// TestReplyLostAndRepeated: if the Redis client repeats a request whose reply was lost, the lock is
// acquired once.
func TestReplyLostAndRepeated(t *testing.T) {
	t.Parallel()
	for _, o := range []cachelock.LockOptions{{}, {Fair: true}, {Owner: "me"}} {
		r := newRelayed(t, 10, cachelock.Options{Poll: farOff})
		o.TTL = farOff
		r.relay.Mute()
		got := acquireAsync(t.Context(), r.c, "k", o)
		r.isSet("k")
		other := acquireAsync(t.Context(), r.direct, "k",
			cachelock.LockOptions{TTL: farOff, Fair: o.Fair, Policy: cachelock.WaitFor(farOff)})
		r.queued("k")
		r.relay.Drop()
		r.relay.Restore()
		mine := await(t, got)
		require.NoError(t, mine.err)
		require.NoError(t, mine.lock.Release(t.Context()))
		next := await(t, other)
		require.NoError(t, next.err)
		require.NoError(t, next.lock.Release(t.Context()))
	}
}

// TestCarriedOutNevertheless: if a request failed but was executed, the lock is released in the
// background.
func TestCarriedOutNevertheless(t *testing.T) {
	t.Parallel()
	for _, o := range []cachelock.LockOptions{{}, {Owner: "me"}} {
		r := newRelayed(t, -1, cachelock.Options{})
		o.TTL = farOff
		r.relay.Mute()
		got := acquireAsync(t.Context(), r.c, "k", o)
		r.isSet("k")
		r.relay.Cut()
		require.ErrorIs(t, await(t, got).err, cachelock.ErrUnreachable)
		r.relay.Restore()
		r.freeSoon("k")
	}
}

// TestReplyTooLate: a reply that arrives after the ttl of the lock counts as none.
func TestReplyTooLate(t *testing.T) {
	t.Parallel()
	r := newRelayed(t, -1, cachelock.Options{})
	r.relay.Delay(100 * time.Millisecond) // delays only requests: the lock still exists when the reply arrives
	_, err := r.c.Acquire(t.Context(), "k", cachelock.LockOptions{TTL: 50 * time.Millisecond})
	require.ErrorIs(t, err, cachelock.ErrUnreachable)
	lock, err := r.c.Acquire(t.Context(), "k", cachelock.LockOptions{TTL: farOff, Policy: cachelock.WaitFor(farOff)})
	require.NoError(t, err) // a slow request is not a failure
	require.NoError(t, lock.Release(t.Context()))
}

// TestRenewalAfterDataLoss: if Redis has lost its data, the context of a lock ends at the next
// renewal, long before the ttl. If the machine stalls for two thirds of the ttl, the ttl ends the
// context first; then the test starts again.
func TestRenewalAfterDataLoss(t *testing.T) {
	t.Parallel()
	r := newRelayed(t, 3, cachelock.Options{})
	for scene := 1; ; scene++ {
		require.Less(t, scene, 20, "the holder is told by the end of the ttl alone")
		lock, err := r.c.Acquire(t.Context(), "k", cachelock.LockOptions{TTL: renewed, Renew: true})
		if errors.Is(err, cachelock.ErrUnreachable) {
			continue // the reply came after the ttl
		}
		require.NoError(t, err)
		r.admin.Del(t.Context(), r.Name()+":{0}:lock:k")
		select {
		case <-lock.Context().Done():
		case <-time.After(soon):
			t.Fatal("the holder is not told")
		}
		early := time.Now().Before(lock.Until())
		require.ErrorIs(t, lock.Release(t.Context()), cachelock.ErrLost)
		if early {
			return
		}
	}
}

// TestReleaseWhileCutOff: a waiter whose connection for notifications is cut during a release
// acquires the lock as soon as another connection is open, without polling.
func TestReleaseWhileCutOff(t *testing.T) {
	t.Parallel()
	r := newRelayed(t, 3, cachelock.Options{Poll: farOff}) // retries: the first attempts use cut connections
	lock, err := r.direct.Acquire(t.Context(), "k", cachelock.LockOptions{TTL: 2 * farOff})
	require.NoError(t, err)
	waiting := acquireAsync(t.Context(), r.c, "k", cachelock.LockOptions{Policy: cachelock.WaitFor(farOff)})
	r.queued("k")
	eventually.True(t, func() bool { return r.pending.Load() == 0 }) // the waiter has the reply that it is in the queue
	r.relay.Cut()
	eventually.True(t, func() bool {
		return len(r.admin.PubSubChannels(t.Context(), t.Name()+"*").Val()) == 0
	})
	require.NoError(t, lock.Release(t.Context()))
	r.relay.Restore()
	got := await(t, waiting)
	require.NoError(t, got.err)
	require.NoError(t, got.lock.Release(t.Context()))
}

// TestForeignKeys: a lock key that another program has written is the lock of another holder.
// Queues and folder keys of another type are deleted.
func TestForeignKeys(t *testing.T) {
	t.Parallel()
	r := newRelayed(t, -1, cachelock.Options{Poll: 50 * time.Millisecond})
	name := t.Name() + ":{0}:lock:"
	require.NoError(t, r.admin.LPush(t.Context(), name+"list", "x").Err())
	require.NoError(t, r.admin.Set(t.Context(), name+"huge", ":"+strings.Repeat("x", 1<<20), time.Minute).Err())
	for _, o := range []cachelock.LockOptions{{}, {Owner: "me"}} {
		_, err := r.c.Acquire(t.Context(), "list", o)
		require.ErrorIs(t, err, cachelock.ErrHeld)
		_, err = r.c.Acquire(t.Context(), "huge", o)
		held := (*cachelock.HeldError)(nil)
		require.ErrorAs(t, err, &held)
		require.LessOrEqual(t, len(held.Holder), 1024)
	}
	occupy := func() {
		for _, kind := range []string{"queue", "living", "holds"} {
			require.NoError(t, r.admin.LPush(t.Context(), t.Name()+":{0}:"+kind+":k", "x").Err())
		}
	}
	for _, o := range []cachelock.LockOptions{{}, {Fair: true}, {Owner: "me"}} {
		o.Policy = cachelock.WaitFor(farOff)
		occupy() // a waiter that acquires a free lock leaves its queue
		lock, err := r.c.Acquire(t.Context(), "k", o)
		require.NoError(t, err)
		waiting := acquireAsync(t.Context(), r.direct, "k", cachelock.LockOptions{Fair: o.Fair, Policy: o.Policy})
		r.queued("k")
		require.NoError(t, lock.Release(t.Context()))
		got := await(t, waiting)
		require.NoError(t, got.err)
		require.NoError(t, got.lock.Release(t.Context()))
	}

	require.NoError(t, r.admin.Set(t.Context(), t.Name()+":{0}:folder-claims:files", "x", 0).Err())
	folders, err := r.c.Folders("files")
	require.NoError(t, err)
	lock, err := folders.Acquire(t.Context(), "/a", cachelock.Exclusive, cachelock.LockOptions{})
	require.NoError(t, err)
	require.NoError(t, lock.Release(t.Context()))

	// a lock without expiry from another program
	require.NoError(t, r.admin.Set(t.Context(), name+"eternal", "x", 0).Err())
	waiting := acquireAsync(t.Context(), r.c, "eternal", cachelock.LockOptions{Policy: cachelock.WaitFor(farOff)})
	r.queued("eternal")
	require.NoError(t, r.admin.Del(t.Context(), name+"eternal").Err())
	got := await(t, waiting) // by the poll
	require.NoError(t, got.err)
	require.NoError(t, got.lock.Release(t.Context()))
}

// TestForeignFence: a fence counter of another type is replaced, and no holder loses its lock.
func TestForeignFence(t *testing.T) {
	t.Parallel()
	rdb := redistest.Shared(t).Client()
	c := cachelock.New(rdb, cachelock.Options{Prefix: t.Name()})
	defer c.Close()
	folders, err := c.Folders("files")
	require.NoError(t, err)
	long := cachelock.LockOptions{TTL: farOff}
	held, err := folders.Acquire(t.Context(), "/held", cachelock.Exclusive, long)
	require.NoError(t, err)
	last := held.Fence()
	type acquire func() (*cachelock.Lock, error)
	plain := func(key string, o cachelock.LockOptions) acquire {
		return func() (*cachelock.Lock, error) { return c.Acquire(t.Context(), key, o) }
	}
	for name, acquire := range map[string]acquire{
		"plain":  plain("k", long),
		"fair":   plain("f", cachelock.LockOptions{Fair: true}),
		"owner":  plain("o", cachelock.LockOptions{Owner: "me"}),
		"folder": func() (*cachelock.Lock, error) { return folders.Acquire(t.Context(), "/a", cachelock.Shared, long) },
	} {
		require.NoError(t, rdb.Del(t.Context(), t.Name()+":{0}:fence").Err())
		require.NoError(t, rdb.HSet(t.Context(), t.Name()+":{0}:fence", "x", 1).Err())
		lock, err := acquire()
		if !assert.NoError(t, err, name) {
			continue
		}
		require.Greater(t, lock.Fence(), last, name)
		last = lock.Fence()
		require.NoError(t, lock.Release(t.Context()), name)
	}
	require.NoError(t, held.Extend(t.Context(), farOff))
	require.NoError(t, held.Release(t.Context()))
}
