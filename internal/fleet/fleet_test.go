package fleet

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"fastdfs-gateway/internal/cache"
	"fastdfs-gateway/internal/cache/tier"
	"fastdfs-gateway/internal/redistest"

	"github.com/stretchr/testify/require"
)

func TestOneLeaseInTheFleet(t *testing.T) {
	o := fleetOf(redistest.Shared(t).Addr())
	fleets := make([]*Fleet, 4)
	for i := range fleets {
		fleets[i] = member(t, o, i+1)
	}
	for round := range 20 {
		var leads atomic.Int32
		var wg sync.WaitGroup
		leases := make(chan cache.Lease, 40)
		for i := range 40 {
			wg.Go(func() {
				lease, err := fleets[i%len(fleets)].Lead(t.Context(), "key")
				if err == nil {
					leads.Add(1)
					leases <- lease
					return
				}
				var held *cache.Held
				if !errors.As(err, &held) {
					t.Errorf("round %d: %v", round, err)
				}
			})
		}
		wg.Wait()
		require.EqualValues(t, 1, leads.Load())
		(<-leases).Release()
	}
	require.EqualValues(t, 20, fleets[0].Stats().Acquired+fleets[1].Stats().Acquired+fleets[2].Stats().Acquired+fleets[3].Stats().Acquired)
}

func TestHeldNamesTheHolder(t *testing.T) {
	o := fleetOf(redistest.Shared(t).Addr())
	a, b := member(t, o, 1), member(t, o, 2)
	lease, err := a.Lead(t.Context(), "key")
	require.NoError(t, err)
	_, err = b.Lead(t.Context(), "key")
	heldBy(t, err, "https://10.0.0.1:8887")
	_, err = a.Lead(t.Context(), "key") // our own, as from before a restart
	heldBy(t, err, "")

	o.Secret = ""
	stranger, err := New(o) // has no way to ask anybody
	require.NoError(t, err)
	defer stranger.Close()
	_, err = stranger.Lead(t.Context(), "key")
	heldBy(t, err, "")

	require.Len(t, a.Locks(t.Context()), 1)
	require.Equal(t, 1, a.Stats().LocksHeld)
	lease.Release()
	require.Empty(t, a.Locks(t.Context()))
	lease, err = stranger.Lead(t.Context(), "key")
	require.NoError(t, err)
	_, err = b.Lead(t.Context(), "key")
	heldBy(t, err, "") // he gave no address
	lease.Release()
}

