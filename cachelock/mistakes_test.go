package cachelock_test

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"fastdfs-gateway/cachelock"
	"fastdfs-gateway/internal/testing/redistest"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// Each well-known mistake has a check. The package passes it, and the same check fails for a
// package with the mistake.

// bench is what a check works on: one server, and a client that may be broken, whose every command
// can be watched.
type bench struct {
	server *redistest.Server
	admin  *redis.Client
	c      *cachelock.Client
	watch  *watch
}

// watch is a hook of the Redis client.
type watch struct {
	mu     sync.Mutex // guards all below
	before func(cmd redis.Cmder)
	after  func(cmd redis.Cmder)
}

var _ redis.Hook = (*watch)(nil)

func (w *watch) set(before, after func(cmd redis.Cmder)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.before, w.after = before, after
}

func (w *watch) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (w *watch) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (w *watch) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		w.mu.Lock()
		before, after := w.before, w.after
		w.mu.Unlock()
		if before != nil {
			before(cmd)
		}
		err := next(ctx, cmd)
		if after != nil {
			after(cmd)
		}
		return err
	}
}

func newBench(t *testing.T, mistake func(c *cachelock.Client)) *bench {
	t.Helper()
	b := &bench{server: redistest.Start(t), watch: &watch{}}
	b.admin = cachelock.PatientClient(t, b.server)
	rdb := cachelock.PatientClient(t, b.server)
	rdb.AddHook(b.watch)
	b.c = cachelock.New(rdb, cachelock.Options{Shards: 1, Poll: time.Minute})
	t.Cleanup(func() { require.NoError(t, b.c.Close()) })
	if mistake != nil {
		mistake(b.c)
	}
	return b
}

// nameOf is a lock in Redis.
func nameOf(key string) string { return "cachelock:{0}:lock:" + key }

// judge is the TestingT of a check that is expected to fail.
type judge struct {
	failed bool
	said   string
}

func (j *judge) Errorf(format string, args ...any) {
	j.failed, j.said = true, fmt.Sprintf(format, args...)
}
func (j *judge) FailNow() { runtime.Goexit() }

// mistakes by their names, with a check and a client that makes them.
var mistakes = []struct {
	name    string
	check   func(t require.TestingT, b *bench)
	mistake func(c *cachelock.Client)
}{
	{"expiry in a second command", checkExpiryAtEachStep, func(c *cachelock.Client) {
		swap(c, "acquire", "ARGV[1], 'NX', 'PX', ARGV[2])", "ARGV[1], 'NX')")
		cachelock.SetExpiryLate(c)
	}},
	{"unlocking by a plain DEL", checkOthersLockStays, func(c *cachelock.Client) {
		swap(c, "release", "if redis.call('GET', KEYS[i]) == ARGV[1] then", "if true then")
	}},
	{"get, then delete", checkOthersLockStaysBetween, cachelock.GetThenDelete},
	{"extending without a token", checkOthersLockIsNotExtended, func(c *cachelock.Client) {
		swap(c, "extend", "redis.call('GET', KEYS[i]) ~= ARGV[1]", "false")
	}},
	{"getSet", checkRefusalChangesNothing, func(c *cachelock.Client) {
		swap(c, "acquire", "redis.pcall('GET', lock)", "redis.call('GETSET', lock, ARGV[1])")
	}},
	{"getSet with the client's clock", checkNoClientClock, func(c *cachelock.Client) {
		cachelock.GetSetClock(c, time.Now)
	}},
	{"a client's clock that is ahead", checkHeldForAll, func(c *cachelock.Client) {
		cachelock.GetSetClock(c, func() time.Time { return time.Now().Add(time.Hour) })
	}},
	{"the client's clock in a queue", checkNoClientClock, cachelock.QueueLate},
	{"a number compared with a string, in the release", checkSuccessIsSeen, func(c *cachelock.Client) {
		swap(c, "release", "released = released + 1",
			"if redis.call('EXISTS', KEYS[i]) == '0' then released = released + 1 end")
	}},
	{"a number compared with a string, in the extension", checkSuccessIsSeen, func(c *cachelock.Client) {
		swap(c, "extend", "return 1", "if redis.call('EXISTS', KEYS[1]) == '1' then return 1 end return 0")
	}},
	{"searching all keys", checkCostIsConstant, func(c *cachelock.Client) {
		swap(c, "acquire", "local now =", "redis.call('KEYS', '*') local now =")
	}},
	{"a look at each lock", checkCostIsConstant, func(c *cachelock.Client) {
		swap(c, "acquire", "local now =",
			`for _, k in ipairs(redis.call('SCAN', 0, 'COUNT', 10000)[2]) do redis.call('PTTL', k) end
			local now =`)
	}},
	{"refused by one's own token", checkRepeatedRequest, func(c *cachelock.Client) {
		swap(c, "acquire", "if holder == ARGV[1] then", "if false then")
	}},
	{"entering the queue without looking again", checkQueueEntersAtOnce, cachelock.QueueLate},
}

