package cachelock

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/internal/testing/redistest"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// seldom has a poll interval that no test reaches: waiters of such a client depend on
// notifications.
var seldom = Options{Poll: time.Hour, TTL: time.Hour}

// patient has a policy that waits as long as a test may take.
var patient = LockOptions{Policy: WaitFor(5 * time.Minute)}

// twoFolders returns the folders of two clients with one namespace.
func twoFolders(t *testing.T) (a, b *Folders) {
	o := seldom
	o.Prefix = t.Name() + randomHex()
	rdb := redistest.Shared(t).Client()
	return testFolders(t, New(rdb, o)), testFolders(t, New(rdb, o))
}

// waiting returns the number of wait queues of f in this process that have entered the queue in
// Redis.
func waiting(f *Folders) (n int) {
	f.c.waitQueues.mu.Lock()
	defer f.c.waitQueues.mu.Unlock()
	for name, queue := range f.c.waitQueues.m {
		if strings.HasPrefix(name.key, folderQueuePrefix+f.namespace+"\x00") && queue.state == entered {
			n++
		}
	}
	return n
}

// untilWaiting waits until that number of wait queues have entered the queue in Redis.
func untilWaiting(t *testing.T, f *Folders, waitQueues int) {
	t.Helper()
	eventually.True(t, func() bool { return waiting(f) == waitQueues })
}

func mustAcquire(t *testing.T, f *Folders, path string, mode Mode, o LockOptions) *Lock {
	t.Helper()
	l, err := f.Acquire(context.Background(), path, mode, o)
	require.NoError(t, err)
	return l
}

// TestFolderWoken: a waiter for a path is notified when the lock in its way is released, above it,
// below it or on it.
func TestFolderWoken(t *testing.T) {
	t.Parallel()
	a, b := twoFolders(t)
	for _, held := range []string{"/", "p", "p/q", "p/q/r"} {
		l := mustAcquire(t, a, held, Exclusive, LockOptions{})
		got := make(chan error, 1)
		go func() {
			mine, err := b.Acquire(context.Background(), "p/q", Shared, patient)
			if err == nil {
				err = mine.Release(context.Background())
			}
			got <- err
		}()
		untilWaiting(t, b, 1)
		require.NoError(t, l.Release(context.Background()))
		require.NoError(t, <-got, held)
		require.Zero(t, waiting(b))
	}
}

// TestFolderWokenByOperations: the release of an operation with two paths notifies the waiters for
// each path.
func TestFolderWokenByOperations(t *testing.T) {
	t.Parallel()
	a, b := twoFolders(t)
	l, err := a.Begin(t.Context(), OpMoveDir, "from/dir", "to", LockOptions{})
	require.NoError(t, err)
	var all sync.WaitGroup
	for _, path := range []string{"from", "from/dir/x", "to/y"} {
		all.Go(func() {
			mine, err := b.Begin(context.Background(), OpUpload, path, "", patient)
			if err == nil {
				err = mine.Release(context.Background())
			}
			if err != nil {
				t.Errorf("%s: %v", path, err)
			}
		})
	}
	untilWaiting(t, b, 3)
	require.NoError(t, l.Release(t.Context()))
	all.Wait()
}

// TestFolderNotDisturbed: a release of a path that does not overlap makes no waiter send a request.
func TestFolderNotDisturbed(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client()
	a, b := testFolders(t, New(rdb, seldom)), testFolders(t, New(rdb, seldom))
	l := mustAcquire(t, a, "p/q/r", Exclusive, LockOptions{})
	got := make(chan error, 1)
	go func() {
		_, err := b.Acquire(context.Background(), "p/q", Exclusive, patient)
		got <- err
	}()
	for server.Commands()["zremrangebyscore"] == 0 { // until the waiter has sent a request
		time.Sleep(time.Millisecond)
	}
	before := server.Commands()
	for i := range 20 {
		other := mustAcquire(t, a, "p/qq/"+strconv.Itoa(i), Exclusive, LockOptions{})
		require.NoError(t, other.Release(t.Context()))
	}
	require.NoError(t, l.Release(t.Context()))
	require.NoError(t, <-got)
	after := server.Commands()
	require.EqualValues(t, 20, after["publish"]-before["publish"]-1, "the process is told")
	require.EqualValues(t, 20*2+1+1, after["evalsha"]-before["evalsha"], "and nobody asks but for the last release")
}

