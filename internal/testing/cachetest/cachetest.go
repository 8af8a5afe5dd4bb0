// Package cachetest tests implementations of the contract of package tier:
//
//	func TestMemory(t *testing.T) {
//		cachetest.Run(t, func(t *testing.T) cachetest.Tier { return tier.NewMemory(cachetest.Room) })
//	}
package cachetest

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"fastdfs-gateway/internal/cache/tier"
	"fastdfs-gateway/internal/testing/contenttest"
)

// Tier has the methods that the memory tier and the disk tier share.
type Tier interface {
	Get(key tier.Key, v tier.Version, touch bool) (tier.View, bool)
	Holds(key tier.Key) (tier.Version, bool)
	Put(s *tier.Segment) bool
	Purge(m tier.Match) int
}

var (
	_ Tier = (*tier.Memory)(nil)
	_ Tier = (*tier.Disk)(nil)
)

// Room is the least budget of a tier under test, in bytes.
const Room = 64 << 20

// Content returns the content of a file in tests: the same for the same name and size. It is
// read-only, see contenttest.Shared.
func Content(file string, size int64) []byte {
	return contenttest.Shared(crc32.ChecksumIEEE([]byte(file)), size)
}

// Version returns the version of a file with this content.
func Version(content []byte) tier.Version {
	return tier.Version{Size: int64(len(content)), ModTime: 1e18, CRC32: crc32.ChecksumIEEE(content), Immutable: true}
}

// Segment returns a segment of a file. Its chunks are parts of content, not copies.
func Segment(file string, index int64, content []byte) *tier.Segment {
	v := Version(content)
	rest := content[index*tier.SegmentSize:][:v.SegmentLength(index)]
	s := &tier.Segment{Key: tier.Key{File: file, Index: index}, Version: v}
	for len(rest) > 0 {
		n := min(len(rest), tier.ChunkSize)
		s.Chunks = append(s.Chunks, rest[:n:n])
		rest = rest[n:]
	}
	return s
}

// Read reads a view from an offset on, in steps of at most limit bytes, as a reader does.
func Read(view tier.View, offset, length, limit int64) ([]byte, error) {
	got := make([]byte, 0, length)
	for int64(len(got)) < length {
		s, err := view.At(offset+int64(len(got)), min(limit, length-int64(len(got))))
		if err != nil {
			return got, err
		}
		b, err := contenttest.ReadChunk(s)
		if err != nil {
			return got, err
		}
		if int64(len(b)) != s.Length || len(b) == 0 || s.Length > limit {
			return got, fmt.Errorf("a chunk of %d bytes has %d, the limit is %d", s.Length, len(b), limit)
		}
		got = append(got, b...)
	}
	return got, nil
}

// Run runs the suite. create returns an empty tier with a budget of at least Room, and closes it by
// t.Cleanup.
func Run(t *testing.T, create func(t *testing.T) Tier) {
	for name, test := range map[string]func(*testing.T, Tier){
		"put and get": putAndGet, "sizes": sizes, "versions": versions, "replace": replace,
		"purge": purge, "purged while in use": purgeInUse, "names": names, "concurrent": concurrent,
	} {
		t.Run(name, func(t *testing.T) { test(t, create(t)) })
	}
}

const file = "group1/M00/00/0C/wKgABF5xyzmAAAAAAAAAAAAAAAA123.jpg"

// find returns the content of a segment, which must be stored.
func find(t *testing.T, c Tier, s *tier.Segment) []byte {
	t.Helper()
	view, ok := c.Get(s.Key, s.Version, true)
	require.True(t, ok, s.Key.String())
	defer view.Release()
	got, err := Read(view, 0, s.Length(), tier.SegmentSize)
	require.NoError(t, err)
	return got
}

func requireMiss(t *testing.T, c Tier, key tier.Key, v tier.Version) {
	t.Helper()
	view, ok := c.Get(key, v, true)
	if ok {
		view.Release()
	}
	require.False(t, ok, key.String())
}

func putAndGet(t *testing.T, c Tier) {
	content := Content(file, 2*tier.SegmentSize+12345)
	for i := range int64(3) {
		requireMiss(t, c, tier.Key{File: file, Index: i}, Version(content))
		require.True(t, c.Put(Segment(file, i, content)))
	}
	for range 3 {
		for i := range int64(3) {
			s := Segment(file, i, content)
			require.True(t, bytes.Equal(content[i*tier.SegmentSize:][:s.Length()], find(t, c, s)))
		}
	}
	requireMiss(t, c, tier.Key{File: file, Index: 3}, Version(content))
	requireMiss(t, c, tier.Key{File: file + "x", Index: 0}, Version(content))
}

// sizes: files with sizes around those of pages, chunks and segments are stored and read.
func sizes(t *testing.T, c Tier) {
	for _, size := range []int64{1, 2, 4095, 4096, tier.ChunkSize - 1, tier.ChunkSize, tier.ChunkSize + 1,
		tier.SegmentSize - 1, tier.SegmentSize} {
		name := fmt.Sprintf("group1/M00/00/00/%d", size)
		content := Content(name, size)
		s := Segment(name, 0, content)
		require.True(t, c.Put(s))
		require.True(t, bytes.Equal(content, find(t, c, s)), "%d bytes", size)
		for _, limit := range []int64{1 + size/7, tier.ChunkSize, 100000} {
			offset := size / 3
			view, ok := c.Get(s.Key, s.Version, false)
			require.True(t, ok)
			got, err := Read(view, offset, size-offset, limit)
			view.Release()
			require.NoError(t, err)
			require.True(t, bytes.Equal(content[offset:], got), "%d bytes by %d", size, limit)
		}
	}
}

