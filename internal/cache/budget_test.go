package cache

import (
	"bytes"
	"context"
	"errors"
	"io"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"fastdfs-gateway/internal/cache/tier"
	"fastdfs-gateway/internal/content"
	"fastdfs-gateway/internal/testing/eventually"

	"github.com/stretchr/testify/require"
)

// TestManyFills: the fills at one time are bounded, however many large files are requested, and all
// get their turn. A reader that keeps pace with a fill does not fetch a segment again that was
// evicted as soon as it was complete.
func TestManyFills(t *testing.T) {
	bubble(t, "slow origin", func(t *testing.T) {
		const files = 24 // six times the memory
		c := newCache(t, Options{Memory: 16 << 20, Wait: time.Hour})
		var running sync.WaitGroup
		var origins []*origin
		for i := range files {
			o := newOrigin(testFile(i), SegmentSize)
			o.first, o.whole = second/10, 5*second
			origins = append(origins, o)
			running.Go(func() {
				r := get(context.Background(), c, o)
				if r.err != nil || len(r.body) != len(o.content) {
					t.Errorf("file %d: %d bytes, %v", i, len(r.body), r.err)
				}
			})
		}
		for range 10 {
			time.Sleep(second)
			synctest.Wait()
			require.LessOrEqual(t, c.Stats().Memory.Bytes, int64(16<<20))
			fetching := 0
			for _, o := range origins {
				if o.served.Load() > 0 && o.served.Load() < SegmentSize {
					fetching++
				}
			}
			require.LessOrEqual(t, fetching, minRoom/listedShare/SegmentSize)
		}
		running.Wait()
		synctest.Wait()
		require.Zero(t, c.Stats().Fills)
		served := int64(0)
		for _, o := range origins {
			served += o.served.Load()
		}
		require.EqualValues(t, files*SegmentSize, served, "nothing was fetched twice")
		require.True(t, c.leaderRoom.all.tryAcquireBytes(minRoom), "all was given back")
	})
	bubble(t, "hanging origin", func(t *testing.T) {
		const readers = 40 // five times as many as fetch at once
		c := newCache(t, Options{Memory: 16 << 20, Wait: 3 * second})
		o := noFile(testFile(0))
		o.content = make([]byte, readers*SegmentSize) // little of it arrives
		o.v = Version{Size: readers * SegmentSize}
		o.whole = time.Hour
		e, err := c.Get(context.Background(), o.file, o, GetOptions{Hint: NoHint})
		require.NoError(t, err)
		busy := 0
		var mu sync.Mutex // guards busy
		var running sync.WaitGroup
		ctx, cancel := context.WithTimeout(context.Background(), 10*second)
		defer cancel()
		for i := range int64(readers) {
			running.Go(func() {
				s := c.Open(ctx, e, o, i*SegmentSize, 2*SegmentSize/2)
				defer s.Close()
				for {
					_, err := s.Next(SegmentSize)
					if err == nil {
						continue
					}
					mu.Lock()
					defer mu.Unlock()
					if err != context.DeadlineExceeded {
						require.ErrorIs(t, err, ErrBusy)
						busy++
					}
					return
				}
			})
		}
		running.Wait()
		require.Equal(t, readers-minRoom/listedShare/SegmentSize, busy)
	})
}

// TestSmallBehindLarge: a small file of a storage that is busy with large ones is fetched at once.
func TestSmallBehindLarge(t *testing.T) {
	bubble(t, "slow storage", func(t *testing.T) {
		c := newCache(t, Options{Wait: time.Hour})
		var running sync.WaitGroup
		for i := range 24 {
			o := newOrigin(testFile(i), SegmentSize)
			o.whole = 20 * second
			running.Go(func() {
				if r := get(background, c, o); r.err != nil {
					t.Error(r.err)
				}
			})
		}
		time.Sleep(second)
		small := newOrigin(testFile(99), 1000)
		small.first = second / 10
		r := get(background, c, small)
		running.Wait()
		requireWhole(t, small, r)
		require.Equal(t, small.first, r.total)
	})
}

// TestBusyInTheMiddle: downloads that have begun wait longer for their next segment than new
// requests do, and are not aborted.
func TestBusyInTheMiddle(t *testing.T) {
	bubble(t, "slow storage", func(t *testing.T) {
		c := newCache(t, Options{Wait: 30 * second})
		var running sync.WaitGroup
		var rejected, whole atomic.Int64
		for i := range 56 { // each segment takes 10 s, and 16 are fetched at a time
			o := newOrigin(testFile(i), 2*SegmentSize)
			o.whole = 10 * second
			running.Go(func() {
				switch r := get(background, c, o); {
				case r.err == nil:
					whole.Add(1)
				case errors.Is(r.err, ErrBusy) && len(r.body) == 0:
					rejected.Add(1)
				default:
					t.Errorf("file %d: %v after %d bytes", i, r.err, len(r.body))
				}
			})
		}
		running.Wait()
		require.NotZero(t, rejected.Load())
		require.EqualValues(t, 56, rejected.Load()+whole.Load())
	})
}

