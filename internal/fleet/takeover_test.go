package fleet

import (
	"strings"
	"testing"
	"time"

	"fastdfs-gateway/internal/cache"
	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/internal/testing/redistest"

	"github.com/stretchr/testify/require"
)

// leaseFromBefore writes a lease of a gateway from before a restart, and returns its value.
func leaseFromBefore(t *testing.T, f *Fleet, key string) string {
	t.Helper()
	holder := f.o.Name
	if f.o.Advertise != "" {
		holder = f.self.Load().records.make(f.o.Advertise)
	}
	token := strings.Repeat("0", 32) + ":" + holder
	require.NoError(t, redistest.Shared(t).Client().Set(t.Context(), f.key("lock:"+key), token, time.Hour).Err())
	return token
}

// TestLeaseFromBeforeARestart: a gateway takes over its lease from before a restart, but no lease
// of another gateway. A gateway that waits for the lease sees the new leader.
func TestLeaseFromBeforeARestart(t *testing.T) {
	o := fleetOf(redistest.Shared(t).Addr())
	a, b := member(t, o, 1), member(t, o, 2)
	know(a, b)
	leaseFromBefore(t, a, "key")
	var held *cache.Held
	require.ErrorAs(t, leaseRejected(t, b, "key"), &held)
	waited := make(chan error, 1)
	go func() { waited <- held.Wait(t.Context()) }()
	eventually.True(t, func() bool { return b.Stats().LocksWaiting == 1 }, "b waits")

	var lease leaseOf
	eventually.True(t, func() bool { // b, which is notified, may look whether it is free at that moment
		ctx, release, err := a.AcquireLease(t.Context(), "key", true)
		lease = leaseOf{ctx, release}
		return err == nil
	}, "a leads")
	heldBy(t, leaseRejected(t, b, "key"), "https://10.0.0.1:8887")
	heldBy(t, leaseRejected(t, a, "key"), "") // of this process, for another fill
	lease.release()
	require.NoError(t, <-waited)
	require.NoError(t, lead(t, b, "key").Err())
}

// TestLeaseFromBeforeARestartWithoutPeers: without peers, a gateway recognizes its lease by its
// name only.
func TestLeaseFromBeforeARestartWithoutPeers(t *testing.T) {
	o := fleetOf(redistest.Shared(t).Addr())
	o.Secret, o.Name = "", "alone"
	f := gatewayOf(t, o)
	leaseFromBefore(t, f, "key")
	lead(t, f, "key").release()
}

// TestReplacedProcessTakesOverNoLease: a replaced process does not take over a lease of the new
// process, which has the same name.
func TestReplacedProcessTakesOverNoLease(t *testing.T) {
	f := member(t, fleetOf(redistest.Shared(t).Addr()), 1)
	start(t, f, (&memory{}).local())
	f.HandOver(t.Context())
	token := leaseFromBefore(t, f, "key") // stands for a lease of the new process, which has another token too
	heldBy(t, leaseRejected(t, f, "key"), "")
	require.Equal(t, token, redistest.Shared(t).Client().Get(t.Context(), f.key("lock:key")).Val())
}
