package cache

import (
	"bytes"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"fastdfs-gateway/internal/cache/tier"

	"github.com/stretchr/testify/require"
)

// slowReader is a client that reads one chunk at a time, when no fill makes progress any more.
type slowReader struct {
	*Stream
	o    *origin
	read int
}

func slowReaders(t *testing.T, c *Cache, sources ...*origin) (list []*slowReader) {
	t.Helper()
	for _, o := range sources {
		e, err := c.Get(background, o.file, o, GetOptions{})
		require.NoError(t, err)
		list = append(list, &slowReader{Stream: c.Open(background, e, o, 0, e.Version.Size), o: o})
	}
	t.Cleanup(func() {
		for _, r := range list {
			_ = r.Close()
		}
	})
	return list
}

// next reads a chunk, or the rest of the file, and compares it.
func (r *slowReader) next(t *testing.T) error {
	t.Helper()
	for end := r.read + tier.ChunkSize; r.read < end; {
		synctest.Wait()
		chunk, err := r.Next(int64(end - r.read))
		if err != nil {
			return err
		}
		got := make([]byte, chunk.Length)
		_, err = chunk.Load(got)
		require.NoError(t, err)
		require.True(t, bytes.Equal(r.o.content[r.read:r.read+len(got)], got), "from byte %d on", r.read)
		r.read += len(got)
	}
	return nil
}

// takeAll reads one chunk with each reader in turn until each has its whole file. It calls evict
// before each round.
func takeAll(t *testing.T, list []*slowReader, evict func()) {
	t.Helper()
	for left := len(list); left > 0; {
		evict()
		left = 0
		for _, r := range list {
			err := r.next(t)
			if err == nil {
				left++
				continue
			}
			require.ErrorIs(t, err, io.EOF)
			require.Equal(t, len(r.o.content), r.read)
		}
	}
}

// large returns files of two segments.
func large(n int) (list []*origin) {
	for i := range n {
		list = append(list, newOrigin(testFile(i), SegmentSize+12345))
	}
	return list
}

// TestSlowReaders: for slow clients of more files than fit into the memory, each segment is fetched
// at most twice: once as a whole, and its rest chunk by chunk.
func TestSlowReaders(t *testing.T) {
	for name, memory := range map[string]int64{"small memory": 4 * SegmentSize, "no memory": -1} {
		bubble(t, name, func(t *testing.T) {
			files := large(12)
			c := newCache(t, Options{Memory: memory})
			list := slowReaders(t, c, files...)
			takeAll(t, list, func() {
				c.mu.Lock()
				defer c.mu.Unlock()
				kept := int64(0)
				for _, f := range c.keptFills {
					kept += f.length
				}
				require.LessOrEqual(t, kept, int64(maxKept))
			})
			for _, o := range files {
				require.LessOrEqual(t, o.served.Load(), 2*o.v.Size)
			}
			for _, r := range list {
				require.NoError(t, r.Close())
			}
			require.Empty(t, c.uncached)
			require.Empty(t, c.keptFills)
		})
	}
}

// TestSlowReadersOfOneSegment: if a segment with many slow clients is evicted before each of their
// chunks, three of the clients fetch chunks, and the others share fills.
func TestSlowReadersOfOneSegment(t *testing.T) {
	bubble(t, "one file", func(t *testing.T) {
		o := newOrigin(testFile(1), SegmentSize)
		var same []*origin
		for range 40 {
			same = append(same, o)
		}
		c := newCache(t, Options{})
		takeAll(t, slowReaders(t, c, same...), func() { c.purgeTiers(tier.MatchAll) })
		require.LessOrEqual(t, o.served.Load(), int64((1+3+SegmentSize/tier.ChunkSize)*SegmentSize))
	})
}