// TestNoMemoryForContent: metadata is kept also where content gets no memory.
func TestNoMemoryForContent(t *testing.T) {
	c := newCacheOnDisk(t, t.TempDir(), Options{Memory: -1})
	eventually.True(t, c.disk.Listed)
	fetches := int64(0)
	for range 2 {
		for i := range 50 {
			o := newOrigin(testFile(i), 1000)
			requireWhole(t, o, get(context.Background(), c, o))
			fetches += o.fetches.Load()
			require.Zero(t, o.stats.Load())
		}
	}
	require.Equal(t, 50, c.Stats().Records)
	again := int64(c.Stats().Disk.Skipped) // the disk was slow
	require.LessOrEqual(t, fetches, 50+again)
}

// TestSlowReader: a slow reader does not hold the segment after its fill has ended. If the segment
// is evicted, its chunks are fetched again.
func TestSlowReader(t *testing.T) {
	bubble(t, "holds a chunk", func(t *testing.T) {
		o := newOrigin(testFile(1), SegmentSize)
		o.whole = second
		c := newCache(t, Options{})
		e, err := c.Get(background, o.file, o, GetOptions{})
		require.NoError(t, err)
		s := c.Open(background, e, o, 0, e.Version.Size)
		defer func() { _ = s.Close() }()
		buf := make([]byte, 1000)
		_, err = io.ReadFull(s, buf)
		require.NoError(t, err)
		require.NotNil(t, s.f)
		time.Sleep(10 * second)
		s.f.mu.Lock()
		require.Nil(t, s.f.chunks)
		s.f.mu.Unlock()
		c.purgeTiers(tier.MatchAll)
		rest, err := readAll(s, o.content[1000:])
		require.NoError(t, err)
		require.True(t, bytes.Equal(o.content[1000:], rest))
		require.EqualValues(t, 1+SegmentSize/tier.ChunkSize, o.fetches.Load())
		require.EqualValues(t, 2*SegmentSize, o.served.Load())
	})
}

// TestReaderKeepsAChunk: a reader keeps one chunk of an evicted segment in memory, not the whole
// segment.
func TestReaderKeepsAChunk(t *testing.T) {
	o := newOrigin(testFile(1), SegmentSize)
	c := newCache(t, Options{})
	c.memory = tier.NewMemory(64 << 20) // without an arena
	requireWhole(t, o, get(background, c, o))
	idle(t, c)
	view, ok := c.memory.Get(tier.KeyAt(o.file, 0), o.v, false)
	require.True(t, ok)
	chunk, err := view.At(tier.ChunkSize, 1)
	require.NoError(t, err)
	other := weak.Make(&chunk.Bytes[0])
	view, chunk = tier.View{}, content.Chunk{}
	e, err := lookup(c, o)
	require.NoError(t, err)
	s := c.Open(background, e, o, 0, o.v.Size)
	_, err = s.Next(1)
	require.NoError(t, err)
	pinned, ok := c.Pin(&e, 0, 1)
	require.True(t, ok)
	c.purgeTiers(tier.MatchAll)
	eventually.True(t, func() bool {
		runtime.GC()
		return other.Value() == nil
	})
	pinned.Release()
	require.NoError(t, s.Close())
}

// TestNoTierTakesIt: a request fetches content once that no tier stores. It reads from the fills
// that it waits for or starts ahead, which free their bytes behind it.
func TestNoTierTakesIt(t *testing.T) {
	for name, o := range map[string]Options{"memory": {Memory: -1}, "slot": {Memory: -1,
		VerifyFirst: func(string) (int64, bool) { return 3*SegmentSize - 1, true }},
		"disk": {Memory: -1, DiskReady: make(chan struct{})}} {
		bubble(t, name, func(t *testing.T) {
			src := newOrigin(testFile(1), 3*SegmentSize-1)
			c := newCache(t, o)
			if o.DiskReady != nil {
				require.NoError(t, c.OpenDisk(tier.DiskOptions{Path: t.TempDir()}))
			}
			e, err := c.Get(background, src.file, src, GetOptions{})
			require.NoError(t, err)
			s := c.Open(background, e, src, 0, e.Version.Size)
			got := make([]byte, 0, src.v.Size)
			for {
				synctest.Wait() // until the running fills are over
				chunk, err := s.Next(SegmentSize)
				if err == io.EOF {
					break
				}
				require.NoError(t, err)
				got = append(got, chunk.Bytes...)
			}
			require.True(t, bytes.Equal(src.content, got))
			require.EqualValues(t, len(got), src.served.Load(), "it was fetched once")
			require.NoError(t, s.Close())
			require.Empty(t, e.by.chunks)
		})
	}
}
