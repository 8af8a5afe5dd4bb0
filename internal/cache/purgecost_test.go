package cache

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"fastdfs-gateway/internal/cache/tier"
)

// TestPurgeOfAFileWalksNoRecords: what a purge of one file allocates, of which a list of all
// records would be a part, does not depend on their number.
func TestPurgeOfAFileWalksNoRecords(t *testing.T) {
	costs := func(n int) uint64 {
		c := newCache(t, Options{Memory: 1 << 40})
		for i := range n {
			c.metas.put(testFile(i), Meta{Version: Version{Size: 1, Immutable: true}, Checked: time.Now()})
		}
		before := allocated()
		c.Purge(tier.MatchFile("group1/none"))
		cost := allocated() - before
		require.Equal(t, n, c.Stats().Records)
		require.Equal(t, 1, c.Purge(tier.MatchFile(testFile(0))))
		require.Equal(t, n-1, c.Purge(tier.MatchFolder("group1")))
		require.Zero(t, c.metas.used)
		return cost
	}
	few, many := costs(1000), costs(200_000)
	t.Logf("%d bytes beside 1,000 records, %d beside 200,000", few, many)
	require.Less(t, many, few+(64<<10), "a list would be some MB")
}
