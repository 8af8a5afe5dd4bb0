package tier

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"fastdfs-gateway/internal/content/arena"
	"fastdfs-gateway/internal/testing/contenttest"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// numbered returns a segment of n bytes that differ for each number. The bytes are read-only.
func numbered(i, n int) *Segment {
	s := &Segment{Key: Key{File: fmt.Sprintf("group1/M00/00/00/%09d.bin", i)}, Version: Version{Size: int64(n)}}
	content := contenttest.Shared(uint32(i), int64(n))
	for len(content) > 0 {
		chunk := content[:min(len(content), ChunkSize)]
		s.Chunks, content = append(s.Chunks, chunk[:len(chunk):len(chunk)]), content[len(chunk):]
	}
	return s
}

// contentOf reads all of a view.
func contentOf(t require.TestingT, v View, n int64) []byte {
	all := make([]byte, 0, n)
	for int64(len(all)) < n {
		s, err := v.At(int64(len(all)), n-int64(len(all)))
		require.NoError(t, err)
		b, err := contenttest.ReadChunk(s)
		require.NoError(t, err)
		all = append(all, b...)
	}
	return all
}

// resident returns the memory of the system that the arena takes.
func (m *Memory) resident(t *testing.T) int64 {
	t.Helper()
	var stat unix.Stat_t
	require.NoError(t, unix.Fstat(int(m.arena.File().Fd()), &stat))
	return stat.Blocks * 512
}

// withArena returns a memory tier whose segments can move into an arena.
func withArena(t *testing.T, budget int64) *Memory {
	t.Helper()
	m := NewMemory(budget)
	if err := m.UseSendfile(); err != nil {
		t.Skip(err)
	}
	return m
}

// TestArena: a segment that is requested again is in one piece of a file in memory from then on,
// unless it is small.
func TestArena(t *testing.T) {
	m := withArena(t, 64<<20)
	for i, size := range []int{1, minExtent - 1, minExtent, ChunkSize, ChunkSize + 1, SegmentSize - 1,
		SegmentSize} {
		s := numbered(i, size)
		require.True(t, m.Put(s))
		for _, touch := range []bool{false, true, true, false} {
			view, ok := m.Get(s.Key, s.Version, touch)
			require.True(t, ok)
			require.True(t, view.InMemory())
			require.Equal(t, bytes.Join(s.Chunks, nil), contentOf(t, view, int64(size)), "%d bytes", size)
			view.Release()
		}
		view, ok := m.Get(s.Key, s.Version, false)
		require.True(t, ok)
		stretch, err := view.At(0, int64(size))
		require.NoError(t, err)
		require.Equal(t, size >= minExtent, stretch.Resident)
		require.EqualValues(t, size, stretch.Length, "in one piece")
		view.Release()
	}
	require.LessOrEqual(t, m.resident(t), m.Stats().Bytes)
}

// TestArenaGivesBack: eviction and purge return the memory of a segment to the system. Segments
// with readers are not evicted, and no reader gets bytes of another segment.
func TestArenaGivesBack(t *testing.T) {
	m := withArena(t, 4<<20)
	first := numbered(0, 1<<20)
	ask := func(s *Segment) View {
		if !m.Put(s) {
			t.Fatal("no room")
		}
		view, ok := m.Get(s.Key, s.Version, true)
		require.True(t, ok)
		return view
	}
	held := ask(first)
	for i := 1; i < 40; i++ {
		ask(numbered(i, 1<<20)).Release()
		require.LessOrEqual(t, m.resident(t), m.Stats().Bytes)
		require.LessOrEqual(t, m.Stats().Bytes, int64(4<<20), "with what is held")
	}
	_, ok := m.Holds(first.Key)
	require.True(t, ok, "it was not evicted")
	require.Equal(t, bytes.Join(first.Chunks, nil), contentOf(t, held, 1<<20))
	m.Purge(MatchAll)
	require.EqualValues(t, 1<<20, m.resident(t), "what is held")
	require.EqualValues(t, 1<<20, m.Stats().Bytes)
	held.Release()
	require.Zero(t, m.Stats().Bytes)
	require.Zero(t, m.resident(t))
}

// TestArenaFull: if the arena has no memory for a segment, the segment stays in its place and is
// readable.
func TestArenaFull(t *testing.T) {
	m := withArena(t, 64<<20)
	require.NoError(t, m.arena.File().Close())
	s := numbered(1, ChunkSize)
	require.True(t, m.Put(s))
	for range 3 {
		view, ok := m.Get(s.Key, s.Version, true)
		require.True(t, ok)
		require.Equal(t, s.Chunks[0], contentOf(t, view, ChunkSize))
		view.Release()
	}
}

