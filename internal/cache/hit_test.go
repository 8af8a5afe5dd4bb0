package cache

import (
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"fastdfs-gateway/internal/cache/tier"
	"fastdfs-gateway/internal/content"
	"fastdfs-gateway/internal/testing/contenttest"
)

// hit is a Get without a source, which sends no request.
func hit(c *Cache, o *origin) (Entry, bool) {
	e, err := c.Get(background, o.file, nil, GetOptions{})
	return e, err == nil
}

// TestHit: Get without a source returns the same entry as with one, but only while no request to a
// storage is due.
func TestHit(t *testing.T) {
	bubble(t, "hit", func(t *testing.T) {
		o := newOrigin(testFile(1), 1000)
		o.first = second
		c := newCache(t, Options{})
		_, ok := hit(c, o)
		require.False(t, ok, "nothing is known")
		requireWhole(t, o, get(background, c, o))
		time.Sleep(time.Minute)
		found, ok := hit(c, o)
		require.True(t, ok)
		known, err := lookup(c, o)
		require.NoError(t, err)
		expires := found.rec.expires
		require.Equal(t, known, found)
		time.Sleep(time.Until(expires) - second)
		_, ok = hit(c, o)
		require.True(t, ok)
		require.Zero(t, o.stats.Load())
		time.Sleep(time.Hour)
		_, ok = hit(c, o)
		require.False(t, ok, "expired")
		requireWhole(t, o, get(background, c, o))
		time.Sleep(2 * second)
		_, ok = hit(c, o)
		require.True(t, ok, "asked again")
		c.metas.invalidate(o.file, Version{Size: 1})
		_, ok = hit(c, o)
		require.True(t, ok, "another version")
		c.metas.invalidate(o.file, o.v)
		_, ok = hit(c, o)
		require.False(t, ok, "a storage has contradicted")
		require.Zero(t, c.Purge(tier.MatchFile("another")))
		require.Positive(t, c.Purge(tier.MatchFile(o.file)))
		_, ok = hit(c, o)
		require.False(t, ok, "purged")
		o.first = 0
		o.set(func() { o.content = nil })
		_, err = lookup(c, o)
		require.ErrorIs(t, err, ErrNotFound)
		_, ok = hit(c, o)
		require.False(t, ok, "gone")
	})
}

// TestAttachment: hits return the attachment of an entry until its metadata is revalidated.
func TestAttachment(t *testing.T) {
	bubble(t, "attachment", func(t *testing.T) {
		o := newOrigin(testFile(1), 1000)
		c := newCache(t, Options{})
		requireWhole(t, o, get(background, c, o))
		e, ok := hit(c, o)
		require.True(t, ok)
		require.Nil(t, e.Attachment())
		e.Attach("mine")
		e, ok = hit(c, o)
		require.True(t, ok)
		require.Equal(t, "mine", e.Attachment())
		e, err := lookup(c, o)
		require.NoError(t, err)
		require.Equal(t, "mine", e.Attachment())
		time.Sleep(11 * time.Minute)
		requireWhole(t, o, get(background, c, o))
		time.Sleep(2 * second)
		e, ok = hit(c, o)
		require.True(t, ok)
		require.Nil(t, e.Attachment(), "the file may be another one by now")
	})
}

