package cache

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"fastdfs-gateway/internal/cache/tier"
)

// TestUntrusted: a gateway that cannot read the log of purges asks the source, and not only a peer,
// before it uses metadata that is older than it trusts, also of a missing file. It downloads
// nothing again, and serves what it has while the source fails.
func TestUntrusted(t *testing.T) {
	bubble(t, "two gateways", func(t *testing.T) {
		o, missing := newOrigin(testFile(1), 1000), noFile(testFile(2))
		f := newFleet()
		list := gateways(t, f, 2, Options{NegativeTTL: time.Hour})
		for _, c := range list {
			requireWhole(t, o, get(background, c, o))
			_, err := lookup(c, missing)
			require.ErrorIs(t, err, ErrNotFound)
		}
		away := list[1]
		f.do(func() { f.trusted = map[string]time.Duration{"b": 4 * second} })
		time.Sleep(3 * second)
		requireWhole(t, o, get(background, away, o))
		require.Zero(t, o.stats.Load(), "young enough")
		for range 3 {
			time.Sleep(5 * second)
			for range 3 {
				requireWhole(t, o, get(background, away, o))
			}
			requireWhole(t, o, get(background, list[0], o))
		}
		require.EqualValues(t, 3, o.stats.Load(), "once in its time, and never for the gateway that is current")
		require.EqualValues(t, 1, o.fetches.Load())
		found := newOrigin(missing.file, 10)
		list[0].Purge(tier.MatchFile(missing.file))
		requireWhole(t, found, get(background, away, found))

		time.Sleep(5 * second)
		o.set(func() { o.down = true })
		requireWhole(t, o, get(background, away, o))
		o.set(func() { o.down, o.content = false, nil })
		time.Sleep(failsFor + 5*second)
		_, err := lookup(away, o)
		require.ErrorIs(t, err, ErrNotFound, "deleted, and the purge did not reach this gateway")
	})
}

// TestNotFoundIsCheap: a missing file without an entry does not cost a walk over all entries.
func TestNotFoundIsCheap(t *testing.T) {
	c := newCache(t, Options{})
	purges := 0
	c.onPurge = func() { purges++ }
	for i := range 10 {
		o := newOrigin(testFile(i), 1)
		o.content = nil
		_, err := c.Get(context.Background(), o.file, o, GetOptions{Hint: NoHint})
		require.ErrorIs(t, err, ErrNotFound)
	}
	require.Zero(t, purges)
	o := newOrigin(testFile(100), 1<<10)
	requireWhole(t, o, get(context.Background(), c, o))
	o.set(func() { o.content = nil })
	c.metas.invalidate(o.file, o.v)
	_, err := c.Get(context.Background(), o.file, o, GetOptions{Hint: NoHint})
	require.ErrorIs(t, err, ErrNotFound)
	require.Equal(t, 1, purges, "what is kept of a file that was there goes with it")
}