// swap replaces a piece of a script, which has to be there.
func swap(c *cachelock.Client, script, old, mistaken string) {
	cachelock.ReplaceScripts(c, func(name, text string) string {
		if name != script {
			return text
		}
		if !strings.Contains(text, old) {
			panic("BUG: the script " + script + " has no " + old)
		}
		return strings.ReplaceAll(text, old, mistaken)
	})
}

func TestKnownMistakes(t *testing.T) {
	t.Parallel()
	for _, m := range mistakes {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			noticed(t, m.check, m.mistake)
		})
	}
}

// noticed requires that a check passes the package, and notices a mistake.
func noticed(t *testing.T, check func(t require.TestingT, b *bench), mistake func(c *cachelock.Client)) {
	t.Helper()
	check(t, newBench(t, nil))
	j, done := &judge{}, make(chan struct{})
	b := newBench(t, mistake)
	go func() {
		defer close(done)
		check(j, b)
	}()
	<-done
	require.True(t, j.failed, "the check does not notice the mistake")
	t.Log(strings.Join(strings.Fields(j.said), " "))
}

var everyDay = context.Background()

// A process that dies after any of its commands leaves no lock without an expiry.
func checkExpiryAtEachStep(t require.TestingT, b *bench) {
	var mu sync.Mutex // guards without: a waiter that gives up leaves the queue in the background
	var without []string
	b.watch.set(nil, func(redis.Cmder) {
		mu.Lock()
		defer mu.Unlock()
		for _, key := range b.admin.Keys(everyDay, "*").Val() {
			if !strings.HasSuffix(key, ":fence") && b.admin.PTTL(everyDay, key).Val() == -1 {
				without = append(without, key)
			}
		}
	})
	lock, err := b.c.Acquire(everyDay, "k", cachelock.LockOptions{TTL: time.Minute})
	require.NoError(t, err)
	require.NoError(t, lock.Extend(everyDay, time.Minute))
	waiting := cachelock.Policy{Retries: 2, Sleep: time.Millisecond, MaxSleep: 2 * time.Millisecond}
	_, err = b.c.Acquire(everyDay, "k", cachelock.LockOptions{Policy: waiting})
	require.ErrorIs(t, err, cachelock.ErrHeld)
	require.NoError(t, lock.Release(everyDay))
	b.watch.set(nil, nil)
	mu.Lock()
	defer mu.Unlock()
	require.Empty(t, without)
}

// takeOver gives the lock to another, as when it had expired and been taken.
func (b *bench) takeOver(key string) {
	b.admin.Set(everyDay, nameOf(key), "another", time.Minute)
}

func checkOthersLockStays(t require.TestingT, b *bench) {
	lock, err := b.c.Acquire(everyDay, "k", cachelock.LockOptions{})
	require.NoError(t, err)
	b.takeOver("k")
	err = lock.Release(everyDay)
	require.Equal(t, "another", b.admin.Get(everyDay, nameOf("k")).Val())
	require.ErrorIs(t, err, cachelock.ErrLost)
}

// The same when it happens between two commands of the release.
func checkOthersLockStaysBetween(t require.TestingT, b *bench) {
	warm, err := b.c.Acquire(everyDay, "warm", cachelock.LockOptions{}) // the scripts are known now
	require.NoError(t, err)
	require.NoError(t, warm.Release(everyDay))
	lock, err := b.c.Acquire(everyDay, "k", cachelock.LockOptions{})
	require.NoError(t, err)
	var once sync.Once
	b.watch.set(nil, func(redis.Cmder) { once.Do(func() { b.takeOver("k") }) })
	_ = lock.Release(everyDay)
	b.watch.set(nil, nil)
	require.Equal(t, "another", b.admin.Get(everyDay, nameOf("k")).Val())
}

func checkOthersLockIsNotExtended(t require.TestingT, b *bench) {
	lock, err := b.c.Acquire(everyDay, "k", cachelock.LockOptions{})
	require.NoError(t, err)
	b.takeOver("k")
	require.ErrorIs(t, lock.Extend(everyDay, time.Hour), cachelock.ErrLost)
	require.LessOrEqual(t, b.admin.PTTL(everyDay, nameOf("k")).Val(), time.Minute)
}

// A refused request changes neither the value nor the expiry of the lock.
func checkRefusalChangesNothing(t require.TestingT, b *bench) {
	lock, err := b.c.Acquire(everyDay, "k", cachelock.LockOptions{TTL: time.Minute})
	require.NoError(t, err)
	_, err = b.c.Acquire(everyDay, "k", cachelock.LockOptions{TTL: time.Hour})
	require.ErrorIs(t, err, cachelock.ErrHeld)
	require.Equal(t, lock.Token(), b.admin.Get(everyDay, nameOf("k")).Val())
	require.LessOrEqual(t, b.admin.PTTL(everyDay, nameOf("k")).Val(), time.Minute)
	require.NoError(t, lock.Release(everyDay))
}

