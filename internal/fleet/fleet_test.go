package fleet

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"fastdfs-gateway/internal/cache"
	"fastdfs-gateway/internal/cache/tier"
	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/internal/testing/redistest"

	"github.com/stretchr/testify/require"
)

func TestHeldNamesTheHolder(t *testing.T) {
	o := fleetOf(redistest.Shared(t).Addr())
	a, b := member(t, o, 1), member(t, o, 2)
	lease := lead(t, a, "key")
	heldBy(t, leaseRejected(t, b, "key"), "") // a is no member for b
	know(a, b)
	heldBy(t, leaseRejected(t, b, "key"), "https://10.0.0.1:8887")
	heldBy(t, leaseRejected(t, a, "key"), "") // the lease of another fill of a

	o.Secret, o.Name = "", "no peers"
	noPeers := gatewayOf(t, o) // sends no requests to peers
	heldBy(t, leaseRejected(t, noPeers, "key"), "")

	require.Len(t, a.Locks(), 1)
	require.Equal(t, 1, a.Stats().LocksHeld)
	lease.release()
	require.Empty(t, a.Locks())
	lease = lead(t, noPeers, "key")
	require.ErrorIs(t, leaseRejected(t, b, "key"), cache.ErrFleetDown, "it does not prove that it knows the secret")
	lease.release()
	client := redistest.Shared(t).Client()
	forged := "00:" + a.self.Load().records.make(a.o.Advertise)
	require.NoError(t, client.Set(t.Context(), a.key("lock:key"), forged, time.Minute).Err())
	heldBy(t, leaseRejected(t, b, "key"), "https://10.0.0.1:8887") // a gets the request, and does not have the entry
	require.NoError(t, client.Persist(t.Context(), a.key("lock:key")).Err())
	for _, f := range []*Fleet{b, noPeers} {
		require.ErrorIs(t, leaseRejected(t, f, "key"), cache.ErrFleetDown, "no lease lasts for ever")
	}
}

