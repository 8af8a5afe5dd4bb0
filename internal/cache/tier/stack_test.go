package tier_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"fastdfs-gateway/internal/cache/tier"
	"fastdfs-gateway/internal/testing/cachetest"
)

// TestPromotion: small segments go up when they are found below, large ones when memory had to give
// them up not long ago.
func TestPromotion(t *testing.T) {
	d := openDisk(t, tier.DiskOptions{Path: t.TempDir()})
	little, large := cachetest.Segment("little", 0, cachetest.Content("little", 1000)),
		cachetest.Segment("large", 0, cachetest.Content("large", 2*tier.ChunkSize))
	require.True(t, d.Put(little))
	require.True(t, d.Put(large))
	d.Settle()
	memory := tier.NewMemory(1 << 20)
	s := tier.NewStack(memory, d)
	inMemory := func(segment *tier.Segment, touch bool) bool {
		view, ok := s.Get(segment.Key, segment.Version, touch)
		require.True(t, ok)
		defer view.Release()
		return view.InMemory()
	}
	require.False(t, inMemory(little, false), "a further look is no use")
	require.True(t, inMemory(little, true))
	require.Equal(t, 1, memory.Stats().Entries)
	require.False(t, inMemory(large, true))
	require.True(t, memory.Put(large))
	// Evicts it.
	require.True(t, memory.Put(cachetest.Segment("other", 0, cachetest.Content("other", 3*tier.ChunkSize))))
	require.True(t, inMemory(large, true))
}

// TestReady: what an earlier process has left is a miss until it may be used.
func TestReady(t *testing.T) {
	path := t.TempDir()
	s := cachetest.Segment("a", 0, cachetest.Content("a", 1000))
	d := openDisk(t, tier.DiskOptions{Path: path})
	require.True(t, d.Put(s))
	d.Settle()
	require.NoError(t, d.Close())
	ready := make(chan struct{})
	d = openDisk(t, tier.DiskOptions{Path: path, Ready: ready})
	_, held := d.Holds(s.Key)
	require.False(t, held)
	_, found := d.Get(s.Key, s.Version, true)
	require.False(t, found)
	close(ready)
	_, held = d.Holds(s.Key)
	require.True(t, held)
	view, found := d.Get(s.Key, s.Version, true)
	require.True(t, found)
	view.Release()
}
