package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"fastdfs-gateway/cachelock"
	"fastdfs-gateway/internal/cache"
	"fastdfs-gateway/internal/cache/tier"
	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/internal/testing/logtest"
	"fastdfs-gateway/internal/testing/redistest"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// purge requires the number of gateways that apply a purge, and the names of the missing ones.
func purge(t testing.TB, f *Fleet, m cache.Match, gateways int, names ...string) {
	t.Helper()
	n, missing, err := f.Purge(t.Context(), m)
	require.NoError(t, err)
	require.ElementsMatch(t, names, missing)
	require.Equal(t, gateways, n)
}

// purgeWithout purges while the gateway missing cannot apply purges, so that the purge ends by its
// timeout. On a machine too slow for the other gateways, it repeats the purge with twice the
// timeout. So a purge may be applied several times.
func purgeWithout(t testing.TB, f *Fleet, m cache.Match, gateways int, missing string) {
	t.Helper()
	defer func() { f.purges.confirm = testTimeout }()
	for f.purges.confirm = 300 * time.Millisecond; f.purges.confirm < testTimeout; f.purges.confirm *= 2 {
		n, names, err := f.Purge(t.Context(), m)
		if errors.Is(err, context.DeadlineExceeded) {
			continue
		}
		require.NoError(t, err)
		require.Contains(t, names, missing)
		if len(names) == 1 {
			require.Equal(t, gateways, n)
			return
		}
	}
	t.Fatal("the others did not apply it")
}

// threeMembers starts a fleet of three. The third one reaches Redis by a relay.
func threeMembers(t *testing.T, server *redistest.Server, ma, mb, mc *memory) (a, b, c *Fleet, r *redistest.Relay) {
	t.Helper()
	o := fleetOf(server.Addr())
	relay := redistest.NewRelay(t, server.Addr())
	cutOff := o
	cutOff.Addresses = []string{relay.Addr()}
	a, b, c = member(t, o, 1), member(t, o, 2), member(t, cutOff, 3)
	a.purges.live = testTimeout // less than forget
	start(t, a, ma.local())
	start(t, b, mb.local())
	start(t, c, mc.local())
	return a, b, c, relay
}

func TestPurgeReachesAllAndNamesTheMissing(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	var ma, mb, mc memory
	a, _, c, relay := threeMembers(t, server, &ma, &mb, &mc)
	require.Equal(t, []string{""}, mc.take(), "what was there before is dropped once")
	ma.take()
	mb.take()

	purge(t, a, tier.MatchFolder("group1/M00"), 3)
	for _, m := range []*memory{&ma, &mb, &mc} {
		require.Equal(t, []string{"group1/M00/"}, m.take())
	}

	relay.Cut()
	purgeWithout(t, a, tier.MatchFile(testFile), 2, "https://10.0.0.3:8887")
	require.Equal(t, []string{testFile}, slices.Compact(ma.take()))
	require.Equal(t, []string{testFile}, slices.Compact(mb.take()))
	require.Empty(t, mc.take())
	purgeWithout(t, a, tier.MatchFolder("group2"), 2, "https://10.0.0.3:8887")
	relay.Restore()
	var got []string
	eventually.True(t, func() bool { got = slices.Compact(append(got, mc.take()...)); return len(got) == 2 },
		"it applies the purge when it can")
	require.Equal(t, []string{testFile, "group2/"}, got)

	list, err := a.Gateways(t.Context())
	require.NoError(t, err)
	require.Len(t, list, 3)
	for _, g := range list {
		require.True(t, g.Live, g.Name)
	}
	eventually.True(t, func() bool { return c.Stats().Up }, "it serves again")
	eventually.True(t, func() bool {
		list, err := a.Gateways(t.Context())
		require.NoError(t, err)
		return list[2].Applied == a.Stats().Applied
	}, "it has confirmed")
	require.NoError(t, c.Close())
	purge(t, a, tier.MatchAll, 2) // a purge does not wait for a gateway after Close
	require.Empty(t, server.Eternal(a.o.KeyPrefix))
}