func TestWaitEndsWithTheLease(t *testing.T) {
	o := fleetOf(redistest.Shared(t).Addr())
	var waited atomic.Int32
	o.Waited = func(time.Duration) { waited.Add(1) }
	a := member(t, o, 1)
	lease, err := a.Lead(t.Context(), "key")
	require.NoError(t, err)
	others := []*Fleet{member(t, o, 2), member(t, o, 3), member(t, o, 4)}
	done := make(chan error)
	for _, f := range others {
		go func() { done <- f.Wait(t.Context(), "key") }()
	}
	eventually(t, "all wait", func() bool {
		return others[0].Stats().LocksWaiting+others[1].Stats().LocksWaiting+others[2].Stats().LocksWaiting == 3
	})
	list := others[0].Locks(t.Context())
	require.Len(t, list, 1)
	require.True(t, list[0].Waiting)
	require.Equal(t, "https://10.0.0.1:8887", list[0].Holder)
	require.Positive(t, list[0].TTL)
	select {
	case err := <-done:
		t.Fatalf("nobody has released it: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	lease.Release()
	for range others {
		require.NoError(t, <-done)
	}
	require.EqualValues(t, 3, waited.Load())
	require.NoError(t, a.Wait(t.Context(), "key")) // at once

	lease, err = a.Lead(t.Context(), "key")
	require.NoError(t, err)
	defer lease.Release()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, others[0].Wait(ctx, "key"), context.DeadlineExceeded)
	require.True(t, others[0].Stats().Up, "a caller that gave up is no trouble")
}

func TestWaitIsBounded(t *testing.T) {
	o := fleetOf(redistest.Shared(t).Addr())
	o.LockWait = 50 * time.Millisecond
	a, b := member(t, o, 1), member(t, o, 2)
	lease, err := a.Lead(t.Context(), "key")
	require.NoError(t, err)
	defer lease.Release()
	require.Error(t, b.Wait(t.Context(), "key"))
	require.True(t, b.Stats().Up)
}

// leadInTime takes the lease of some file. A machine that has no time for it before the lease is over gets another try.
func leadInTime(t testing.TB, f *Fleet) (file string, l cache.Lease) {
	t.Helper()
	for n := 0; ; n++ {
		file = fmt.Sprintf("group1/M00/0A/FF/%d", n)
		began := time.Now()
		l, err := f.Lead(t.Context(), file)
		if err == nil {
			return file, l
		}
		require.Greater(t, time.Since(began), f.o.LockTTL*9/10, "%v", err)
	}
}

// A gateway that is cut off for longer than its lease learns it, and publishes nothing under it.
func TestLostLeaseIsNotPublished(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	o := fleetOf(server.Addr())
	relay := redistest.NewRelay(t, server.Addr())
	cutOff := o
	cutOff.Addresses, cutOff.LockTTL = []string{relay.Addr()}, time.Second
	a, b := member(t, cutOff, 1), member(t, o, 2)

	testFile, old := leadInTime(t, a)
	relay.Hang()
	require.NoError(t, b.Wait(t.Context(), testFile))
	lease, err := b.Lead(t.Context(), testFile)
	require.NoError(t, err)
	defer lease.Release()
	<-old.Context().Done()
	relay.Restore()

	meta := cache.Meta{Version: testVersion, Checked: time.UnixMilli(1767225600123), Took: time.Second}
	require.ErrorIs(t, old.PublishMeta(t.Context(), testFile, meta), cache.ErrLost)
	_, found, err := b.Meta(t.Context(), testFile)
	require.NoError(t, err)
	require.False(t, found)
	require.NoError(t, lease.PublishMeta(t.Context(), testFile, meta))
	got, found, err := b.Meta(t.Context(), testFile)
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, meta, got)
	old.Release()
	eventually(t, "the loss is counted", func() bool { return a.Stats().Lost == 1 })
	_, err = a.Lead(t.Context(), testFile)
	heldBy(t, err, "https://10.0.0.2:8887")
}

// The script refuses a holder that does not know yet that his lease has gone, by each of its looks.
func TestPublishLooksForItself(t *testing.T) {
	server := redistest.Shared(t)
	client := server.Client()
	location := cache.Location{Version: testVersion}
	key := cache.SegmentKey{File: testFile, Index: 2}.String()
	for name, spoil := range map[string]func(*Fleet, *lease){
		"the lease is where it is looked for": nil,
		"the lease has expired": func(f *Fleet, _ *lease) {
			require.NoError(t, client.Del(t.Context(), f.keys.lock(key)).Err())
		},
		"another has the lease": func(f *Fleet, _ *lease) {
			require.NoError(t, client.Set(t.Context(), f.keys.lock(key), "another:holder", time.Minute).Err())
		},
		"a later holder has published": func(f *Fleet, l *lease) {
			require.NoError(t, client.HSet(t.Context(), f.keys.location(key), "fence", l.lock.Fence()+1, "value", "{}").Err())
			require.NoError(t, client.Expire(t.Context(), f.keys.location(key), time.Minute).Err())
		},
		"the file was purged": func(f *Fleet, l *lease) {
			require.NoError(t, client.Set(t.Context(), f.keys.purged(testFile), l.lock.Fence()+1, time.Minute).Err())
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := fleetOf(server.Addr())
			a, b := member(t, o, 1), member(t, o, 2)
			l, err := a.Lead(t.Context(), key)
			require.NoError(t, err)
			defer l.Release()
			if spoil != nil {
				spoil(a, l.(*lease))
				require.ErrorIs(t, l.PublishLocation(t.Context(), key, location), cache.ErrLost)
				return
			}
			require.NoError(t, l.PublishLocation(t.Context(), key, location))
			require.NoError(t, l.PublishLocation(t.Context(), key, location)) // the same holder once more
			got, found, err := b.Location(t.Context(), key)
			require.NoError(t, err)
			require.True(t, found)
			require.Equal(t, cache.Location{Holder: "https://10.0.0.1:8887", Version: testVersion}, got)
			_, found, err = a.Location(t.Context(), key) // our own is of no use to us
			require.NoError(t, err)
			require.False(t, found)

			require.NoError(t, b.dropLocation(t.Context(), key, "https://10.0.0.9:8887"))
			_, found, err = b.Location(t.Context(), key)
			require.NoError(t, err)
			require.True(t, found, "it was another's")
			require.NoError(t, b.dropLocation(t.Context(), key, "https://10.0.0.1:8887"))
			_, found, err = b.Location(t.Context(), key)
			require.NoError(t, err)
			require.False(t, found)
			noKeyWithoutExpiry(t, client, o)
		})
	}
}

