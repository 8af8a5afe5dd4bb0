package cache

import (
	"bytes"
	"io"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"fastdfs-gateway/internal/cache/tier"
	"fastdfs-gateway/internal/testing/cachetest"
)

// TestPeerReadsInPlace: a segment that a peer reads stays in its place, and its bytes are not
// copied.
func TestPeerReadsInPlace(t *testing.T) {
	c := newCache(t, Options{Memory: 64 << 20, Source: func(file, _ string) (Source, error) {
		return originOf(file), nil
	}})
	o := newOrigin(testFile(1), SegmentSize)
	requireWhole(t, o, get(background, c, o))
	read := func(w *bytes.Buffer) {
		_, s, err := c.PeerOpen(background, PeerRequest{Key: SegmentKey{File: o.file}, Want: &o.v})
		require.NoError(t, err)
		n, err := io.Copy(w, s)
		require.NoError(t, err)
		require.EqualValues(t, SegmentSize, n)
		require.NoError(t, s.Close())
	}
	var got bytes.Buffer
	got.Grow(SegmentSize)
	for range 3 {
		got.Reset()
		read(&got)
		require.True(t, bytes.Equal(o.content, got.Bytes()))
	}
	require.Zero(t, c.memory.Stats().Moved)
	require.Equal(t, uint64(3), c.n.memoryHits.Load())
	before := allocated()
	got.Reset()
	read(&got)
	require.Less(t, allocated()-before, uint64(tier.ChunkSize/2))
}

// allocated returns the number of bytes that the process has allocated so far.
func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

// TestWriteTo: WriteTo writes the same bytes from memory, also from the file there that sendfile
// uses, and from the disk.
func TestWriteTo(t *testing.T) {
	for name, c := range map[string]*Cache{
		"memory": newCache(t, Options{Memory: 64 << 20}),
		"disk":   newCacheOnDisk(t, t.TempDir(), Options{Memory: 1 << 20}),
	} {
		t.Run(name, func(t *testing.T) {
			o := newOrigin(testFile(1), 2*SegmentSize+3*tier.ChunkSize+17)
			var got bytes.Buffer
			got.Grow(len(o.content))
			for range 3 {
				e, err := lookup(c, o)
				require.NoError(t, err)
				s := c.Open(background, e, o, 5, e.Version.Size-5)
				got.Reset()
				_, err = s.WriteTo(&got)
				require.NoError(t, err)
				require.True(t, bytes.Equal(o.content[5:], got.Bytes()))
				_, err = s.WriteTo(failingWriter{})
				require.NoError(t, err, "nothing is left")
				require.NoError(t, s.Close())
			}
			s := c.Open(background, Entry{File: o.file, Meta: Meta{Version: cachetest.Version(o.content)}}, o, 0, 10)
			_, err := s.WriteTo(failingWriter{})
			require.ErrorIs(t, err, errOrigin)
			require.NoError(t, s.Close())
		})
	}
}

// failingWriter fails each write with errOrigin.
type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, errOrigin }