// TestKeptWithoutReaders: a segment that no tier takes is freed after a while if no stream reads
// it, and a fill without bytes is not kept at all.
func TestKeptWithoutReaders(t *testing.T) {
	bubble(t, "no memory", func(t *testing.T) {
		c := newCache(t, Options{Memory: -1})
		empty, some := newOrigin(testFile(1), 0), newOrigin(testFile(2), 1000)
		for _, o := range []*origin{empty, some} {
			_, err := c.Get(background, o.file, o, GetOptions{})
			require.NoError(t, err)
		}
		synctest.Wait()
		require.Equal(t, []string{some.file}, keptFiles(c))
		time.Sleep(lingerTime)
		synctest.Wait()
		require.Empty(t, keptFiles(c))

		r := slowReaders(t, c, newOrigin(testFile(3), SegmentSize))[0]
		require.NoError(t, r.next(t))
		time.Sleep(2 * lingerTime)
		require.Len(t, keptFiles(c), 1, "it has a reader")
		takeAll(t, []*slowReader{r}, func() {})
		require.NoError(t, r.Close())
		require.Empty(t, keptFiles(c))
	})
}

// keptFiles returns the files of the kept fills.
func keptFiles(c *Cache) (files []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.keptFills {
		files = append(files, f.key.File)
	}
	return files
}

// TestUncachedOtherContent: a client gets no byte of a chunk that is fetched again with other
// content.
func TestUncachedOtherContent(t *testing.T) {
	bubble(t, "corrupted", func(t *testing.T) {
		o := newOrigin(testFile(1), SegmentSize)
		o.order = []string{"good", "bad"}
		o.corrupted["bad"] = bytes.Repeat([]byte("x"), SegmentSize)
		c := newCache(t, Options{})
		r := slowReaders(t, c, o)[0]
		require.NoError(t, r.next(t))
		c.purgeTiers(tier.MatchAll)
		o.set(func() { o.order = []string{"bad", "good"} })
		require.ErrorIs(t, r.next(t), ErrCorrupt)
		require.Equal(t, tier.ChunkSize, r.read)
	})
}

// TestUncachedBeforeTheFirstByte: a verified slot that is evicted before a byte of it was sent is
// verified again, since the next storage may have other content.
func TestUncachedBeforeTheFirstByte(t *testing.T) {
	bubble(t, "corrupted", func(t *testing.T) {
		o := newOrigin(testFile(1), SegmentSize)
		o.order = []string{"good", "bad"}
		o.corrupted["bad"] = bytes.Repeat([]byte("x"), SegmentSize)
		c := newCache(t, Options{VerifyFirst: func(string) (int64, bool) { return SegmentSize, true }})
		r := slowReaders(t, c, o)[0]
		synctest.Wait()
		c.purgeTiers(tier.MatchAll)
		o.set(func() { o.order = []string{"bad", "good"} })
		takeAll(t, []*slowReader{r}, func() {})
		_, err := c.Get(background, o.file, o, GetOptions{})
		require.NoError(t, err)
	})
}

// TestUncachedSourceFails: if the source breaks off an uncached chunk, a fill sends the next
// request to it.
func TestUncachedSourceFails(t *testing.T) {
	bubble(t, "breaks off", func(t *testing.T) {
		o := newOrigin(testFile(1), SegmentSize)
		c := newCache(t, Options{})
		r := slowReaders(t, c, o)[0]
		require.NoError(t, r.next(t))
		c.purgeTiers(tier.MatchAll)
		o.set(func() {
			o.breakAt = func(fetch, served int64) bool { return fetch == 2 && served > 1000 }
		})
		takeAll(t, []*slowReader{r}, func() {})
		require.EqualValues(t, 3, o.fetches.Load())
	})
}

// TestStoredMeanwhile: a segment whose fill ends between two look-ups of its reader is not fetched
// again.
func TestStoredMeanwhile(t *testing.T) {
	c := newCache(t, Options{})
	var clients sync.WaitGroup
	for worker := range 4 {
		clients.Go(func() {
			for i := range 500 {
				o := newOrigin(testFile(worker*1000+i), 1000)
				if r := get(background, c, o); r.err != nil || o.fetches.Load() != 1 {
					t.Errorf("%d fetches, %v", o.fetches.Load(), r.err)
				}
			}
		})
	}
	clients.Wait()
}