func TestEntriesThatCannotBeRead(t *testing.T) {
	server := redistest.Shared(t)
	client := server.Client()
	f := member(t, fleetOf(server.Addr()), 1)
	for _, value := range []string{"", "{", "[]", `{"v":{"size":"x"}}`, `{"took":"` + strings.Repeat("a", maxValue) + `"}`} {
		require.NoError(t, client.HSet(t.Context(), f.keys.meta(testFile), "fence", 1, "value", value).Err())
		_, found, err := f.Meta(t.Context(), testFile)
		require.NoError(t, err)
		require.False(t, found, "value %.20q", value)
	}
	require.NoError(t, client.Del(t.Context(), f.keys.meta(testFile)).Err())
	for _, file := range []string{"", strings.Repeat("a", maxFile+1)} {
		_, _, err := f.Meta(t.Context(), file)
		require.Error(t, err)
	}
	require.True(t, f.Stats().Up)
}

// A purge and a fill, in all orders, for every scope.
func TestPurgeAgainstFill(t *testing.T) {
	o := fleetOf(redistest.Shared(t).Addr())
	a, b := member(t, o, 1), member(t, o, 2)
	start(t, a, (&memory{}).local())
	start(t, b, (&memory{}).local())
	meta := cache.Meta{Version: testVersion, Checked: time.UnixMilli(1)}
	for n, c := range []struct {
		match cache.Match
		hits  bool
	}{
		{tier.MatchAll(), true},
		{tier.MatchFolder("group1"), true},
		{tier.MatchFolder("group1/M00"), true},
		{tier.MatchFolder("group1/M00/0A"), true},
		{tier.MatchFolder("group1/M00/0A/FF"), true},
		{tier.MatchFile("FILE"), true},
		{tier.MatchFolder("group"), false},
		{tier.MatchFolder("group1/M00/0A/F"), false},
		{tier.MatchFolder("group1/M01"), false},
		{tier.MatchFolder("group10"), false},
		{tier.MatchFile("FILE2"), false},
	} {
		file := fmt.Sprintf("group1/M00/0A/FF/%d", n)
		if s := c.match.String(); strings.HasPrefix(s, "FILE") {
			c.match = tier.MatchFile(file + s[len("FILE"):])
		}
		t.Run(c.match.String(), func(t *testing.T) {
			purge := func() {
				gateways, missing, err := b.Purge(t.Context(), c.match)
				require.NoError(t, err)
				require.Empty(t, missing)
				require.Equal(t, 2, gateways)
			}
			found := func() bool {
				_, found, err := b.Meta(t.Context(), file)
				require.NoError(t, err)
				return found
			}
			// Lead, purge, publish.
			lease, err := a.Lead(t.Context(), file)
			require.NoError(t, err)
			purge()
			err = lease.PublishMeta(t.Context(), file, meta)
			if c.hits {
				require.ErrorIs(t, err, cache.ErrLost)
			} else {
				require.NoError(t, err)
			}
			require.Equal(t, !c.hits, found())
			lease.Release()
			// Purge, lead, publish.
			lease, err = a.Lead(t.Context(), file)
			require.NoError(t, err)
			require.NoError(t, lease.PublishMeta(t.Context(), file, meta))
			require.True(t, found())
			// Lead, publish, purge; and the same lease again.
			purge()
			require.Equal(t, !c.hits, found())
			if c.hits {
				require.ErrorIs(t, lease.PublishMeta(t.Context(), file, meta), cache.ErrLost)
			}
			lease.Release()
		})
	}
}

