// Package locktest is the conformance suite of cachelock for all implementations of its locks.
//
//	func TestRedis(t *testing.T) {
//		locktest.Run(t, locktest.Implementation{
//			New: func(t *testing.T) locktest.Open {
//				return func(o cachelock.Options) *cachelock.Client {
//					o.Prefix = t.Name()
//					return cachelock.New(rdb, o)
//				}
//			},
//		})
//	}
package locktest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"fastdfs-gateway/cachelock"

	"github.com/stretchr/testify/require"
)

// Open returns a new client of the same locks, like the client of another process. The suite closes
// it.
type Open func(o cachelock.Options) *cachelock.Client

// Implementation describes an implementation to test.
type Implementation struct {
	// New returns the Open for the locks of one test. These locks are free.
	New func(t *testing.T) Open
	// NoFences is true if the fence is always 0.
	NoFences bool
	// Afterwards is true if some nodes execute a release after Release has returned. For a moment
	// such a lock may still be rejected.
	Afterwards bool
	// NoFair is true if fair locks are rejected.
	NoFair bool
	// Queued returns the number of names in the queue of a fair lock; nil if NoFair.
	Queued func(t *testing.T, key string) int
}

// Run runs the suite.
func Run(t *testing.T, impl Implementation) {
	for name, test := range tests {
		if impl.NoFair && strings.HasPrefix(name, "Fair") || impl.NoFences && strings.HasPrefix(name, "Fence") {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(newSuite(t, impl))
		})
	}
}

// tests are the tests of the suite by name.
var tests = map[string]func(s *suite){
	"Rejected":          testRejected,
	"OwnerReleases":     testOwnerReleases,
	"Expiry":            testExpiry,
	"Extend":            testExtend,
	"Renew":             testRenew,
	"ReleasedTwice":     testReleasedTwice,
	"Context":           testContext,
	"FenceRises":        testFenceRises,
	"Keys":              testKeys,
	"Invalid":           testInvalid,
	"Closed":            testClosed,
	"Retry":             testRetry,
	"WaitFor":           testWaitFor,
	"Cancelled":         testCancelled,
	"WokenByRelease":    testWokenByRelease,
	"ManyWaiters":       testManyWaiters,
	"PassedOn":          testPassedOn,
	"Reentrant":         testReentrant,
	"ReentrantExtend":   testReentrantExtend,
	"ReentrantExpiry":   testReentrantExpiry,
	"ReentrantWaited":   testReentrantWaited,
	"FairOrder":         testFairOrder,
	"FairGivenUp":       testFairGivenUp,
	"AllOrNothing":      testAllOrNothing,
	"AllCrossing":       testAllCrossing,
	"AllWaits":          testAllWaits,
	"AllExtended":       testAllExtended,
	"Guard":             testGuard,
	"GuardLost":         testGuardLost,
	"GuardPanics":       testGuardPanics,
	"GuardKeyTemplates": testGuardKeyTemplates,
}

const (
	// short is the ttl of locks that expire in a test. No test depends on a step that ends before
	// such an expiry.
	short = 400 * time.Millisecond
	// renewed is the ttl of renewed locks. Such a lock is lost only if the machine stalls for two
	// thirds of its ttl.
	renewed = 6 * time.Second
	// long is a time that no test reaches.
	long = 5 * time.Minute
	// soon is far below long, and enough for any step on a slow machine.
	soon = time.Minute
)

// suite is the state of one test.
type suite struct {
	*testing.T
	impl Implementation
	open Open
	ctx  context.Context
	key  string
	// returning is true if a free lock may be rejected for a moment, because it is released in the
	// background.
	returning bool
}

func newSuite(t *testing.T, impl Implementation) *suite {
	return &suite{
		T: t, impl: impl, open: impl.New(t), ctx: context.Background(), key: t.Name(), returning: impl.Afterwards,
	}
}

// client opens a client with a poll interval that no test reaches: its waiters depend on
// notifications.
func (s *suite) client() *cachelock.Client {
	s.Helper()
	return s.with(cachelock.Options{Poll: long})
}

func (s *suite) with(o cachelock.Options) *cachelock.Client {
	s.Helper()
	c := s.open(o)
	s.Cleanup(func() { require.NoError(s, c.Close()) })
	return c
}

