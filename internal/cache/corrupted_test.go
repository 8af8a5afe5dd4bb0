package cache

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"fastdfs-gateway/internal/cache/tier"
)

// TestDamagedThroughPeers: another gateway has stored a segment of a damaged storage. A gateway
// that reads the whole file finds it, fetches the file without other gateways and without that
// storage, and so does the next reader of the gateway that has the segment.
func TestDamagedThroughPeers(t *testing.T) {
	bubble(t, "segment of a peer", func(t *testing.T) {
		o := newOrigin(testFile(1), 3*SegmentSize)
		list := gateways(t, newFleet(), 2, Options{})
		o.damage(SegmentSize + 5)
		r := getRange(background, list[0], o, SegmentSize, 100) // of the damaged storage
		require.NoError(t, r.err)
		require.NotEqual(t, o.content[SegmentSize+5], r.body[5], "a part cannot be checked")
		synctest.Wait()
		o.set(func() { o.order = []string{"storage", "damaged"} })
		r = get(background, list[1], o)
		require.ErrorIs(t, r.err, ErrCorrupt)
		synctest.Wait()
		o.set(func() { o.order = []string{"damaged", "storage"}; o.excluded["damaged"] = true })
		requireWhole(t, o, get(background, list[1], o))
		_ = get(background, list[0], o) // finds it too
		synctest.Wait()
		requireWhole(t, o, get(background, list[0], o))
	})
	bubble(t, "verified first", func(t *testing.T) {
		o := newOrigin(testFile(1), 1000)
		o.damage(5)
		c := newCache(t, Options{VerifyFirst: func(string) (int64, bool) { return 1000, true }})
		requireWhole(t, o, get(background, c, o))
		require.Zero(t, o.rechecks.Load(), "it cannot be a link")
		require.True(t, o.excluded["damaged"])
		synctest.Wait()
		c.purgeTiers(tier.MatchAll)
		requireWhole(t, o, get(background, c, o))
		require.EqualValues(t, 1, c.Stats().CRCErrors)
	})
}
