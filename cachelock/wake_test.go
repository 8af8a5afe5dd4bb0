package cachelock_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"fastdfs-gateway/cachelock"
	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/internal/testing/redistest"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

// office has a Redis server for one test, so that the commands of the test can be counted. Its
// clients hardly ever poll.
type office struct {
	*testing.T
	server *redistest.Server
	admin  *redis.Client
}

func newOffice(t *testing.T) *office {
	t.Helper()
	server := redistest.Start(t)
	return &office{T: t, server: server, admin: server.Client()}
}

func (o *office) client(options cachelock.Options) *cachelock.Client {
	o.Helper()
	if options.Poll == 0 {
		options.Poll = farOff
	}
	c := cachelock.New(o.server.Client(), options)
	o.Cleanup(func() { require.NoError(o, c.Close()) })
	return c
}

func (o *office) acquire(c *cachelock.Client, key string) *cachelock.Lock {
	o.Helper()
	lock, err := c.Acquire(o.Context(), key, cachelock.LockOptions{TTL: 2 * farOff})
	require.NoError(o, err)
	return lock
}

// waits starts a waiter, and returns when the queue in Redis has inQueue names.
func (o *office) waits(c *cachelock.Client, key string, inQueue int) <-chan result {
	o.Helper()
	return o.waitsWith(c, key, inQueue, cachelock.LockOptions{TTL: 2 * farOff, Policy: cachelock.WaitFor(farOff)})
}

func (o *office) waitsWith(c *cachelock.Client, key string, inQueue int, options cachelock.LockOptions) <-chan result {
	o.Helper()
	got := acquireAsync(o.Context(), c, key, options)
	o.queued(key, inQueue)
	return got
}

func (o *office) queued(key string, n int) {
	o.Helper()
	eventually.True(o, func() bool {
		return o.admin.ZCard(context.Background(), "cachelock:{0}:queue:"+key).Val() == int64(n)
	})
}

// subscribed waits until n clients are subscribed.
func (o *office) subscribed(n int) {
	o.Helper()
	eventually.True(o, func() bool {
		return strings.Count(o.admin.Do(context.Background(), "CLIENT", "LIST", "TYPE", "pubsub").String(), "id=") == n
	})
}

func (o *office) served(got <-chan result) {
	o.Helper()
	r := await(o.T, got)
	require.NoError(o, r.err)
	require.NoError(o, r.lock.Release(o.Context()))
}

// TestNoClockOfAClient: no command carries a time of day, in seconds or a smaller unit.
func TestNoClockOfAClient(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	rdb := o.server.Client()
	var mu sync.Mutex // guards seen
	var seen []string
	redistest.Hook(rdb, func(next redis.ProcessHook) redis.ProcessHook {
		return func(ctx context.Context, cmd redis.Cmder) error {
			mu.Lock()
			for _, arg := range cmd.Args()[1:] {
				if text, ok := arg.(*string); ok {
					arg = *text
				}
				seen = append(seen, fmt.Sprint(arg))
			}
			mu.Unlock()
			return next(ctx, cmd)
		}
	})
	c := cachelock.New(rdb, cachelock.Options{Poll: farOff})
	lock := o.acquire(c, "k")
	waiting := cachelock.Policy{Retries: 2, Sleep: time.Millisecond, MaxSleep: 2 * time.Millisecond}
	_, err := c.Acquire(t.Context(), "k", cachelock.LockOptions{Policy: waiting})
	require.ErrorIs(t, err, cachelock.ErrHeld)
	require.NoError(t, lock.Extend(t.Context(), time.Minute))
	require.NoError(t, lock.Release(t.Context()))
	require.NoError(t, c.Close()) // a waiter that gives up leaves the queue in the background
	mu.Lock()
	defer mu.Unlock()
	require.NotEmpty(t, seen)
	for _, arg := range seen {
		require.NotRegexp(t, `^\d{10,}$`, arg)
	}
}

// TestCostOfWaiting: many waiters of one process cost Redis as much as one waiter. A process has
// one subscription, for any number of locks.
func TestCostOfWaiting(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	holder, c := o.client(cachelock.Options{}), o.client(cachelock.Options{})
	const many, keys = 300, 20
	var locks []*cachelock.Lock
	for i := range keys {
		locks = append(locks, o.acquire(holder, strconv.Itoa(i)))
	}
	before := o.server.Commands()["evalsha"]
	var all errgroup.Group
	wait := func(key string) {
		all.Go(func() error {
			lock, err := c.Acquire(t.Context(), key, cachelock.LockOptions{Policy: cachelock.WaitFor(farOff)})
			if err != nil {
				return err
			}
			return lock.Release(t.Context())
		})
		o.queued(key, 1)
	}
	for range many {
		wait("0")
	}
	time.Sleep(300 * time.Millisecond)
	require.LessOrEqual(t, o.server.Commands()["evalsha"]-before, int64(4)) // two, and scripts that were not loaded
	for i := 1; i < keys; i++ {
		wait(strconv.Itoa(i))
	}
	o.subscribed(1)
	before = o.server.Commands()["evalsha"]
	for _, lock := range locks {
		require.NoError(t, lock.Release(t.Context()))
	}
	require.NoError(t, all.Wait())
	// Each waiter needs an attempt that succeeds, and a release. In between the next head enters
	// the queue again.
	require.LessOrEqual(t, o.server.Commands()["evalsha"]-before, int64(3*many+4*keys))
	o.subscribed(1)
}