func versions(t *testing.T, c Tier) {
	s := Segment(file, 0, Content(file, 5000))
	other := s.Version
	other.ModTime++
	require.True(t, c.Put(s))
	find(t, c, s)
	requireMiss(t, c, s.Key, other)
	requireMiss(t, c, s.Key, s.Version) // Get for another version has removed the segment
}

func replace(t *testing.T, c Tier) {
	older, newer := Segment(file, 0, Content(file, 5000)), Segment(file, 0, Content(file+"2", 6000))
	_, ok := c.Holds(older.Key)
	require.False(t, ok)
	for _, s := range []*tier.Segment{older, newer} {
		require.True(t, c.Put(s))
		v, ok := c.Holds(s.Key)
		require.True(t, ok)
		require.Equal(t, s.Version, v)
	}
	require.True(t, bytes.Equal(Content(file+"2", 6000), find(t, c, newer)))
}

func purge(t *testing.T, c Tier) {
	all := []string{"group1/M00/00/00/a", "group1/M00/00/00/b", "group1/M00/00/01/a", "group1/M00/000/a",
		"group1/M01/00/00/a", "group2/M00/00/00/a"}
	for match, left := range map[tier.Match][]string{
		tier.MatchFile("group1/M00/00/00/a"): {"group1/M00/00/00/b", "group1/M00/00/01/a", "group1/M00/000/a",
			"group1/M01/00/00/a", "group2/M00/00/00/a"},
		tier.MatchFolder("group1/M00/00"): {"group1/M00/000/a", "group1/M01/00/00/a", "group2/M00/00/00/a"},
		tier.MatchFolder("group1/M00/00/00/"): {"group1/M00/00/01/a", "group1/M00/000/a", "group1/M01/00/00/a",
			"group2/M00/00/00/a"},
		tier.MatchFolder("group1"):         {"group2/M00/00/00/a"},
		tier.MatchFile("group1/M00/00/00"): all,
		tier.MatchAll:                      nil,
	} {
		for _, name := range all {
			require.True(t, c.Put(Segment(name, 0, Content(name, 1000))))
		}
		require.Equal(t, len(all)-len(left), c.Purge(match), match.String())
		for _, name := range all {
			s := Segment(name, 0, Content(name, 1000))
			view, ok := c.Get(s.Key, s.Version, false)
			view.Release()
			require.Equal(t, slices.Contains(left, name), ok, "%s after a purge of %s", name, match)
		}
		c.Purge(tier.MatchAll)
	}
}

// purgeInUse: a reader with a view reads on after a purge.
func purgeInUse(t *testing.T, c Tier) {
	content := Content(file, 3*tier.ChunkSize)
	s := Segment(file, 0, content)
	require.True(t, c.Put(s))
	view, ok := c.Get(s.Key, s.Version, true)
	require.True(t, ok)
	require.Equal(t, 1, c.Purge(tier.MatchFile(file)))
	got, err := Read(view, 0, s.Length(), 10000)
	view.Release()
	require.NoError(t, err)
	require.True(t, bytes.Equal(content, got))
	requireMiss(t, c, s.Key, s.Version)
}

// names: a file is stored under a name that means something else to a file system.
func names(t *testing.T, c Tier) {
	all := []string{"a", "..", "../..", "/", "//", "a/b", ".seg", "A"}
	for _, name := range all {
		require.True(t, c.Put(Segment(name, 0, Content(name, 100))), "%q", name)
	}
	for _, name := range all {
		require.True(t, bytes.Equal(Content(name, 100), find(t, c, Segment(name, 0, Content(name, 100)))), "%q", name)
	}
}

// concurrent: puts, gets and purges of a few keys at the same time return the right content.
func concurrent(t *testing.T, c Tier) {
	var segments []*tier.Segment
	for i := range 6 {
		for _, size := range []int64{1000, 1000 + tier.ChunkSize} {
			name := fmt.Sprintf("group1/M00/00/00/%d", i)
			segments = append(segments, Segment(name, 0, Content(name, size)))
		}
	}
	var wg sync.WaitGroup
	for worker := range uint64(8) {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(worker, 1))
			for range 100 {
				if err := oneOf(c, segments[r.IntN(len(segments))], r.IntN(10)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// oneOf purges, puts or gets a segment: which one depends on what, from 0 to 9.
func oneOf(c Tier, s *tier.Segment, what int) error {
	switch what {
	case 0:
		c.Purge(tier.MatchFile(s.File))
	case 1, 2, 3:
		c.Put(s)
	default:
		view, ok := c.Get(s.Key, s.Version, true)
		if !ok {
			return nil
		}
		defer view.Release()
		got, err := Read(view, 0, s.Length(), tier.SegmentSize)
		if content := bytes.Join(s.Chunks, nil); err != nil || !bytes.Equal(got, content) {
			return fmt.Errorf("%s: other bytes: %d of %d, %w", s.Key.String(), len(got), len(content), err)
		}
	}
	return nil
}
