package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"fastdfs-gateway/internal/cache/tier"
	"fastdfs-gateway/internal/testing/eventually"
)

// TestAsStack: simulated tiers and a real Stack with the same requests have the same hits, and take
// the same bytes.
func TestAsStack(t *testing.T) {
	const files, requests, memoryMax, diskMax = 300, 2000, 8 << 20, 24 << 20
	traffic := newTraffic(files, 1, 0.7)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range files {
		size := int64(1024 * math.Pow(1024, r.Float64())) // 1 KiB to 1 MiB
		traffic.segments[i] = segment(fileName(i), size)
	}
	m := tier.NewMemory(memoryMax)
	d, err := tier.OpenDisk(tier.DiskOptions{Path: t.TempDir(), Max: diskMax})
	require.NoError(t, err)
	defer func() { require.NoError(t, d.Close()) }()
	eventually.True(t, d.Listed)
	stack, simulated := tier.NewStack(m, d), newTiers(traffic.segments, memoryMax, diskMax)
	hits := 0
	for i := range requests {
		k := traffic.draw(r)
		s, onDisk := traffic.segments[k], k%4 != 0
		view, hit := stack.Get(s.Key, s.Version, true)
		view.Release()
		require.Equal(t, hit, simulated.Get(k), "request %d", i)
		switch {
		case hit:
			hits++
			continue
		case onDisk:
			stack.Put(s)
			eventually.True(t, func() bool { return isWritten(d, s) })
		default:
			m.Put(s)
		}
		simulated.Put(k, onDisk)
		require.InEpsilon(t, m.Stats().Bytes, simulated.memory.Stats().Bytes, 0.02, "request %d", i)
		require.Equal(t, d.Stats().Bytes, simulated.diskUsed, "request %d", i)
	}
	t.Logf("%d of %d were hits, memory evicted %d, the disk %d", hits, requests, m.Stats().Evicted, d.Stats().Evicted)
	require.Greater(t, hits, requests/4)
	require.NotZero(t, m.Stats().Evicted)
	require.NotZero(t, d.Stats().Evicted)
}

// isWritten tells whether a segment is in a file.
func isWritten(d *tier.Disk, s *tier.Segment) bool {
	view, ok := d.Get(s.Key, s.Version, false)
	defer view.Release()
	return ok && view.FromDisk()
}

// TestRestart: what is on disk stays, oldest use first to go, and memory is empty.
func TestRestart(t *testing.T) {
	const room = 3 * 8192
	var segments []*tier.Segment
	for i := range 5 {
		segments = append(segments, segment(fmt.Sprint(i), 4096)) // 8 KiB each with the header
	}
	s := newTiers(segments, 1<<20, room)
	for i := range int32(3) {
		s.Put(i, true)
	}
	s.Put(3, false)
	s.Restart()
	require.Zero(t, s.memory.Stats().Bytes)
	require.EqualValues(t, room, s.diskUsed)
	require.False(t, s.Get(3), "it was in memory only")
	require.True(t, s.Get(0))
	s.Put(4, true)
	require.False(t, s.Holds(1), "it was not used for the longest time")
	require.True(t, s.Get(2))
	require.True(t, s.Get(0))
}