// TestPollIsTheBackstop: a waiter whose name was removed from the queue acquires the lock at its
// next poll.
func TestPollIsTheBackstop(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	holder, c := o.client(cachelock.Options{}), o.client(cachelock.Options{Poll: 300 * time.Millisecond})
	lock := o.acquire(holder, "k")
	got := o.waits(c, "k", 1)
	require.NoError(t, o.admin.Del(t.Context(), "cachelock:{0}:queue:k", "cachelock:{0}:lock:k").Err())
	o.served(got)
	require.ErrorIs(t, lock.Release(t.Context()), cachelock.ErrLost)
}

// TestWaiterDies: the name of a process that crashed while it waited stays in the queue for a
// while. A release notifies the next process in its place.
func TestWaiterDies(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	holder, dies, c := o.client(cachelock.Options{}), o.client(cachelock.Options{}), o.client(cachelock.Options{})
	lock := o.acquire(holder, "k")
	dead := o.waits(dies, "k", 1)
	got := o.waits(c, "k", 2)
	require.NoError(t, dies.Close()) // does not leave the queue
	require.ErrorIs(t, await(t, dead).err, cachelock.ErrClosed)
	o.queued("k", 2)
	o.subscribed(1)
	require.NoError(t, lock.Release(t.Context()))
	o.served(got)
}

// TestFairWaiterDies: a crashed waiter for a fair lock blocks the waiters behind it only until its
// name expires. Until then other clients cannot acquire the lock either.
func TestFairWaiterDies(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	const poll = 300 * time.Millisecond // a name expires four polls after its last attempt
	holder, dies := o.client(cachelock.Options{}), o.client(cachelock.Options{Poll: poll})
	c := o.client(cachelock.Options{Poll: poll})
	fair := cachelock.LockOptions{Fair: true, TTL: 2 * farOff, Policy: cachelock.WaitFor(farOff)}
	lock, err := holder.Acquire(t.Context(), "k", fair)
	require.NoError(t, err)
	dead := o.waitsWith(dies, "k", 1, fair)
	got := o.waitsWith(c, "k", 2, fair)
	require.NoError(t, dies.Close())
	require.ErrorIs(t, await(t, dead).err, cachelock.ErrClosed)
	require.NoError(t, lock.Release(t.Context()))
	_, err = holder.Acquire(t.Context(), "k", cachelock.LockOptions{Fair: true})
	require.ErrorIs(t, err, cachelock.ErrHeld) // the crashed waiter is first
	o.served(got)
	o.queued("k", 0)
}

// TestNotificationWithoutWaiter: a process that is notified without having waiters passes the
// notification on to the next process.
func TestNotificationWithoutWaiter(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	holder, first, next := o.client(cachelock.Options{}), o.client(cachelock.Options{}), o.client(cachelock.Options{})
	lock := o.acquire(holder, "k")
	ctx, cancel := context.WithCancel(t.Context())
	gone := acquireAsync(ctx, first, "k", cachelock.LockOptions{Policy: cachelock.WaitFor(farOff)})
	o.queued("k", 1)
	name := o.admin.ZRange(t.Context(), "cachelock:{0}:queue:k", 0, 0).Val()[0]
	cancel()
	require.ErrorIs(t, await(t, gone).err, context.Canceled)
	o.queued("k", 0)
	// As if the request to leave the queue had not reached Redis.
	require.NoError(t, o.admin.ZAdd(t.Context(), "cachelock:{0}:queue:k", redis.Z{Score: 1, Member: name}).Err())
	got := o.waits(next, "k", 2)
	living := redis.Z{Score: float64(time.Now().Add(farOff).UnixMilli()), Member: name}
	require.NoError(t, o.admin.ZAdd(t.Context(), "cachelock:{0}:living:k", living).Err())
	require.NoError(t, lock.Release(t.Context()))
	o.served(got)
}

// TestPollsDiffer: a waiter with a short poll interval does not make the queue expire sooner for
// waiters with longer ones.
func TestPollsDiffer(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	holder, hasty, patient := o.client(cachelock.Options{}), o.client(cachelock.Options{Poll: 10 * time.Millisecond}),
		o.client(cachelock.Options{})
	lock := o.acquire(holder, "k")
	got := o.waits(patient, "k", 1)
	_, err := hasty.Acquire(t.Context(), "k", cachelock.LockOptions{Policy: cachelock.WaitFor(100 * time.Millisecond)})
	require.ErrorIs(t, err, cachelock.ErrHeld)
	require.Greater(t, o.admin.PTTL(t.Context(), "cachelock:{0}:queue:k").Val(), farOff)
	require.NoError(t, lock.Release(t.Context()))
	o.served(got)
}

// TestKeysLeft: only the fence counter remains in Redis after any number of locks. All other keys
// have an expiry.
func TestKeysLeft(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin := server.Client()
	c := cachelock.New(admin, cachelock.Options{})
	defer c.Close()
	for i := range 200 {
		key := strconv.Itoa(i)
		owner := ""
		if i%2 == 0 {
			owner = "me"
		}
		lock, err := c.Acquire(t.Context(), key, cachelock.LockOptions{Owner: owner, TTL: farOff})
		require.NoError(t, err)
		if i%20 < 2 {
			_, err := c.Acquire(t.Context(), key,
				cachelock.LockOptions{Policy: cachelock.WaitFor(5 * time.Millisecond)})
			require.ErrorIs(t, err, cachelock.ErrHeld)
		}
		require.Empty(t, server.Eternal(""))
		require.NoError(t, lock.Release(t.Context()))
	}
	eventually.True(t, func() bool {
		return len(admin.Keys(context.Background(), "*").Val()) == 1
	})
	for _, name := range admin.Keys(t.Context(), "*").Val() {
		require.True(t, strings.HasSuffix(name, ":fence"), name)
	}
}
