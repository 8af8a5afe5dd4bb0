package fleet

import (
	"testing"
	"time"

	"fastdfs-gateway/internal/cache"
	"fastdfs-gateway/internal/cache/tier"
	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/internal/testing/redistest"

	"github.com/stretchr/testify/require"
)

// isTrusting reports whether a gateway uses all metadata of its cache without asking the source.
func isTrusting(f *Fleet) bool { return f.TrustedSince(time.Now()).IsZero() }

// TestTrustedSince: a gateway that cannot know whether it has missed a purge trusts no metadata
// from before that: at the start, while Redis is silent or known to be unavailable, and while a
// purge is being applied. It trusts all of it again when it has applied the missed purge, and not
// before.
func TestTrustedSince(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	relay := redistest.NewRelay(t, server.Addr())
	o := fleetOf(server.Addr())
	away := o
	away.Addresses, away.Timeout = []string{relay.Addr()}, testTimeout // no request fails while the relay hangs
	a, b := member(t, o, 1), member(t, away, 2)
	const age = time.Second
	b.purges.confirm = b.purges.beat + age
	now := time.Now()
	require.Equal(t, now.Add(-age), b.TrustedSince(now), "not registered yet: no purge waits for it")

	applying, applied := make(chan struct{}, 1), make(chan struct{})
	start(t, a, (&memory{}).local())
	start(t, b, Local{Purge: func(m cache.Match) {
		if m != tier.MatchAll { // not the first one
			applying <- struct{}{}
			<-applied
		}
	}})
	eventually.True(t, func() bool { return isTrusting(b) }, "it has read the log")

	relay.Hang()
	eventually.True(t, func() bool { return !isTrusting(b) }, "redis is silent")
	for range maxFailures {
		b.breaker.note(errStarted, false)
	}
	require.False(t, b.Stats().Up)
	require.False(t, isTrusting(b), "redis may serve others")
	purgeWithout(t, a, tier.MatchFile(testFile), 1, b.o.Name)
	relay.Restore()
	<-applying
	require.False(t, isTrusting(b), "it has read the purge, and not applied it")
	close(applied)
	eventually.True(t, func() bool { return isTrusting(b) && b.Stats().Up }, "it has applied the purge")
	require.Equal(t, a.Stats().Applied, b.Stats().Applied)
}