func TestPurgeWithoutRedisIsLocalAndAnError(t *testing.T) {
	o := fleetOf("127.0.0.1:1")
	f := member(t, o, 1)
	var m memory
	require.NoError(t, f.Start(m.local()))
	n, missing, err := f.Purge(t.Context(), tier.MatchFolder("group1"))
	require.ErrorIs(t, err, cache.ErrFleetDown)
	require.Equal(t, 1, n)
	require.Empty(t, missing)
	require.Equal(t, []string{"group1/"}, m.take())
	select {
	case <-f.Synced():
		t.Fatal("it has not seen the log")
	case <-time.After(10 * time.Millisecond):
	}
}

// lockFolder locks a folder as another program, with "operator" as the holder.
func lockFolder(t *testing.T, server *redistest.Server, o Options, path string) *cachelock.Lock {
	t.Helper()
	locks := cachelock.New(server.Client(), cachelock.Options{Prefix: o.KeyPrefix, Holder: "operator"})
	t.Cleanup(func() { require.NoError(t, locks.Close()) })
	folders, err := locks.Folders("files")
	require.NoError(t, err)
	lock, err := folders.Acquire(t.Context(), path, cachelock.Exclusive, cachelock.LockOptions{TTL: time.Hour})
	require.NoError(t, err)
	return lock
}

// TestPurgeTakesTheFolderLock: a folder lock blocks purges, and the error names its holder.
func TestPurgeTakesTheFolderLock(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	o := fleetOf(server.Addr())
	f := member(t, o, 1)
	var m memory
	start(t, f, m.local())
	m.take()
	lock := lockFolder(t, server, o, "group1/M00")

	matches := []cache.Match{tier.MatchAll, tier.MatchFolder("group1"), tier.MatchFolder("group1/M00"),
		tier.MatchFile(testFile)}
	f.purges.confirm = 300 * time.Millisecond
	for late := true; late; f.purges.confirm *= 2 {
		require.Less(t, f.purges.confirm, testTimeout)
		var wg sync.WaitGroup
		errs := make([]error, len(matches))
		for i, m := range matches {
			wg.Go(func() { _, _, errs[i] = f.Purge(t.Context(), m) })
		}
		wg.Wait()
		late = false
		purged := m.take()
		for i, err := range errs {
			if errors.Is(err, context.DeadlineExceeded) { // a slow machine; half of that time is for the lock
				late = true
				continue
			}
			require.ErrorIs(t, err, cachelock.ErrHeld, "%s", matches[i])
			require.ErrorContains(t, err, "operator")
			require.NotContains(t, purged, string(matches[i]))
		}
	}
	f.purges.confirm = testTimeout
	purge(t, f, tier.MatchFolder("group1/M01"), 1)
	require.NoError(t, lock.Release(t.Context()))
	purge(t, f, tier.MatchAll, 1)
	require.True(t, f.Stats().Up)
}

// TestPurgePassesALockThatNeverExpires: a lock that no program can have taken blocks no purge.
func TestPurgePassesALockThatNeverExpires(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	for name, until := range map[string]float64{
		"in two hours": float64(time.Now().Add(2 * time.Hour).UnixMilli()), "never": math.Inf(1),
	} {
		t.Run(name, func(t *testing.T) {
			o, log := fleetOf(server.Addr()), &logtest.Buffer{}
			o.Log = slog.New(slog.NewTextHandler(log, nil))
			f := member(t, o, 1)
			var m memory
			start(t, f, m.local())
			m.take()
			lock := lockFolder(t, server, o, "group1")
			untilKey := o.KeyPrefix + ":{0}:folder-until:files"
			require.NoError(t, server.Client().ZAdd(t.Context(), untilKey, z(until, lock.Token())).Err())
			for f.purges.confirm = 300 * time.Millisecond; ; f.purges.confirm *= 2 {
				n, _, err := f.Purge(t.Context(), tier.MatchFile(testFile))
				late := errors.Is(err, context.DeadlineExceeded) || err == nil && n == 0
				if late && f.purges.confirm < testTimeout { // a slow machine
					continue
				}
				require.NoError(t, err)
				require.Equal(t, 1, n)
				break
			}
			require.Contains(t, m.take(), testFile)
			require.NotZero(t, log.Count("a purge goes on without the folder lock"))
			require.True(t, f.Stats().Up)
		})
	}
}

