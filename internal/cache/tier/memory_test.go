package tier_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"fastdfs-gateway/internal/cache/tier"
	"fastdfs-gateway/internal/testing/cachetest"
)

func TestMemory(t *testing.T) {
	cachetest.Run(t, func(*testing.T) cachetest.Tier { return tier.NewMemory(cachetest.Room) })
}

// small returns the segment of a small file.
func small(i, size int) *tier.Segment {
	return &tier.Segment{
		Key:     tier.Key{File: fmt.Sprintf("group1/M00/00/00/wKgABF5xyzmAAAAAAAAAAAAAA%09d.jpg", i)},
		Version: tier.Version{Size: int64(size), ModTime: 1}, Chunks: [][]byte{make([]byte, size)},
	}
}

// ask gets a segment, and stores it after a miss.
func ask(m *tier.Memory, s *tier.Segment) (hit bool) {
	view, ok := m.Get(s.Key, s.Version, true)
	view.Release()
	if !ok {
		m.Put(s)
	}
	return ok
}

// TestScan: files with many requests stay in memory while others are requested once.
func TestScan(t *testing.T) {
	m := tier.NewMemory(8 << 20)
	const hot, size = 500, 8 << 10
	for range 2 {
		for i := range hot {
			ask(m, small(i, size))
		}
	}
	for i := range 20000 { // 160 MiB
		ask(m, small(1000+i, size))
	}
	hits := 0
	for i := range hot {
		if ask(m, small(i, size)) {
			hits++
		}
	}
	require.Equal(t, hot, hits, "of the hot files")
}

// TestComesBack: a file that is requested again soon after its eviction stays in memory the next
// time.
func TestComesBack(t *testing.T) {
	m := tier.NewMemory(1 << 20)
	for i := range 200 {
		ask(m, small(i, 8<<10)) // more than fits
	}
	require.False(t, ask(m, small(50, 8<<10)), "it was evicted")
	for i := range 1000 {
		ask(m, small(1000+i, 8<<10))
	}
	require.True(t, ask(m, small(50, 8<<10)))
}

// TestMemoryBudget: the budget is kept and used with entries of all sizes, ghosts and reservations.
func TestMemoryBudget(t *testing.T) {
	const budget = 16 << 20
	m := tier.NewMemory(budget)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 20000 {
		size := 1 + r.IntN(1<<(4+r.IntN(14)))
		ask(m, small(r.IntN(5000), size))
		if i%100 == 0 {
			m.Reserve(1 << 20)
		}
		require.LessOrEqual(t, m.Stats().Bytes, int64(budget))
		if i%100 == 50 {
			m.Reserve(-1 << 20)
		}
	}
	require.Greater(t, m.Stats().Bytes, int64(budget*9/10))
	require.NotZero(t, m.Stats().Evicted)
	require.False(t, m.Put(small(-1, budget)), "larger than the budget")
	m.Reserve(budget / 2)
	require.LessOrEqual(t, m.Stats().Bytes, int64(budget))
	require.Greater(t, m.Stats().Bytes, int64(budget*9/10),
		"what is reserved counts, and no more than needed was evicted for it")
	m.Reserve(-budget / 2)
	require.LessOrEqual(t, m.Stats().Bytes, int64(budget/2))
	m.Purge(tier.MatchAll)
	require.Zero(t, m.Stats().Bytes, "nothing is left, not even a ghost")
}

// TestMemoryIsCounted: the counted bytes are within 5% of the memory that the process takes for
// small files, where bookkeeping is a large part.
func TestMemoryIsCounted(t *testing.T) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.GC() // the second one frees the sync.Pools of earlier tests
	runtime.ReadMemStats(&before)
	m := tier.NewMemory(1 << 30)
	for i := range 50000 {
		m.Put(small(i, 1024))
	}
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&after)
	taken, counted := float64(after.HeapAlloc)-float64(before.HeapAlloc), float64(m.Stats().Bytes)
	t.Logf("%.0f bytes an entry, %.0f counted", taken/50000, counted/50000)
	require.InEpsilon(t, taken, counted, 0.05)
	runtime.KeepAlive(m)
}

// TestPromotion: a small segment that is found on disk is promoted to memory, and a large one if
// memory has evicted it not long ago.
func TestPromotion(t *testing.T) {
	d := openDisk(t, tier.DiskOptions{Path: tier.EmptyFolder(t)})
	little, large := cachetest.Segment("little", 0, cachetest.Content("little", 1000)),
		cachetest.Segment("large", 0, cachetest.Content("large", 2*tier.ChunkSize))
	require.True(t, d.Put(little))
	require.True(t, d.Put(large))
	d.Settle()
	memory := tier.NewMemory(1 << 20)
	inMemory := func(segment *tier.Segment) bool {
		view, ok := memory.Get(segment.Key, segment.Version, true)
		if !ok {
			view, ok = d.Get(segment.Key, segment.Version, true)
			require.True(t, ok)
			view, ok = memory.Promote(view)
		}
		require.True(t, ok)
		defer view.Release()
		return view.InMemory()
	}
	require.True(t, inMemory(little))
	require.Equal(t, 1, memory.Stats().Entries)
	require.False(t, inMemory(large))
	require.True(t, memory.Put(large))
	// This evicts large.
	require.True(t, memory.Put(cachetest.Segment("other", 0, cachetest.Content("other", 3*tier.ChunkSize))))
	require.True(t, inMemory(large))
	view, ok := d.Get(little.Key, little.Version, true)
	require.True(t, ok)
	view, ok = tier.NewMemory(0).Promote(view)
	require.True(t, ok)
	require.False(t, view.InMemory(), "without room in memory it is not read for nothing")
	view.Release()
}