// Fills that run on all sides while purges do: whatever was published before the last purge began is not read after it.
func TestPurgeAgainstManyFills(t *testing.T) {
	o := fleetOf(redistest.Shared(t).Addr())
	fleets := []*Fleet{member(t, o, 1), member(t, o, 2), member(t, o, 3)}
	for _, f := range fleets {
		start(t, f, (&memory{}).local())
	}
	var origin atomic.Int64 // the file's content: a number that rises
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for _, f := range fleets {
		wg.Go(func() {
			for ctx.Err() == nil {
				lease, err := f.Lead(ctx, testFile)
				if err != nil {
					_ = f.Wait(ctx, testFile)
					continue
				}
				v := cache.Version{Size: origin.Load()}
				time.Sleep(time.Millisecond) // the transfer
				_ = lease.PublishMeta(ctx, testFile, cache.Meta{Version: v})
				lease.Release()
			}
		})
	}
	for range 100 {
		want := origin.Add(1)
		_, missing, err := fleets[0].Purge(t.Context(), tier.MatchFolder("group1/M00"))
		require.NoError(t, err)
		require.Empty(t, missing)
		m, found, err := fleets[1].Meta(t.Context(), testFile)
		require.NoError(t, err)
		if found {
			require.GreaterOrEqual(t, m.Version.Size, want)
		}
	}
	cancel()
	wg.Wait()
}

func TestOptions(t *testing.T) {
	const secret = "the secret of a test"
	good := Options{Addresses: []string{"127.0.0.1:1"}}
	for name, spoil := range map[string]func(*Options){
		"no address":          func(o *Options) { o.Addresses = nil },
		"unknown mode":        func(o *Options) { o.Mode = "many" },
		"no master":           func(o *Options) { o.Mode = "sentinel" },
		"database in cluster": func(o *Options) { o.Mode, o.DB = "cluster", 1 },
		"brace in the prefix": func(o *Options) { o.KeyPrefix = "a{b}" },
		"short ttl":           func(o *Options) { o.LockTTL = time.Millisecond },
		"short secret":        func(o *Options) { o.Advertise, o.Secret = "https://10.0.0.1:8887", secret[:MinSecret-1] },
		"no secret":           func(o *Options) { o.Advertise = "https://10.0.0.1:8887" },
		"address with a path": func(o *Options) { o.Advertise, o.Secret = "https://10.0.0.1:8887/x", secret },
		"another scheme":      func(o *Options) { o.Advertise, o.Secret = "http://10.0.0.1:8887", secret },
		"user in the address": func(o *Options) { o.Advertise, o.Secret = "https://me@10.0.0.1", secret },
		"long name":           func(o *Options) { o.Name = strings.Repeat("a", 256) },
	} {
		o := good
		spoil(&o)
		_, err := New(o)
		require.Error(t, err, name)
	}
	good.Advertise, good.Secret = "https://10.0.0.1:8887/", secret
	f, err := New(good)
	require.NoError(t, err)
	require.Equal(t, "https://10.0.0.1:8887", f.o.Name)
	require.Equal(t, "fdfs:{0}:fence", f.keys.fence())
	require.NoError(t, f.Close())
	require.NoError(t, f.Close())
	require.ErrorIs(t, f.Start(Local{}), errStarted)
	_, err = f.Lead(t.Context(), "key")
	require.ErrorIs(t, err, cache.ErrFleetDown)
}