// TestPin: Pin returns a range that is in memory in one piece. All others need a Stream.
func TestPin(t *testing.T) {
	const size = SegmentSize + 3*tier.ChunkSize + 100
	o := newOrigin(testFile(1), size)
	c := newCache(t, Options{})
	requireWhole(t, o, get(background, c, o))
	idle(t, c)
	e, ok := hit(c, o)
	require.True(t, ok)
	before := c.Stats().MemoryHits
	given := uint64(0)
	for _, part := range []struct {
		offset, length int64
		ok             bool
	}{
		{0, 1, true}, {tier.ChunkSize - 1, 2, true}, {0, SegmentSize, true}, {0, SegmentSize + 1, false},
		{SegmentSize - 1, 1, true}, {SegmentSize - 1, 2, false},
		{SegmentSize, 100, true}, {SegmentSize + 5, 3 * tier.ChunkSize, true}, {size - 100, 100, true},
		{size - 1, 1, true},
		{size - 1, 2, false}, {size, 1, false}, {-1, 1, false}, {0, 0, false}, {5, -1, false},
		{1 << 62, 1 << 62, false},
	} {
		held, ok := c.Pin(&e, part.offset, part.length)
		require.Equal(t, part.ok, ok, "%v", part)
		if ok {
			given++
			require.Equal(t, o.content[part.offset:part.offset+part.length], bytesOf(t, held.Chunk))
		}
		held.Release()
		held.Release() // does nothing
	}
	require.Equal(t, before+given, c.Stats().MemoryHits)
	other := e
	other.Version.CRC32++
	_, ok = c.Pin(&other, 0, 1)
	require.False(t, ok, "another version")
	_, ok = c.Pin(&e, 0, 1)
	require.False(t, ok, "removed by that")
	held, ok := c.Pin(&e, SegmentSize, 100)
	require.True(t, ok)
	c.Purge(tier.MatchAll)
	require.Equal(t, o.content[SegmentSize:SegmentSize+100], bytesOf(t, held.Chunk), "what is held stays as it is")
	held.Release()
	_, ok = c.Pin(&e, SegmentSize, 1)
	require.False(t, ok, "purged")
}

// bytesOf returns the bytes of a chunk, in memory or in a file.
func bytesOf(t *testing.T, c content.Chunk) []byte {
	t.Helper()
	b, err := contenttest.ReadChunk(c)
	require.NoError(t, err)
	return b
}

// TestFirstUse: the first use of a segment is the read of the request that has fetched it, ahead of
// time or not. The read of another request is the second use, after which the segment is in a file
// in memory.
func TestFirstUse(t *testing.T) {
	for name, pause := range map[string]time.Duration{"quick client": 0, "slow client": 10 * second} {
		for _, size := range []int64{1 << 20, 4 * SegmentSize} {
			bubble(t, name, func(t *testing.T) {
				o := newOrigin(testFile(1), size)
				o.first, o.whole = second, second
				c := newCache(t, Options{})
				if err := tier.NewMemory(0).UseSendfile(); err != nil {
					t.Skip(err)
				}
				for use := range 3 {
					e, err := c.Get(background, o.file, o, GetOptions{})
					require.NoError(t, err)
					s := c.Open(background, e, o, 0, size)
					for err == nil {
						time.Sleep(pause)
						_, err = s.Next(SegmentSize)
					}
					require.ErrorIs(t, err, io.EOF)
					require.NoError(t, s.Close())
					synctest.Wait() // the stream returns the last bytes before the segment is stored
					for i := range e.Version.Segments() {
						view, ok := c.memory.Get(tier.Key{File: o.file, Index: i}, e.Version, false)
						require.True(t, ok)
						stretch, err := view.At(0, 1)
						require.NoError(t, err)
						require.Equal(t, use > 0, stretch.Resident, "segment %d, use %d", i, use)
						view.Release()
					}
				}
				require.EqualValues(t, o.v.Segments(), c.Stats().Misses)
			})
		}
	}
}

// TestStoredBetween: bytes count as read from the source if the fill that a request has waited for
// stores the segment after the stream has looked in the tiers, and ends before the stream joins a
// fill.
func TestStoredBetween(t *testing.T) {
	o := newOrigin(testFile(1), 100)
	c := newCache(t, Options{})
	e, err := c.Get(background, o.file, o, GetOptions{})
	require.NoError(t, err)
	idle(t, c)
	s := c.Open(background, e, o, 0, 100)
	s.index, s.f = 0, c.join(c.entryAt(o.file, 0), o, fillOptions{want: &s.v}, 1)
	idle(t, c)
	got, err := io.ReadAll(s)
	require.NoError(t, err)
	require.Equal(t, o.content, got)
	require.Equal(t, FromOrigin, s.From())
	require.NoError(t, s.Close())
}