func TestWaitEndsWithTheLease(t *testing.T) {
	o := fleetOf(redistest.Shared(t).Addr())
	var waited atomic.Int32
	o.Waited = func(time.Duration) { waited.Add(1) }
	a := member(t, o, 1)
	lease := lead(t, a, "key")
	others := []*Fleet{member(t, o, 2), member(t, o, 3), member(t, o, 4)}
	done := make(chan error)
	for _, f := range others {
		var held *cache.Held
		require.ErrorAs(t, leaseRejected(t, f, "key"), &held)
		go func() { done <- held.Wait(t.Context()) }()
	}
	eventually.True(t, func() bool {
		return others[0].Stats().LocksWaiting+others[1].Stats().LocksWaiting+others[2].Stats().LocksWaiting == 3
	}, "all wait")
	list := others[0].Locks()
	require.Len(t, list, 1)
	require.True(t, list[0].Waiting)
	require.Equal(t, "https://10.0.0.1:8887", list[0].Holder)
	require.Positive(t, list[0].TTL)
	select {
	case err := <-done:
		t.Fatalf("it was not released: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	lease.release()
	for range others {
		require.NoError(t, <-done)
	}
	require.EqualValues(t, 3, waited.Load())
	require.NoError(t, a.waitForLease(t.Context(), LockInfo{Key: "key"})) // returns at once

	lease = lead(t, a, "key")
	defer lease.release()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, others[0].waitForLease(ctx, LockInfo{Key: "key"}), context.DeadlineExceeded)
	require.True(t, others[0].Stats().Up, "a caller that gave up is no failure")
}

// leadInTime acquires the lease of a file. On a machine so slow that the lease ends first, it tries
// another file.
func leadInTime(t testing.TB, f *Fleet) (file string, l leaseOf) {
	t.Helper()
	for n := 0; ; n++ {
		file = fmt.Sprintf("group1/M00/0A/FF/%d", n)
		began := time.Now()
		lease, release, err := f.AcquireLease(t.Context(), file, true)
		if err == nil {
			return file, leaseOf{lease, release}
		}
		require.Greater(t, time.Since(began), f.o.LockTTL*9/10, "%v", err)
	}
}

// TestLostLease: a gateway that is cut off from Redis for longer than the TTL of its lease notices
// the loss.
func TestLostLease(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	o := fleetOf(server.Addr())
	relay := redistest.NewRelay(t, server.Addr())
	cutOff := o
	cutOff.Addresses, cutOff.LockTTL = []string{relay.Addr()}, time.Second
	a, b := member(t, cutOff, 1), member(t, o, 2)
	know(a, b)

	testFile, old := leadInTime(t, a)
	relay.Hang()
	require.NoError(t, b.waitForLease(t.Context(), LockInfo{Key: testFile}))
	lease := lead(t, b, testFile)
	defer lease.release()
	<-old.Done()
	relay.Restore()
	old.release()
	eventually.True(t, func() bool { return a.Stats().Lost == 1 }, "the loss is counted")
	heldBy(t, leaseRejected(t, a, testFile), "https://10.0.0.2:8887")
	require.Empty(t, server.Eternal(o.KeyPrefix))
}

// TestPurgeAgainstManyFills: with fills and purges at the same time, on all gateways, content that
// was fetched before a purge began is not read after the purge has returned.
func TestPurgeAgainstManyFills(t *testing.T) {
	o := fleetOf(redistest.Shared(t).Addr())
	storage := &origin{data: []byte("0000")}
	fleets := []*gateway{serveAs(t, o, nil), serveAs(t, o, nil), serveAs(t, o, nil)}
	for _, g := range fleets {
		g.storage = storage
	}
	eventually.True(t, func() bool {
		return len(fleets[0].Owners("a", 9)) == 3 && len(fleets[1].Owners("a", 9)) == 3 &&
			len(fleets[2].Owners("a", 9)) == 3
	}, "they know each other")
	var content atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for _, g := range fleets {
		wg.Go(func() {
			for ctx.Err() == nil {
				_, _ = g.read(testFile, storage) // the file may change while it is read
			}
		})
	}
	for round := range 10 {
		want := content.Add(1)
		storage.set(fmt.Appendf(nil, "%04d", want))
		_, missing, err := fleets[round%3].Purge(t.Context(), tier.MatchFolder("group1/M00"))
		require.NoError(t, err)
		require.Empty(t, missing)
		for i, g := range fleets {
			got, err := g.read(testFile, storage)
			require.NoError(t, err, "gateway %d", i)
			require.Equal(t, fmt.Sprintf("%04d", want), string(got), "gateway %d after purge %d", i, round)
		}
	}
	cancel()
	wg.Wait()
	for _, g := range fleets[1:] {
		require.Positive(t, g.Stats().PeerFetches["ok"]+fleets[0].Stats().PeerFetches["ok"],
			"they have asked each other")
	}
}

func TestOptions(t *testing.T) {
	const secret = "the secret of a test"
	good := Options{Addresses: []string{"127.0.0.1:1"}, Name: "a"}
	for name, spoil := range map[string]func(*Options){
		"no address":          func(o *Options) { o.Addresses = nil },
		"brace in the prefix": func(o *Options) { o.KeyPrefix = "a{b}" },
		"short secret": func(o *Options) {
			o.Advertise, o.Secret = "https://10.0.0.1:8887", secret[:MinSecret-1]
		},
		"no secret":           func(o *Options) { o.Advertise = "https://10.0.0.1:8887" },
		"address with a path": func(o *Options) { o.Advertise, o.Secret = "https://10.0.0.1:8887/x", secret },
		"another scheme":      func(o *Options) { o.Advertise, o.Secret = "http://10.0.0.1:8887", secret },
		"user in the address": func(o *Options) { o.Advertise, o.Secret = "https://me@10.0.0.1", secret },
		"no name":             func(o *Options) { o.Name = "" },
		"long name":           func(o *Options) { o.Name = strings.Repeat("a", 256) },
	} {
		o := good
		spoil(&o)
		_, err := New(o)
		require.Error(t, err, name)
	}
	good.Name, good.Advertise, good.Secret = "", "https://10.0.0.1:8887/", secret
	f, err := New(good)
	require.NoError(t, err)
	require.Equal(t, "https://10.0.0.1:8887", f.o.Name)
	require.Equal(t, "fdfs:{0}:fence", f.key("fence"))
	require.NoError(t, f.Close())
	require.NoError(t, f.Close())
	require.ErrorIs(t, f.Start(Local{}), errStarted)
	require.ErrorIs(t, leaseRejected(t, f, "key"), cache.ErrFleetDown)
}
