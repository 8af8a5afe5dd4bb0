package tier_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"fastdfs-gateway/internal/cache/cachetest"
	"fastdfs-gateway/internal/cache/tier"
)

// TestSizesAsStack: Sizes and a real Stack with the same requests have the same hits, and take
// nearly the same bytes.
func TestSizesAsStack(t *testing.T) {
	const files, requests, memory, disk, name = 400, 3000, 8 << 20, 24 << 20, 60
	m := tier.NewMemory(memory)
	if err := m.NoSendfile(); err != nil {
		t.Skip("segments do not move on this system: ", err)
	}
	d := openDisk(t, tier.DiskOptions{Path: t.TempDir(), Max: disk})
	stack, sizes := tier.NewStack(m, d), tier.NewSizes[int](tier.SizesOptions{Memory: memory, Disk: disk, Name: name})
	r, z := rand.New(rand.NewPCG(1, 2)), newZipf(files, 0.7)
	segments := make([]*tier.Segment, files)
	for i := range segments {
		file := fmt.Sprintf("group1/M00/00/00/%0*d", name-len("group1/M00/00/00/"), i)
		length := int64(1024 * math.Pow(1024, r.Float64())) // 1 KiB to 1 MiB
		segments[i] = cachetest.Segment(file, 0, cachetest.Content(file, length))
		for j, chunk := range segments[i].Chunks {
			segments[i].Chunks[j] = slices.Clip(chunk)
		}
		segments[i].Chunks = slices.Clip(segments[i].Chunks)
	}
	hits, differ := 0, 0
	for i := range requests {
		k := z.draw(r)
		s, onDisk := segments[k], k%4 != 0
		view, hit := stack.Get(s.Key, s.Version, true)
		view.Release()
		simulated := sizes.Get(k, s.Length())
		if !simulated {
			sizes.Put(k, s.Length(), onDisk)
		}
		switch {
		case hit:
			hits++
		case onDisk:
			stack.Put(s)
			d.Settle()
		default:
			m.Put(s)
		}
		if hit != simulated {
			differ++
		}
		inMemory, inFiles := sizes.Used()
		require.InEpsilon(t, m.Stats().Bytes, inMemory, 0.05, "request %d", i)
		require.InEpsilon(t, d.Stats().Bytes, inFiles, 0.05, "request %d", i)
	}
	require.LessOrEqual(t, differ, requests/500, "segments from disk have some spare bytes in memory, no more")
	t.Logf("%d of %d were hits, %d differ, memory evicted %d, the disk %d", hits, requests, differ,
		m.Stats().Evicted, d.Stats().Evicted)
	require.Greater(t, hits, requests/4)
	require.NotZero(t, m.Stats().Evicted)
	require.NotZero(t, d.Stats().Evicted)
}

// TestSizesRestart: what is on disk stays, oldest use first to go, and memory is empty.
func TestSizesRestart(t *testing.T) {
	const room = 3 * 8192
	s := tier.NewSizes[int](tier.SizesOptions{Memory: 1 << 20, Disk: room, Name: 60})
	for i := range 3 {
		s.Put(i, 4096, true) // 8 KiB each with the header
	}
	s.Put(3, 4096, false)
	s.Restart()
	memory, disk := s.Used()
	require.Equal(t, []int64{0, room}, []int64{memory, disk})
	require.False(t, s.Get(3, 4096), "it was in memory only")
	require.True(t, s.Get(0, 4096))
	s.Put(4, 4096, true)
	require.False(t, s.Holds(1), "it was not used for the longest time")
	require.True(t, s.Get(2, 4096))
	require.True(t, s.Get(0, 4096))
}