// TestListOfGatewaysIsBounded: names and the list of gateways in Redis are read up to a bound.
func TestListOfGatewaysIsBounded(t *testing.T) {
	server := redistest.Shared(t)
	f := member(t, fleetOf(server.Addr()), 1)
	start(t, f, (&memory{}).local())
	huge := strings.Repeat("x", 1<<20)
	var list []Gateway
	eventually.True(t, func() bool { // a heartbeat in between removes those that were seen long ago
		_, err := server.Client().Pipelined(t.Context(), func(p redis.Pipeliner) error {
			p.HSet(t.Context(), f.key("applied"), huge, "1", "long ago", "1", "garbage", huge)
			p.ZAdd(t.Context(), f.key("gateways"), z(math.Inf(1), huge), z(math.Inf(-1), "long ago"), z(0, "garbage"))
			return nil
		})
		require.NoError(t, err)
		list, err = f.Gateways(t.Context())
		require.NoError(t, err)
		return len(list) == 3
	})
	require.Equal(t, f.o.Name, list[1].Name)
	require.EqualValues(t, -1, list[0].Applied)
	require.True(t, list[2].LastSeen.Before(time.Now().AddDate(-30, 0, 0)))
	_, err := server.Client().Pipelined(t.Context(), func(p redis.Pipeliner) error {
		for i := range 2 * maxMembers {
			p.HSet(t.Context(), f.key("applied"), fmt.Sprint(i), "1")
			p.ZAdd(t.Context(), f.key("gateways"), z(float64(i), fmt.Sprint(i)))
		}
		return nil
	})
	require.NoError(t, err)
	list, err = f.Gateways(t.Context())
	require.NoError(t, err)
	require.LessOrEqual(t, len(list), maxMembers)
	require.True(t, slices.ContainsFunc(list, func(g Gateway) bool { return g.Name == f.o.Name && g.Live }))
	purge(t, f, tier.MatchFile(testFile), 1)
}

func TestManyPurgesAtATime(t *testing.T) {
	o := fleetOf(redistest.Shared(t).Addr())
	a, b := member(t, o, 1), member(t, o, 2)
	var ma, mb memory
	b.purges.page = 3
	start(t, a, ma.local())
	start(t, b, mb.local())
	ma.take()
	mb.take()
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			f := []*Fleet{a, b}[i%2]
			n, missing, err := f.Purge(t.Context(), tier.MatchFolder("group1/M0"+string("0123456789"[i%10])))
			if err != nil || n != 2 || len(missing) > 0 {
				t.Errorf("%d have applied it, not %q: %v", n, missing, err)
			}
		})
	}
	wg.Wait()
	first, second := ma.take(), mb.take()
	require.Len(t, first, 20)
	require.Equal(t, first, second, "all apply them in the same order")
}

