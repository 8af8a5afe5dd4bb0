package fleet

import (
	"context"
	"errors"
	"maps"
	"testing"
	"time"

	"fastdfs-gateway/cachelock"
	"fastdfs-gateway/internal/cache"
	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/internal/testing/redistest"

	"github.com/stretchr/testify/require"
)

// hurried returns a fleet of two gateways. far reaches Redis by a relay and does not wait for
// leases; near reaches Redis directly.
func hurried(t *testing.T) (relay *redistest.Relay, far, near *Fleet) {
	server := redistest.Shared(t)
	o := fleetOf(server.Addr())
	relay = redistest.NewRelay(t, server.Addr())
	throughRelay := o
	throughRelay.Addresses = []string{relay.Addr()}
	far, near = member(t, throughRelay, 1), member(t, o, 2)
	know(far, near)
	lead(t, far, "another key").release() // opens a connection to Redis
	far.leadTimeout = time.Millisecond
	return relay, far, near
}

// kept returns the late requests for leases, by key.
func kept(f *Fleet) map[string]*leaseRequest {
	f.late.mu.Lock()
	defer f.late.mu.Unlock()
	return maps.Clone(f.late.byKey)
}

// TestLateLease: a lease that arrives after its fill has gone on without it is held until the fill
// ends.
func TestLateLease(t *testing.T) {
	t.Parallel()
	relay, far, near := hurried(t)
	relay.Hang()
	fill, end := context.WithCancel(t.Context())
	_, _, err := far.AcquireLease(fill, "key", true)
	require.ErrorIs(t, err, cache.ErrFleetDown)
	require.ErrorIs(t, err, errLateLease)
	relay.Restore()
	eventually.True(t, func() bool { return len(far.Locks()) == 1 }, "the lease has come")
	heldBy(t, leaseRejected(t, near, "key"), "https://10.0.0.1:8887")
	require.EqualValues(t, 2, far.Stats().Acquired)

	waited := make(chan error, 1)
	go func() { waited <- near.wait(t.Context(), LockInfo{Key: "key"}) }()
	end()
	require.NoError(t, <-waited)
	lead(t, near, "key").release()
	require.Empty(t, far.Locks())
}

// TestLateLeaseOfNextAttempt: the next attempt of a fill gets the late lease, and releases it.
func TestLateLeaseOfNextAttempt(t *testing.T) {
	t.Parallel()
	for name, isThere := range map[string]bool{"it has come": true, "it has not come": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			relay, far, near := hurried(t)
			relay.Hang()
			fill, end := context.WithCancel(t.Context())
			_, _, err := far.AcquireLease(fill, "key", true)
			require.ErrorIs(t, err, errLateLease)
			if isThere {
				relay.Restore()
				eventually.True(t, func() bool { return len(far.Locks()) == 1 }, "the lease has come")
			} else {
				time.AfterFunc(50*time.Millisecond, relay.Restore)
			}
			far.leadTimeout = testTimeout
			lease := lead(t, far, "key")
			end() // of the earlier attempt: nothing is released
			require.NoError(t, lease.Err())
			heldBy(t, leaseRejected(t, near, "key"), "https://10.0.0.1:8887")
			require.EqualValues(t, 2, far.Stats().Acquired, "one was asked for")
			lease.release()
			lead(t, near, "key").release()
		})
	}
}

// TestLateRejection: a late reply that another gateway has the lease is discarded: the next attempt
// sends a new request.
func TestLateRejection(t *testing.T) {
	t.Parallel()
	relay, far, near := hurried(t)
	lease := lead(t, near, "key")
	relay.Hang()
	_, _, err := far.AcquireLease(t.Context(), "key", true)
	require.ErrorIs(t, err, errLateLease)
	request := kept(far)["key"]
	relay.Restore()
	<-request.done
	lease.release()
	far.leadTimeout = testTimeout
	lead(t, far, "key").release()
}

// TestTwoFillsWaitForOneLease: after a purge, a fill goes on for its readers while the next one
// begins. Each of their late requests ends with its own fill.
func TestTwoFillsWaitForOneLease(t *testing.T) {
	t.Parallel()
	relay, far, near := hurried(t)
	relay.Hang()
	var ends []func()
	for range 2 {
		fill, end := context.WithCancel(t.Context())
		ends = append(ends, end)
		far.late.keep(fill, "key", far.requestLease(fill, "key", far.self.Load()))
	}
	relay.Restore()
	eventually.True(t, func() bool { return len(far.Locks()) == 1 }, "one of them has the lease")
	ends[0]()
	ends[1]()
	require.NoError(t, near.wait(t.Context(), LockInfo{Key: "key"}))
	eventually.True(t, func() bool { return len(kept(far)) == 0 }, "none is kept")
}

// TestPatientLease: a gateway that is not the first in rank waits for Redis: it has sent requests
// to other gateways before, which may be fetching the entry.
func TestPatientLease(t *testing.T) {
	t.Parallel()
	relay, far, near := hurried(t)
	lease := lead(t, near, "key")
	defer lease.release()
	relay.Delay(100 * time.Millisecond)
	_, _, err := far.AcquireLease(t.Context(), "key", false)
	var held *cache.Held
	require.True(t, errors.As(err, &held), "%v", err)
}

// TestReleaseProvesLife: the release of a lease ends the back-off of its gateway; the expiry of a
// lease does not.
func TestReleaseProvesLife(t *testing.T) {
	t.Parallel()
	_, a, b := hurried(t)
	wait := func(end func(leaseOf)) {
		a.leadTimeout = testTimeout
		lease := lead(t, a, "key")
		b.backoff.Fail(a.Name())
		var held *cache.Held
		require.ErrorAs(t, leaseRejected(t, b, "key"), &held)
		waited := make(chan error, 1)
		go func() { waited <- held.Wait(t.Context()) }()
		end(lease)
		require.NoError(t, <-waited)
	}
	wait(func(l leaseOf) { l.release() })
	require.True(t, b.backoff.Allow(a.Name()))

	_, err := a.locks.Acquire(t.Context(), "old", cachelock.LockOptions{TTL: 300 * time.Millisecond})
	require.NoError(t, err)
	b.backoff.Fail(a.Name())
	require.NoError(t, b.awaitRelease(t.Context(), a.Name(), LockInfo{Key: "old", TTL: time.Millisecond}))
	require.False(t, b.backoff.Allow(a.Name()))
}
