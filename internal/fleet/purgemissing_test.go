package fleet

import (
	"slices"
	"testing"
	"time"

	"fastdfs-gateway/internal/cache"
	"fastdfs-gateway/internal/cache/tier"
	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/internal/testing/redistest"

	"github.com/stretchr/testify/require"
)

// TestPurgeNamesTheUnheard: a gateway that was registered, has not left and was not heard for
// longer than members are is named as missing until purgeLimits.forget is over. A gateway that does
// not reach Redis names the members that it knows.
func TestPurgeNamesTheUnheard(t *testing.T) {
	t.Parallel()
	var ma, mb, mc memory
	a, b, c, relay := threeMembers(t, redistest.Shared(t), &ma, &mb, &mc)
	relay.Cut()
	_, others, err := c.Purge(t.Context(), tier.MatchFile(testFile))
	require.ErrorIs(t, err, cache.ErrFleetDown)
	require.Equal(t, []string{a.o.Name, b.o.Name}, others, "those that it knows")
	unheard := func(since time.Duration) { // a heartbeat of before the cut may come late
		require.NoError(t, a.rdb.ZAdd(t.Context(), a.key("gateways"),
			z(float64(time.Now().Add(-since).UnixMilli()), c.o.Name)).Err())
	}
	eventually.True(t, func() bool {
		unheard(2 * a.purges.live)
		list, err := a.Gateways(t.Context())
		require.NoError(t, err)
		return slices.ContainsFunc(list, func(g Gateway) bool { return g.Name == c.o.Name && !g.Live }) &&
			!a.members.Load().Has(c.o.Name)
	})
	purgeWithout(t, a, tier.MatchFile(testFile), 2, c.o.Name)
	// The longest outage of Redis after which a purge still waits for all gateways.
	require.GreaterOrEqual(t, defaultPurgeLimits.forget, 5*time.Minute)
	unheard(a.purges.forget + time.Second)
	purge(t, a, tier.MatchFile(testFile), 2)
}

// TestPurgeByTheUnregistered: a purge waits for the gateway that makes it, also if that is not
// registered, so no purge has reached "0 of 0 gateways". It does not wait for a name that no
// gateway has written.
func TestPurgeByTheUnregistered(t *testing.T) {
	t.Parallel()
	f := member(t, fleetOf(redistest.Shared(t).Addr()), 1)
	purgeWithout(t, f, tier.MatchFile(testFile), 0, f.o.Name)
	start(t, f, (&memory{}).local())
	require.NoError(t, f.rdb.Del(t.Context(), f.key("gateways")).Err())
	require.NoError(t, f.rdb.ZAdd(t.Context(), f.key("gateways"), z(float64(time.Now().UnixMilli()), "forged")).Err())
	purge(t, f, tier.MatchFile(testFile), 1)
}

// TestPurgeAfterRedisLostItsList: a purge waits for gateways that have not registered again since
// Redis lost its data, also if it was written before that.
func TestPurgeAfterRedisLostItsList(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	var ma, mb, mc memory
	a, b, c, relay := threeMembers(t, server, &ma, &mb, &mc)
	eventually.True(t, func() bool { return a.members.Load().Has(b.o.Name) && a.members.Load().Has(c.o.Name) })
	relay.Cut()
	written, err := a.writePurge(t.Context(), "group1/")
	require.NoError(t, err)
	require.NoError(t, server.Client().FlushAll(t.Context()).Err())
	eventually.True(t, func() bool {
		missing := a.unacknowledged(t.Context(), written, a.mustApply(written))
		require.Contains(t, missing, c.o.Name)
		return len(missing) == 1
	}, "both others have applied it, or all")
	purgeWithout(t, a, tier.MatchFile(testFile), 2, c.o.Name)
	relay.Restore()
	purge(t, a, tier.MatchFile(testFile), 3)
	require.NoError(t, c.Close())
	purge(t, a, tier.MatchFile(testFile), 2)
	require.Empty(t, server.Eternal(a.o.KeyPrefix))
}