// TestGatewayThatWasAway: a gateway that was away applies the purges that it missed. If the log
// does not reach back that far, the gateway purges everything.
func TestGatewayThatWasAway(t *testing.T) {
	o := fleetOf(redistest.Shared(t).Addr())
	a := member(t, o, 1)
	a.purges.log = 3
	start(t, a, (&memory{}).local())
	var m memory
	b := member(t, o, 2)
	start(t, b, m.withDisk())
	require.Equal(t, []string{""}, m.take(), "the age of the disk is not known")
	require.NoError(t, b.Close())
	again := func() []string {
		b := member(t, o, 2)
		start(t, b, m.withDisk())
		require.NoError(t, b.Close())
		return m.take()
	}
	purge(t, a, tier.MatchFolder("group1"), 1)
	require.Equal(t, []string{"group1/"}, again(), "the first purge of a fleet is in its log")
	require.Empty(t, again(), "it was applied before")
	purge(t, a, tier.MatchFolder("group2"), 1)
	purge(t, a, tier.MatchFile(testFile), 1)
	require.Equal(t, []string{"group2/", testFile}, again())
	for _, group := range []string{"group3", "group4", "group5"} {
		purge(t, a, tier.MatchFolder(group), 1)
	}
	require.Equal(t, []string{"group3/", "group4/", "group5/"}, again(), "just as many as the log keeps")
	for _, group := range []string{"group6", "group7", "group8", "group9"} {
		purge(t, a, tier.MatchFolder(group), 1)
	}
	require.Equal(t, []string{""}, again(), "one more than the log keeps")
	require.Empty(t, again())
	purge(t, a, tier.MatchFolder("group10"), 1)
	require.Equal(t, []string{"group10/"}, again())

	a.purges.age = time.Millisecond // the next purge removes all others from the log
	time.Sleep(2 * time.Millisecond)
	purge(t, a, tier.MatchFolder("group11"), 1)
	time.Sleep(2 * time.Millisecond)
	purge(t, a, tier.MatchFolder("group12"), 1)
	require.Equal(t, []string{""}, again())
}

// TestRedisLosesItsData: after a loss of data, a gateway that has applied the last purge purges
// nothing; a gateway that has missed a purge purges everything.
func TestRedisLosesItsData(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	var ma, mb, mc memory
	a, b, c, relay := threeMembers(t, server, &ma, &mb, &mc)
	purge(t, a, tier.MatchFolder("group1"), 3)
	forget := func() { ma.take(); mb.take(); mc.take() }
	forget()
	registered := func(n int) {
		eventually.True(t, func() bool {
			list, err := a.Gateways(t.Context())
			return err == nil && len(list) == n
		}, "they register again")
	}
	require.NoError(t, server.Client().FlushAll(t.Context()).Err())
	registered(3)
	require.Empty(t, append(append(ma.take(), mb.take()...), mc.take()...))
	purge(t, b, tier.MatchFolder("group2"), 3)
	forget()

	relay.Cut()
	purgeWithout(t, a, tier.MatchFolder("group3"), 2, "https://10.0.0.3:8887")
	forget()
	require.NoError(t, server.Client().FlushAll(t.Context()).Err())
	registered(2)
	relay.Restore()
	registered(3)
	eventually.True(t, func() bool { return len(mc.take()) == 1 }, "it drops all")
	require.Empty(t, append(ma.take(), mb.take()...))
	require.EqualValues(t, 1, c.Stats().LogsMissed)
}

// TestRedisLosesItsDataAndGoesOn: if Redis has lost a purge and has a new one when a gateway with
// the lost one returns, all gateways purge everything, as the missed purges are unknown.
func TestRedisLosesItsDataAndGoesOn(t *testing.T) {
	o := fleetOf(redistest.Shared(t).Addr())
	a, b := member(t, o, 1), member(t, o, 2)
	var ma memory
	start(t, a, ma.local())
	purge(t, a, tier.MatchFolder("group1"), 1)
	mb := memory{last: a.Stats().Applied - 1, noted: true} // a purge that Redis does not know
	require.NoError(t, redistest.Shared(t).Client().Del(t.Context(), a.key("purges:base")).Err())
	ma.take()
	start(t, b, mb.withDisk())
	eventually.True(t, func() bool { return slices.Contains(ma.take(), "") }, "all is dropped")
	require.Contains(t, mb.take(), "")
	eventually.True(t, func() bool { return a.Stats().Applied == b.Stats().Applied }, "both have applied it")
}

