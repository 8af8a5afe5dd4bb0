package cachelock

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// scripted is a store whose replies a test defines. It records requests, and the keys of the queues
// that waiters left.
type scripted struct {
	mu     sync.Mutex // guards the fields below
	reply  func(w lockRequest) error
	asked  []string // waiter names of the requests
	left   []string
	slow   time.Duration // duration of a request
	extend func(ctx context.Context, ttl time.Duration) error
}

var (
	_ store   = (*scripted)(nil)
	_ holding = (*scriptedHold)(nil)
)

func (s *scripted) acquire(_ context.Context, w lockRequest) (holding, int64, error) {
	s.mu.Lock()
	s.asked = append(s.asked, w.waiter)
	reply, slow := s.reply, s.slow
	s.mu.Unlock()
	time.Sleep(slow)
	if err := reply(w); err != nil {
		return nil, 0, err
	}
	return &scriptedHold{s}, 1, nil
}

// scriptedHold implements holding for a scripted store.
type scriptedHold struct{ *scripted }

func (h *scriptedHold) extend(ctx context.Context, ttl time.Duration) error {
	return h.scripted.extend(ctx, ttl)
}

func (s *scripted) leave(_ context.Context, key, waiter string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left = append(s.left, key)
	return nil
}

func (s *scripted) listen(context.Context) error      { return nil }
func (s *scripted) close() error                      { return nil }
func (s *scripted) releaseKeys(context.Context) error { return nil }

func (s *scripted) replies(reply func(w lockRequest) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reply = reply
}

// requests returns the number of requests since its last call.
func (s *scripted) requests() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.asked)
	s.asked = nil
	return n
}

func heldAlways(key string) func(lockRequest) error {
	return func(lockRequest) error { return heldBy(key, ":somebody", time.Hour) }
}

func free(lockRequest) error { return nil }

func newScripted(t *testing.T, o Options) (*Client, *scripted) {
	t.Helper()
	s := &scripted{reply: free}
	c := newClient(o)
	c.store = s
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c, s
}

// start starts an Acquire, and returns when Acquire waits or has returned.
func start(ctx context.Context, c *Client, key string, p Policy) chan error {
	done := make(chan error, 1)
	go func() {
		_, err := c.Acquire(ctx, key, LockOptions{TTL: time.Hour, Policy: p})
		done <- err
	}()
	synctest.Wait()
	return done
}

// TestManyAskOnce: of many concurrent calls for a held lock, one sends the first request, and one
// enters the queue.
func TestManyAskOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := newScripted(t, Options{Poll: time.Hour})
		s.replies(heldAlways("k"))
		s.slow = time.Millisecond
		var all []chan error
		for range 100 {
			all = append(all, start(t.Context(), c, "k", WaitFor(time.Minute)))
		}
		time.Sleep(time.Second)
		require.Equal(t, 2, s.requests()) // the first, and the one that enters the queue
		c.waitQueues.wake(queueKey{c.process, "k"})
		time.Sleep(time.Second)
		require.Equal(t, 1, s.requests())
		for _, done := range all {
			require.ErrorIs(t, <-done, ErrHeld)
		}
		synctest.Wait()
		require.Equal(t, []string{"k"}, s.left)
		require.Empty(t, c.waitQueues.m)
	})
}

// TestHeadGivesUp: if a head gives up at the moment of a notification, the next waiter acquires the
// lock without delay.
func TestHeadGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := newScripted(t, Options{Poll: time.Hour})
		s.replies(heldAlways("k"))
		ctx, cancel := context.WithCancel(t.Context())
		head := start(ctx, c, "k", WaitFor(time.Hour))
		next := start(t.Context(), c, "k", WaitFor(time.Hour))
		s.requests()
		s.replies(free)
		onMessage := time.Now()
		require.True(t, c.waitQueues.wake(queueKey{c.process, "k"})) // the notification and the cancellation coincide
		cancel()
		err := <-head
		require.True(t, err == nil || errors.Is(err, ErrCancelled), err)
		require.NoError(t, <-next)
		require.Zero(t, time.Since(onMessage))
		synctest.Wait()
		require.Empty(t, c.waitQueues.m)
	})
}

