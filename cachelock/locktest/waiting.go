package locktest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"fastdfs-gateway/cachelock"

	"github.com/stretchr/testify/require"
)

// testRetry: a policy with n retries sleeps n times. Then the error names the holder of the lock.
func testRetry(s *suite) {
	c := s.with(cachelock.Options{Poll: long, Holder: "somebody"})
	lock := s.acquire(c, cachelock.LockOptions{TTL: time.Minute})
	policy := cachelock.Retry(4)
	policy.Sleep, policy.MaxSleep = 20*time.Millisecond, 30*time.Millisecond
	start := time.Now()
	_, err := s.client().Acquire(s.ctx, s.key, cachelock.LockOptions{Policy: policy})
	require.GreaterOrEqual(s, time.Since(start), 4*policy.Sleep)
	held, ok := heldError(err)
	require.True(s, ok, err)
	require.Equal(s, "somebody", held.Holder)
	s.releaseLock(lock)
}

// testWaitFor: a policy with a time ends after that time, for the head of the wait queue and for
// the waiters behind it. Both errors describe the lock and its holder.
func testWaitFor(s *suite) {
	c := s.with(cachelock.Options{Poll: long, Holder: "somebody"})
	lock := s.acquire(c, cachelock.LockOptions{TTL: time.Minute})
	b, start := s.client(), time.Now()
	// The head has received the name of the holder before the time of the second waiter ends.
	const waitBudget = 2 * time.Second
	first := s.waits(b, cachelock.LockOptions{Policy: cachelock.WaitFor(waitBudget + short)})
	second := s.waits(b, cachelock.LockOptions{Policy: cachelock.WaitFor(waitBudget)})
	for _, got := range []<-chan taken{second, first} {
		held, ok := heldError(s.within(got).err)
		require.True(s, ok)
		require.Equal(s, s.key, held.Key)
		require.Equal(s, "somebody", held.Holder)
		require.Greater(s, held.TTL, time.Duration(0))
	}
	require.GreaterOrEqual(s, time.Since(start), waitBudget+short)
	s.releaseLock(lock)
}

// testCancelled: a waiter stops when its context ends. The error wraps the error of the context,
// but not its cause, which may be the loss of another lock.
func testCancelled(s *suite) {
	c := s.client()
	lock := s.acquire(c, cachelock.LockOptions{})
	ctx, cancel := context.WithCancelCause(s.ctx)
	s.ctx = ctx
	got := s.waits(c, cachelock.LockOptions{Policy: cachelock.WaitFor(long)})
	cancel(cachelock.ErrLost) // of another lock
	err := s.within(got).err
	require.ErrorIs(s, err, cachelock.ErrCancelled)
	require.ErrorIs(s, err, context.Canceled)
	require.NotErrorIs(s, err, cachelock.ErrLost)
	require.NotErrorIs(s, err, cachelock.ErrHeld)
	_, err = c.Acquire(ctx, "another", cachelock.LockOptions{})
	require.ErrorIs(s, err, cachelock.ErrCancelled)

	ctx, stop := context.WithTimeout(context.Background(), short)
	defer stop()
	_, err = c.Acquire(ctx, s.key, cachelock.LockOptions{Policy: cachelock.WaitFor(long)})
	require.ErrorIs(s, err, cachelock.ErrCancelled)
	require.ErrorIs(s, err, context.DeadlineExceeded)
	s.ctx = context.Background()
	s.releaseLock(lock)
}

// testWokenByRelease: a release wakes a waiter under each policy. No client polls here, and sleeps
// take minutes.
func testWokenByRelease(s *suite) {
	a, b := s.client(), s.client()
	sleepy := cachelock.Policy{Retries: 3, Sleep: long, MaxSleep: 2 * long}
	for _, policy := range []cachelock.Policy{cachelock.WaitFor(long), sleepy} {
		lock := s.acquire(a, cachelock.LockOptions{TTL: 2 * long})
		got := s.waits(b, cachelock.LockOptions{Policy: policy})
		s.releaseLock(lock)
		s.releaseLock(s.got(got))
	}
}

// testManyWaiters: many waiters in two processes acquire the lock one after the other, each once.
func testManyWaiters(s *suite) {
	const waiters = 60
	clients := []*cachelock.Client{s.client(), s.client()}
	first := s.acquire(clients[0], cachelock.LockOptions{TTL: long})
	var inside, served atomic.Int64
	var all sync.WaitGroup
	errs := make(chan error, waiters)
	for i := range waiters {
		all.Go(func() {
			lock, err := clients[i%2].Acquire(s.ctx, s.key,
				cachelock.LockOptions{TTL: long, Policy: cachelock.WaitFor(long)})
			if err != nil {
				errs <- err
				return
			}
			if inside.Add(1) != 1 {
				errs <- errors.New("two have the lock")
			}
			served.Add(1)
			inside.Add(-1)
			if err := lock.Release(s.ctx); err != nil {
				errs <- err
			}
		})
	}
	s.settle()
	s.releaseLock(first)
	all.Wait()
	close(errs)
	for err := range errs {
		require.NoError(s, err)
	}
	require.EqualValues(s, waiters, served.Load())
}

// testPassedOn: a notification for a waiter that is giving up is passed on to the next waiter.
func testPassedOn(s *suite) {
	a, b, other := s.client(), s.client(), s.client()
	for range 4 {
		lock := s.acquire(a, cachelock.LockOptions{TTL: 2 * long})
		ctx, cancel := context.WithCancel(context.Background())
		s.ctx = ctx
		impatient := s.waits(b, cachelock.LockOptions{Policy: cachelock.WaitFor(long)})
		s.ctx = context.Background()
		same := s.waits(b, cachelock.LockOptions{Policy: cachelock.WaitFor(long)})
		elsewhere := s.waits(other, cachelock.LockOptions{Policy: cachelock.WaitFor(long)})
		go cancel()
		s.releaseLock(lock)
		if one := s.within(impatient); one.err == nil {
			s.releaseLock(one.lock)
		} else {
			require.ErrorIs(s, one.err, cachelock.ErrCancelled)
		}
		for range 2 {
			select {
			case one := <-same:
				require.NoError(s, one.err)
				s.releaseLock(one.lock)
			case one := <-elsewhere:
				require.NoError(s, one.err)
				s.releaseLock(one.lock)
			case <-time.After(soon):
				s.Fatal("the word of the release is lost")
			}
		}
		cancel()
	}
}