// TestLogThatCannotBeUnderstood: entries that no purge has written are removed, others applied.
func TestLogThatCannotBeUnderstood(t *testing.T) {
	server := redistest.Shared(t)
	o := fleetOf(server.Addr())
	f := member(t, o, 1)
	require.NoError(
		t,
		server.Client().
			ZAdd(t.Context(), f.key("purges"), z(7, "seven"), z(8, "10 group1/"), z(9, "9 group1/"),
				z(1e18, "1000000000000000000 ")).
			Err(),
	)
	require.NoError(t, server.Client().Set(t.Context(), f.key("purges:base"), 1, time.Minute).Err())
	f.applied.Store(1)
	var m memory
	setLocal(f, m.local())
	require.NoError(t, f.sync(t.Context()))
	require.Equal(t, []string{"group1/"}, m.take())
	require.EqualValues(t, 9, f.applied.Load())
	require.EqualValues(t, 1, server.Client().ZCard(t.Context(), f.key("purges")).Val())
}

// TestPurgesAreHeardOf: the message of a purge makes gateways apply it before their next beat.
func TestPurgesAreHeardOf(t *testing.T) {
	server := redistest.Shared(t)
	o := fleetOf(server.Addr())
	a, b := member(t, o, 1), member(t, o, 2)
	b.purges.beat = time.Hour
	start(t, a, (&memory{}).local())
	start(t, b, (&memory{}).local())
	client := server.Client()
	eventually.True(t, func() bool {
		channel := a.key("purged")
		return client.PubSubNumSub(t.Context(), channel).Val()[channel] == 2
	}, "both listen")
	purge(t, a, tier.MatchFolder("group1"), 2)
}

// TestRedisLosesItsDataAndItsClock: after Redis has lost its data and its clock went back, the
// fence of a new purge is higher than that of all applied ones.
func TestRedisLosesItsDataAndItsClock(t *testing.T) {
	server := redistest.Shared(t)
	f := member(t, fleetOf(server.Addr()), 1)
	m := memory{last: time.Now().Add(time.Hour).UnixMicro(), noted: true}
	start(t, f, m.withDisk())
	purge(t, f, tier.MatchFolder("group1"), 1)
	require.Equal(t, []string{"group1/"}, m.take())
}

// TestAppliedInTheFarFuture: if the clock of Redis went back by over a year, or another program
// wrote a fence that no clock gives, a gateway purges everything and takes the fence of Redis.
func TestAppliedInTheFarFuture(t *testing.T) {
	server := redistest.Shared(t)
	f := member(t, fleetOf(server.Addr()), 1)
	m := memory{last: maxFence, noted: true}
	start(t, f, m.withDisk())
	require.Equal(t, []string{""}, m.take())
	purge(t, f, tier.MatchFolder("group1"), 1)
	require.Equal(t, []string{"group1/"}, m.take())
}

// TestRevisionIsBounded: a long revision of the members by another program is replaced.
func TestRevisionIsBounded(t *testing.T) {
	server := redistest.Shared(t)
	f := member(t, fleetOf(server.Addr()), 1)
	setLocal(f, (&memory{}).local())
	require.NoError(t, f.sync(t.Context()))
	require.NoError(t, server.Client().HSet(t.Context(), f.key("members"), "#joins", strings.Repeat("7", 1<<20)).Err())
	require.NoError(t, f.sync(t.Context()))
	require.Less(t, len(f.members.Load().revision), 32)
	require.True(t, f.members.Load().Has(f.o.Advertise))
}

// TestMembersAfterRedisLostItsData: a list of the same length as before counts as a new one.
func TestMembersAfterRedisLostItsData(t *testing.T) {
	server := redistest.Start(t)
	o := fleetOf(server.Addr())
	a, b, c := member(t, o, 1), member(t, o, 2), member(t, o, 3)
	for _, f := range []*Fleet{a, b, c} {
		setLocal(f, (&memory{}).local())
	}
	require.NoError(t, a.sync(t.Context()))
	require.NoError(t, b.sync(t.Context()))
	require.NoError(t, a.sync(t.Context()))
	require.True(t, a.members.Load().Has(b.o.Advertise))
	require.NoError(t, server.Client().FlushAll(t.Context()).Err())
	require.NoError(t, c.sync(t.Context()))
	require.NoError(t, a.sync(t.Context()))
	require.True(t, a.members.Load().Has(c.o.Advertise))
	require.False(t, a.members.Load().Has(b.o.Advertise))
}