// TestFolderPollsDiffer: a waiter with a short poll interval does not make the set of waiting
// processes expire sooner for processes with longer ones.
func TestFolderPollsDiffer(t *testing.T) {
	t.Parallel()
	a, b := twoFolders(t)
	hasty := testFolders(t, New(a.rdb, Options{Prefix: a.c.o.Prefix, Poll: 10 * time.Millisecond}))
	l := mustAcquire(t, a, "p", Exclusive, LockOptions{})
	got := make(chan error, 1)
	go func() {
		_, err := b.Acquire(context.Background(), "p/q", Exclusive, patient)
		got <- err
	}()
	untilWaiting(t, b, 1)
	_, err := hasty.Acquire(t.Context(), "p/r", Exclusive, LockOptions{Policy: WaitFor(100 * time.Millisecond)})
	require.ErrorIs(t, err, ErrHeld)
	require.Greater(t, a.rdb.PTTL(t.Context(), a.keys[4]).Val(), time.Hour)
	require.NoError(t, l.Release(t.Context()))
	require.NoError(t, <-got)
}

// TestFolderGivesUp: the error of a waiter that gives up names the held path, or its own path if no
// reply has named another one.
func TestFolderGivesUp(t *testing.T) {
	t.Parallel()
	a, b := twoFolders(t)
	l := mustAcquire(t, a, "p/q", Exclusive, LockOptions{})
	var all sync.WaitGroup
	for range 5 { // one of them is the head of the wait queue
		all.Go(func() {
			_, err := b.Acquire(context.Background(), "p", Exclusive,
				LockOptions{Policy: WaitFor(30 * time.Millisecond)})
			held := (*HeldError)(nil)
			if !errors.As(err, &held) || held.Key != "p/q" && held.Key != "p" {
				t.Errorf("%v", err)
			}
		})
	}
	all.Wait()
	require.NoError(t, l.Release(t.Context()))
}

func TestFolderHeldError(t *testing.T) {
	f := newFolders(t)
	require.Equal(t, "/", mustAcquire(t, f, "/", Shared, LockOptions{TTL: time.Minute}).Key())
	require.Equal(t, "a/b", mustAcquire(t, f, "/a/b/", Shared, LockOptions{}).Key())
	_, err := f.Acquire(t.Context(), "a/b/", Exclusive, LockOptions{})
	held := (*HeldError)(nil)
	require.ErrorAs(t, err, &held)
	require.Equal(t, "/", held.Key)
	require.Equal(t, f.c.o.Holder, held.Holder)
	require.Less(t, 30*time.Second, held.TTL)
	require.LessOrEqual(t, held.TTL, time.Minute)
}

func TestFolderNamespaces(t *testing.T) {
	f := newFolders(t)
	same, err := f.c.Folders("project")
	require.NoError(t, err)
	other, err := f.c.Folders("other")
	require.NoError(t, err)
	mustAcquire(t, f, "a", Exclusive, LockOptions{})
	_, err = same.Acquire(t.Context(), "a", Exclusive, LockOptions{})
	require.ErrorIs(t, err, ErrHeld)
	mustAcquire(t, other, "a", Exclusive, LockOptions{})
	_, err = f.c.Acquire(t.Context(), "a", LockOptions{})
	require.NoError(t, err, "a lock that is no folder's")
}

func TestFolderRejects(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{})
	defer rdb.Close()
	c := New(rdb, Options{})
	f := testFolders(t, c)
	for _, namespace := range []string{"", "a\x00b"} {
		_, err := c.Folders(namespace)
		require.ErrorIs(t, err, ErrInvalid)
	}
	redlock := NewRedlock(nil, Options{})
	defer redlock.Close()
	_, err := redlock.Folders("project")
	require.ErrorIs(t, err, ErrInvalid)
	for _, o := range []LockOptions{{Owner: "me"}, {Fair: true}, {TTL: time.Millisecond}} {
		_, err := f.Acquire(t.Context(), "a", Exclusive, o)
		require.ErrorIs(t, err, ErrInvalid)
	}
	_, err = f.Acquire(t.Context(), "a", 0, LockOptions{})
	require.ErrorIs(t, err, ErrInvalid)
	_, err = f.Acquire(t.Context(), "a//b", Shared, LockOptions{})
	require.ErrorIs(t, err, ErrInvalid)
}
