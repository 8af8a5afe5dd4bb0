package fleet

import (
	"context"
	"errors"
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

// TestLateLease: the first gateway in rank goes on without a lease that does not come in time. The
// lease is released when it comes.
func TestLateLease(t *testing.T) {
	t.Parallel()
	relay, far, near := hurried(t)
	relay.Hang()
	_, _, err := far.AcquireLease(t.Context(), "key", true)
	require.ErrorIs(t, err, cache.ErrFleetDown)
	require.ErrorIs(t, err, errLateLease)
	relay.Restore()
	ctx, cancel := context.WithTimeout(t.Context(), far.o.LockTTL/2) // before it would expire
	defer cancel()
	require.NoError(t, near.waitForLease(ctx, LockInfo{Key: "key"}))
	lead(t, near, "key").release()
	require.Empty(t, far.Locks())
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
		b.lives.ofPeer(a.Name()).noteFailure()
		var held *cache.Held
		require.ErrorAs(t, leaseRejected(t, b, "key"), &held)
		waited := make(chan error, 1)
		go func() { waited <- held.Wait(t.Context()) }()
		end(lease)
		require.NoError(t, <-waited)
	}
	wait(func(l leaseOf) { l.release() })
	require.True(t, b.lives.ofPeer(a.Name()).mayAsk())

	eventually.True(t, func() bool { // a reply after the ttl is an error
		_, err := a.locks.Acquire(t.Context(), "old", cachelock.LockOptions{TTL: 300 * time.Millisecond})
		return err == nil
	})
	b.lives.ofPeer(a.Name()).noteFailure()
	require.NoError(t, b.awaitRelease(t.Context(), a.Name(), LockInfo{Key: "old", TTL: time.Millisecond}))
	require.False(t, b.lives.ofPeer(a.Name()).mayAsk())
}
