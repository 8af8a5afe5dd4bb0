package tier

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// numbered is a segment of n bytes that are others for each number.
func numbered(i, n int) *Segment {
	s := &Segment{Key: Key{File: fmt.Sprintf("group1/M00/00/00/%09d.bin", i)}, Version: Version{Size: int64(n)}}
	content := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{byte(i), byte(i >> 8)}).Read(content) // never fails
	for len(content) > 0 {
		chunk := content[:min(len(content), ChunkSize)]
		s.Chunks, content = append(s.Chunks, chunk), content[len(chunk):]
	}
	return s
}

// contentOf reads all of a view.
func contentOf(t require.TestingT, v View, n int64) []byte {
	var all []byte
	for int64(len(all)) < n {
		s, err := v.At(int64(len(all)), n-int64(len(all)))
		require.NoError(t, err)
		b := s.Bytes
		if b == nil {
			b = make([]byte, s.Length)
			_, err := unix.Pread(s.Fd, b, s.Offset)
			require.NoError(t, err)
		}
		all = append(all, b...)
	}
	return all
}

// resident is what an arena takes of the system's memory.
func (a *arena) resident(t *testing.T) int64 {
	t.Helper()
	var stat unix.Stat_t
	require.NoError(t, unix.Fstat(int(a.file.Fd()), &stat))
	return stat.Blocks * 512
}

// TestArena: what is asked for again is given as one stretch of a file in memory from then on, unless it is small.
func TestArena(t *testing.T) {
	m := NewMemory(64 << 20)
	for i, size := range []int{1, leastPlaced - 1, leastPlaced, ChunkSize, ChunkSize + 1, SegmentSize - 1, SegmentSize} {
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
		require.Equal(t, size >= leastPlaced, stretch.Resident)
		require.EqualValues(t, size, stretch.Length, "in one piece")
		view.Release()
	}
	require.LessOrEqual(t, m.arena.resident(t), m.Stats().Bytes)
}

// TestArenaGivesBack: what is evicted or dropped gives its memory back, but not while somebody reads it, and nobody ever reads bytes
// of another segment.
func TestArenaGivesBack(t *testing.T) {
	m := NewMemory(4 << 20)
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
		require.LessOrEqual(t, m.arena.resident(t), int64(5<<20), "the budget, and what is held")
		require.LessOrEqual(t, m.Stats().Bytes, int64(4<<20))
	}
	_, ok := m.Get(first.Key, first.Version, true)
	require.False(t, ok, "it was evicted")
	require.Equal(t, bytes.Join(first.Chunks, nil), contentOf(t, held, 1<<20))
	m.Drop(MatchAll())
	require.EqualValues(t, 1<<20, m.arena.resident(t), "what is held")
	require.Zero(t, m.Stats().Bytes)
	held.Release()
	require.Zero(t, m.arena.resident(t))
}

// TestArenaUnderLoad: readers, evictions, purges and segments that are put again, all at once.
func TestArenaUnderLoad(t *testing.T) {
	m := NewMemory(2 << 20)
	segments := make([]*Segment, 60)
	for i := range segments {
		segments[i] = numbered(i, leastPlaced+i*2500)
	}
	var all sync.WaitGroup
	for worker := range 4 {
		all.Go(func() {
			r := rand.New(rand.NewPCG(uint64(worker), 1))
			for range 500 {
				s := segments[r.IntN(len(segments))]
				view, ok := m.Get(s.Key, s.Version, true)
				if !ok {
					m.Put(s)
					continue
				}
				if r.IntN(20) == 0 {
					m.Drop(MatchFile(s.File))
				}
				if got := contentOf(t, view, s.Version.Size); !bytes.Equal(bytes.Join(s.Chunks, nil), got) {
					t.Error("bytes of something else")
				}
				view.Release()
			}
		})
	}
	all.Wait()
	require.LessOrEqual(t, m.arena.resident(t), int64(2<<20))
	m.Drop(MatchAll())
	require.Zero(t, m.arena.resident(t))
	require.Zero(t, m.Stats().Bytes)
}

// TestNoArena: where the system gives no such file, segments stay where they are.
func TestNoArena(t *testing.T) {
	m := NewMemory(64 << 20)
	m.noArena = true
	s := numbered(1, SegmentSize)
	require.True(t, m.Put(s))
	for range 3 {
		view, ok := m.Get(s.Key, s.Version, true)
		require.True(t, ok)
		stretch, err := view.At(0, SegmentSize)
		require.NoError(t, err)
		require.Len(t, stretch.Bytes, ChunkSize)
		view.Release()
	}
}

// TestArenaFull: where there is no memory for it, a segment stays where it is, and what was written is given back.
func TestArenaFull(t *testing.T) {
	a, err := newArena()
	require.NoError(t, err)
	require.NoError(t, a.file.Close())
	m := NewMemory(64 << 20)
	m.arena = a
	s := numbered(1, ChunkSize)
	require.True(t, m.Put(s))
	for range 3 {
		view, ok := m.Get(s.Key, s.Version, true)
		require.True(t, ok)
		require.Equal(t, s.Chunks[0], contentOf(t, view, ChunkSize))
		view.Release()
	}
}