// TestComesWhileLeaving: a waiter that arrives while the last waiter before it leaves the queue in
// Redis enters that queue again afterwards.
func TestComesWhileLeaving(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := newScripted(t, Options{Poll: time.Hour})
		s.replies(heldAlways("k"))
		require.ErrorIs(t, <-start(t.Context(), c, "k", WaitFor(time.Second)), ErrHeld)
		synctest.Wait()
		slow := &slowLeave{scripted: s, free: make(chan struct{})}
		c.store = slow
		require.ErrorIs(t, <-start(t.Context(), c, "k", WaitFor(time.Second)), ErrHeld)
		done := start(t.Context(), c, "k", WaitFor(time.Minute)) // enters before the other waiter has left
		s.requests()
		close(slow.free)
		synctest.Wait()
		require.Equal(t, 1, s.requests())
		require.ErrorIs(t, <-done, ErrHeld)
	})
}

type slowLeave struct {
	*scripted
	free chan struct{}
}

func (s *slowLeave) leave(ctx context.Context, key, waiter string) error {
	<-s.free
	return s.scripted.leave(ctx, key, waiter)
}

// TestMovesBetweenQueues: a waiter for several locks moves to the wait queue of the lock that is in
// the way, and leaves each queue that it has entered.
func TestMovesBetweenQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := newScripted(t, Options{Poll: time.Hour})
		s.replies(heldAlways("b"))
		done := make(chan error, 1)
		go func() {
			_, err := c.AcquireAll(t.Context(), []string{"a", "b", "c"},
				LockOptions{TTL: time.Hour, Policy: WaitFor(time.Minute)})
			done <- err
		}()
		synctest.Wait()
		require.Equal(t, 2, s.requests())
		require.False(t, c.waitQueues.wake(queueKey{c.process, "a"}))
		s.replies(heldAlways("c"))
		require.True(t, c.waitQueues.wake(queueKey{c.process, "b"}))
		synctest.Wait()
		require.Equal(t, 2, s.requests()) // one whose reply names c, and one that enters its queue
		require.Equal(t, []string{"b"}, s.left)
		require.True(t, c.waitQueues.wake(queueKey{c.process, "c"}))
		synctest.Wait()
		s.replies(heldAlways("a")) // for the last attempt
		require.ErrorIs(t, <-done, ErrHeld)
		synctest.Wait()
		slices.Sort(s.left)
		require.Equal(t, []string{"a", "b", "c"}, s.left)
		require.Empty(t, c.waitQueues.m)
	})
}

// TestFailureIsShared: an unavailable Redis fails all waiters. A reply that is too late for one
// waiter fails only that waiter.
func TestFailureIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := newScripted(t, Options{Poll: time.Hour})
		s.replies(heldAlways("k"))
		var all []chan error
		for range 3 {
			all = append(all, start(t.Context(), c, "k", WaitFor(time.Hour)))
		}
		s.requests()
		s.replies(func(lockRequest) error { return failed(t.Context(), "acquire", errors.New("gone")) })
		c.waitQueues.wake(queueKey{c.process, "k"})
		for _, done := range all {
			require.ErrorIs(t, <-done, ErrUnreachable)
		}
		require.Equal(t, 1, s.requests())

		s.replies(heldAlways("k"))
		late := start(t.Context(), c, "k", WaitFor(time.Hour))
		next := start(t.Context(), c, "k", WaitFor(time.Hour))
		s.replies(func(lockRequest) error { time.Sleep(2 * time.Hour); return nil })
		c.waitQueues.wake(queueKey{c.process, "k"})
		synctest.Wait()
		s.replies(free)
		require.ErrorIs(t, <-late, errLate)
		require.ErrorIs(t, <-next, ErrHeld) // the time of its policy is over
	})
}

// TestLooksAtExpiry: a waiter checks the lock again when it expires, or at the next poll if that is
// sooner or the expiry is unknown. Polls are random, so that the processes that wait for a lock do
// not check it at the same time.
func TestLooksAtExpiry(t *testing.T) {
	c := newClient(Options{Poll: time.Second})
	for ttl, want := range map[time.Duration][2]time.Duration{
		time.Millisecond:       {2 * time.Millisecond, 3 * time.Millisecond},
		500 * time.Millisecond: {501 * time.Millisecond, 510 * time.Millisecond},
		time.Hour:              {time.Second, 1500 * time.Millisecond},
		0:                      {time.Second, 1500 * time.Millisecond},
	} {
		delays := map[time.Duration]bool{}
		for range 100 {
			look := c.pollDelay(heldBy("k", ":somebody", ttl))
			require.GreaterOrEqual(t, look, want[0], ttl)
			require.LessOrEqual(t, look, want[1], ttl)
			delays[look] = true
		}
		require.Greater(t, len(delays), 1, "%v", ttl)
	}
}