// TestSlowReadersCount: extents with readers count in the budget, and leave a quarter of it to
// other segments.
func TestSlowReadersCount(t *testing.T) {
	m := withArena(t, 8<<20)
	var held []View
	for i := range 50 {
		s := numbered(i, 1<<20)
		require.True(t, m.Put(s))
		view, ok := m.Get(s.Key, s.Version, true)
		require.True(t, ok)
		if view.extent != nil {
			held = append(held, view)
		}
		require.LessOrEqual(t, m.Stats().Bytes, int64(8<<20))
		require.LessOrEqual(t, m.resident(t), int64(8<<20))
	}
	require.Len(t, held, 6)
	for _, view := range held {
		view.Release()
	}
	require.Zero(t, m.inUse.Load())
	s := numbered(99, 1<<20)
	require.True(t, m.Put(s))
	view, ok := m.Get(s.Key, s.Version, true)
	require.True(t, ok)
	require.NotNil(t, view.extent, "it moves again")
	view.Release()
}

// TestMovedMeanwhile: a segment that replaces another one while that is being moved into the arena
// keeps its own content.
func TestMovedMeanwhile(t *testing.T) {
	m := withArena(t, 8<<20)
	before, after := numbered(1, ChunkSize), numbered(2, ChunkSize)
	after.Key = before.Key
	require.True(t, m.Put(before))
	k := m.find(before.Key)
	require.NotNil(t, k)
	require.True(t, m.movesLocked(k))
	require.True(t, m.Put(after))
	p := m.move(k, before)
	view := View{extent: p}
	require.Equal(t, before.Chunks[0], contentOf(t, view, ChunkSize), "the one that has moved it reads it")
	for range 2 {
		now, ok := m.Get(before.Key, after.Version, true)
		require.True(t, ok)
		require.Equal(t, after.Chunks[0], contentOf(t, now, ChunkSize))
		now.Release()
	}
	view.Release()
	require.EqualValues(t, ChunkSize, m.resident(t))
}

// TestMemoryCounts: the counters are equal to the sums over the lists after each of many calls.
func TestMemoryCounts(t *testing.T) {
	m := withArena(t, 6<<20)
	r := rand.New(rand.NewPCG(7, 7))
	var held []View
	reserved := int64(0)
	for range 5000 {
		s := numbered(r.IntN(40), 1000+r.IntN(2)*400_000)
		switch r.IntN(10) {
		case 0, 1, 2:
			m.Put(s)
		case 3:
			m.Purge(MatchFile(s.File))
		case 4:
			n := int64(r.IntN(1 << 20))
			m.Reserve(n - reserved)
			reserved = n
		case 5:
			for _, v := range held {
				v.Release()
			}
			held = nil
		default:
			if view, ok := m.Get(s.Key, s.Version, r.IntN(3) > 0); ok && len(held) < 5 {
				held = append(held, view)
			} else {
				view.Release()
			}
		}
		m.requireCounted(t, reserved)
	}
	for _, v := range held {
		v.Release()
	}
	m.Purge(MatchAll)
	m.requireCounted(t, reserved)
	require.Equal(t, reserved, m.Stats().Bytes)
	require.Zero(t, m.inUse.Load())
	require.Zero(t, m.resident(t))
}

// requireCounted requires that the counters are equal to the sums over the entries.
func (m *Memory) requireCounted(t *testing.T, reserved int64) {
	t.Helper()
	var used, recent, placed, stood int64
	listed := m.recent.Len() + m.frequent.Len() + m.ghosts.Len()
	m.all.Visit(&m.mu, MatchAll, func(_ Key, k *memoryEntry) {
		listed--
		switch k.list {
		case &m.ghosts:
			used, stood = used+ghostCost(k.key), stood+k.cost
			return
		case &m.recent:
			recent += k.cost
		}
		used += k.cost
		if k.extent != nil {
			placed += arena.Cost(k.extent.Length)
		}
	})
	require.Zero(t, listed)
	require.Equal(t, []int64{used, recent, stood, reserved, placed + m.pinned},
		[]int64{m.used, m.recentUsed, m.ghostSegments, m.reserved, m.resident(t)})
}