func (s *suite) acquire(c cachelock.Locker, o cachelock.LockOptions) *cachelock.Lock {
	s.Helper()
	lock, err := c.Acquire(s.ctx, s.key, o)
	for start := time.Now(); s.returning && errors.Is(err, cachelock.ErrHeld) && time.Since(start) < soon; {
		time.Sleep(10 * time.Millisecond)
		lock, err = c.Acquire(s.ctx, s.key, o)
	}
	require.NoError(s, err)
	return lock
}

// brief acquires a lock with the ttl short, and returns the lock and the time of the request. It
// tries again if the machine stalls until the lock has expired.
func (s *suite) brief(c cachelock.Locker, o cachelock.LockOptions) (lock *cachelock.Lock, asked time.Time) {
	s.Helper()
	o.TTL, o.Policy = short, cachelock.WaitFor(soon)
	for {
		asked = time.Now()
		lock, err := c.Acquire(s.ctx, s.key, o)
		if !s.late(err, asked) {
			require.NoError(s, err)
			return lock, asked
		}
	}
}

// late reports whether an acquisition of a short lock failed because the machine stalled. Such a
// lock is released in the background, so late also sets returning.
func (s *suite) late(err error, asked time.Time) bool {
	if !errors.Is(err, cachelock.ErrUnreachable) || time.Since(asked) < short/2 {
		return false
	}
	s.returning = true
	return true
}

func (s *suite) releaseLock(lock *cachelock.Lock) {
	s.Helper()
	require.NoError(s, lock.Release(s.ctx))
}

// held requires that the lock cannot be acquired, and returns the error.
func (s *suite) held(c cachelock.Locker) *cachelock.HeldError {
	s.Helper()
	_, err := c.Acquire(s.ctx, s.key, cachelock.LockOptions{})
	require.ErrorIs(s, err, cachelock.ErrHeld)
	var held *cachelock.HeldError
	require.ErrorAs(s, err, &held)
	return held
}

// lasts requires that other clients see a remaining time of more than least. If Afterwards, it
// waits for that.
func (s *suite) lasts(c cachelock.Locker, least time.Duration) {
	s.Helper()
	left := s.held(c).TTL
	for start := time.Now(); s.impl.Afterwards && left <= least && time.Since(start) < soon; left = s.held(c).TTL {
		time.Sleep(10 * time.Millisecond)
	}
	require.Greater(s, left, least)
}

// free requires that the lock can be acquired.
func (s *suite) free(c cachelock.Locker) {
	s.Helper()
	s.releaseLock(s.acquire(c, cachelock.LockOptions{}))
}

// ended requires that the lock expires and its context ends.
func (s *suite) ended(lock *cachelock.Lock) {
	s.Helper()
	select {
	case <-lock.Context().Done():
	case <-time.After(soon):
		s.Fatal("the lock's context does not end")
	}
	require.ErrorIs(s, context.Cause(lock.Context()), cachelock.ErrLost)
}

// waits starts a waiter for the lock, and gives it time to enter the queue.
func (s *suite) waits(c cachelock.Locker, o cachelock.LockOptions) <-chan taken {
	s.Helper()
	got := make(chan taken, 1)
	ctx, key := s.ctx, s.key
	go func() {
		lock, err := c.Acquire(ctx, key, o)
		got <- taken{lock, err}
	}()
	s.settle()
	return got
}

// settle gives background work time to finish.
func (s *suite) settle() {
	time.Sleep(50 * time.Millisecond) // the assertions hold even if this time is too short
}

// taken is the result of an Acquire.
type taken struct {
	lock *cachelock.Lock
	err  error
}

// within returns the result of an Acquire. The test fails if Acquire does not return soon.
func (s *suite) within(got <-chan taken) taken {
	s.Helper()
	select {
	case one := <-got:
		return one
	case <-time.After(soon):
		s.Fatal("whoever waits for the lock is not told")
		return taken{}
	}
}

// got returns the lock of a successful Acquire.
func (s *suite) got(got <-chan taken) *cachelock.Lock {
	s.Helper()
	one := s.within(got)
	require.NoError(s, one.err)
	return one.lock
}

// heldError returns err as a *HeldError if it is one.
func heldError(err error) (*cachelock.HeldError, bool) {
	var held *cachelock.HeldError
	ok := errors.As(err, &held)
	return held, ok
}