// No command carries a time of day: whatever the clocks of the clients say, only the server's
// counts.
func checkNoClientClock(t require.TestingT, b *bench) {
	var mu sync.Mutex
	var times []string
	b.watch.set(func(cmd redis.Cmder) {
		mu.Lock()
		defer mu.Unlock()
		for _, arg := range cmd.Args() {
			if timeOfDay(arg) {
				times = append(times, fmt.Sprint(cmd.Name(), " ", arg))
			}
		}
	}, nil)
	lock, err := b.c.Acquire(everyDay, "k", cachelock.LockOptions{})
	require.NoError(t, err)
	policy := cachelock.Policy{Retries: 2, Sleep: time.Millisecond, MaxSleep: 2 * time.Millisecond}
	_, err = b.c.Acquire(everyDay, "k", cachelock.LockOptions{Policy: policy})
	require.ErrorIs(t, err, cachelock.ErrHeld)
	_ = lock.Extend(everyDay, time.Minute)
	_ = lock.Release(everyDay)
	mu.Lock()
	defer mu.Unlock()
	require.Empty(t, times)
}

// timeOfDay tells whether a number is a time of these years, in seconds down to nanoseconds.
func timeOfDay(arg any) bool {
	if text, ok := arg.(*string); ok {
		arg = *text
	}
	n, err := strconv.ParseFloat(fmt.Sprint(arg), 64)
	if err != nil {
		return false
	}
	now := float64(time.Now().Unix())
	for _, unit := range []float64{1, 1e3, 1e6, 1e9} {
		if n > now*unit*0.9 && n < now*unit*1.1 {
			return true
		}
	}
	return false
}

// A lock is held for all clients, also for one whose clock is ahead.
func checkHeldForAll(t require.TestingT, b *bench) {
	honest := cachelock.New(b.admin, cachelock.Options{Shards: 1})
	defer honest.Close()
	lock, err := honest.Acquire(everyDay, "k", cachelock.LockOptions{TTL: time.Minute})
	require.NoError(t, err)
	_, err = b.c.Acquire(everyDay, "k", cachelock.LockOptions{TTL: time.Minute})
	require.ErrorIs(t, err, cachelock.ErrHeld)
	require.NoError(t, lock.Release(everyDay))
}

func checkSuccessIsSeen(t require.TestingT, b *bench) {
	lock, err := b.c.Acquire(everyDay, "k", cachelock.LockOptions{})
	require.NoError(t, err)
	require.NoError(t, lock.Extend(everyDay, time.Minute))
	require.NoError(t, lock.Context().Err())
	require.NoError(t, lock.Release(everyDay))
}

// What a cycle costs the server does not depend on how many locks are held.
func checkCostIsConstant(t require.TestingT, b *bench) {
	cycle := func() map[string]int64 {
		before := b.server.Commands()
		lock, err := b.c.Acquire(everyDay, "k", cachelock.LockOptions{})
		require.NoError(t, err)
		require.NoError(t, lock.Release(everyDay))
		return less(b.server.Commands(), before)
	}
	cycle() // the scripts are known now
	few := cycle()
	for _, name := range []string{"keys", "scan", "hgetall", "smembers"} {
		require.Zero(t, few[name], name)
	}
	for i := range 500 {
		_, err := b.c.Acquire(everyDay, strconv.Itoa(i), cachelock.LockOptions{})
		require.NoError(t, err)
	}
	require.Equal(t, few, cycle())
}

// less returns how often each command has run between two counts.
func less(after, before map[string]int64) map[string]int64 {
	diff := map[string]int64{}
	for name, n := range after {
		if n -= before[name]; n != 0 && !strings.HasPrefix(name, "client") && name != "info" && name != "hello" {
			diff[name] = n
		}
	}
	return diff
}

// A request that is sent again, since its answer was lost, gets the lock that it has: also when
// others wait in line for it.
func checkRepeatedRequest(t require.TestingT, b *bench) {
	for _, fair := range []bool{false, true} {
		key := strconv.FormatBool(fair)
		first, err := cachelock.Attempt(everyDay, b.c, key, "token", "", time.Minute, fair)
		require.NoError(t, err)
		_, err = cachelock.Attempt(everyDay, b.c, key, "other", "waiter", time.Minute, fair)
		require.ErrorIs(t, err, cachelock.ErrHeld)
		again, err := cachelock.Attempt(everyDay, b.c, key, "token", "", time.Minute, fair)
		require.NoError(t, err)
		require.Greater(t, again, first)
	}
}

// A release between a look at the lock and the entry into its queue is not missed: there is nothing
// between the two.
func checkQueueEntersAtOnce(t require.TestingT, b *bench) {
	_, err := cachelock.Attempt(everyDay, b.c, "k", "token", "", time.Minute, false)
	require.NoError(t, err)
	var first sync.Once
	var queue []string
	b.watch.set(nil, func(redis.Cmder) {
		first.Do(func() { queue = b.admin.ZRange(everyDay, "cachelock:{0}:queue:k", 0, -1).Val() })
	})
	_, err = cachelock.Attempt(everyDay, b.c, "k", "other", "waiter", time.Minute, false)
	b.watch.set(nil, nil)
	require.ErrorIs(t, err, cachelock.ErrHeld)
	require.Equal(t, []string{"waiter"}, queue)
}
