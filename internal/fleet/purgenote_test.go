package fleet

import (
	"testing"

	"fastdfs-gateway/internal/cache/tier"
	"fastdfs-gateway/internal/testing/redistest"

	"github.com/stretchr/testify/require"
)

// TestPurgesAreNotedTogether: a gateway that has missed many purges stores the fence on its disk
// once for each page of them that it reads, not for each purge.
func TestPurgesAreNotedTogether(t *testing.T) {
	o := fleetOf(redistest.Shared(t).Addr())
	a := member(t, o, 1)
	start(t, a, (&memory{}).local())
	const pages, page = 3, 10
	m := memory{last: a.Stats().Applied, noted: true}
	for range pages * page {
		purge(t, a, tier.MatchFile(testFile), 1)
	}
	b := member(t, o, 2)
	b.purges.page = page
	local := m.withDisk()
	var noted []int64
	store := local.Store
	local.Store = func(n int64) error {
		noted = append(noted, n)
		return store(n)
	}
	start(t, b, local)
	require.NoError(t, b.Close())
	require.Len(t, m.take(), pages*page)
	require.Equal(t, a.Stats().Applied, m.last)
	require.LessOrEqual(t, len(noted), pages+1, "the last one when the log was read")
}
