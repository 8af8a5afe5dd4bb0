package cache

import (
	"bytes"
	"context"
	"errors"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"fastdfs-gateway/internal/cache/cachetest"
	"fastdfs-gateway/internal/cache/tier"
)

var background = context.Background()

// lookup is a HEAD.
func lookup(c *Cache, o *origin) (Entry, error) {
	return c.Lookup(background, o.file, o, Ask{Hint: NoHint})
}

// TestExpiry follows one entry through its life.
func TestExpiry(t *testing.T) {
	bubble(t, "origin lives", func(t *testing.T) {
		o := newOrigin(testFile(1), 1000)
		o.first = second
		c := newCache(t, Options{})
		requireWhole(t, o, get(background, c, o))
		time.Sleep(8 * time.Minute)
		e, err := lookup(c, o)
		require.NoError(t, err)
		require.Equal(t, Fresh, e.State)
		require.InDelta(t, 8*60, e.Age.Seconds(), 3)
		time.Sleep(3 * time.Minute)
		began := time.Now()
		for range 100 {
			e, err = lookup(c, o)
			require.NoError(t, err)
			require.Equal(t, Stale, e.State)
		}
		require.Zero(t, time.Since(began), "nobody waits")
		time.Sleep(2 * second)
		require.EqualValues(t, 1, o.stats.Load(), "one asks")
		e, err = lookup(c, o)
		require.NoError(t, err)
		require.Equal(t, Fresh, e.State)
		r := get(background, c, o)
		requireWhole(t, o, r)
		require.Equal(t, FromMemory, r.from)
		require.EqualValues(t, 1, o.fetches.Load(), "content is not downloaded again")
		require.EqualValues(t, 100, c.Stats().StaleServed)
	})
	bubble(t, "origin dead", func(t *testing.T) {
		o := newOrigin(testFile(1), 1000)
		c := newCache(t, Options{})
		requireWhole(t, o, get(background, c, o))
		o.set(func() { o.down = true })
		o.first = second
		time.Sleep(30 * time.Minute) // stale while revalidate
		for range 10 {
			began := time.Now()
			requireWhole(t, o, get(background, c, o))
			require.Zero(t, time.Since(began))
		}
		time.Sleep(10 * time.Hour) // stale if error
		before := o.stats.Load()
		began := time.Now()
		requireWhole(t, o, get(background, c, o))
		require.Equal(t, second, time.Since(began), "the first one waits until asking has failed")
		for range 10 {
			requireWhole(t, o, get(background, c, o))
		}
		require.Equal(t, second, time.Since(began), "the others do not")
		require.Equal(t, before+1, o.stats.Load())
		time.Sleep(14 * time.Hour)
		_, err := lookup(c, o)
		require.ErrorIs(t, err, errOrigin, "too old for anything")
	})
	bubble(t, "deleted", func(t *testing.T) {
		o := newOrigin(testFile(1), 1000)
		c := newCache(t, Options{})
		requireWhole(t, o, get(background, c, o))
		content := o.content
		o.set(func() { o.content = nil })
		time.Sleep(11 * time.Minute)
		e, err := lookup(c, o)
		require.NoError(t, err)
		require.Equal(t, Stale, e.State)
		synctest.Wait()
		_, err = lookup(c, o)
		require.ErrorIs(t, err, ErrNotFound)
		require.Zero(t, c.Stats().Memory.Entries)
		o.set(func() { o.content = content })
	})
	bubble(t, "one refresher in the fleet", func(t *testing.T) {
		o := newOrigin(testFile(1), 1000)
		list := gateways(t, newFleet(), 3, Options{})
		for _, c := range list {
			requireWhole(t, o, get(background, c, o))
		}
		o.first = second
		time.Sleep(11 * time.Minute)
		for range 20 {
			for _, c := range list {
				_, err := lookup(c, o)
				require.NoError(t, err)
			}
		}
		time.Sleep(3 * second)
		require.EqualValues(t, 1, o.stats.Load())
		for _, c := range list {
			e, err := lookup(c, o)
			require.NoError(t, err)
			require.Equal(t, Fresh, e.State)
		}
	})
}

// TestEarly: the more often a file is asked for, the surer it is refreshed before it expires, and never long before.
func TestEarly(t *testing.T) {
	bubble(t, "busy", func(t *testing.T) {
		o := newOrigin(testFile(1), 1000)
		o.first = second
		c := newCache(t, Options{})
		requireWhole(t, o, get(background, c, o))
		for range 600 { // nine minutes, less what even chance does not reach
			time.Sleep(800 * time.Millisecond)
			_, err := lookup(c, o)
			require.NoError(t, err)
		}
		require.Zero(t, o.stats.Load(), "too early")
		for range 2 * 60 * 100 {
			time.Sleep(10 * time.Millisecond)
			e, err := lookup(c, o)
			require.NoError(t, err)
			require.Equal(t, Fresh, e.State, "it was refreshed in time")
		}
		require.EqualValues(t, 1, o.stats.Load())
	})
}

func TestEarlyByChance(t *testing.T) {
	const n = 100000
	count := func(left, took time.Duration) float64 {
		early := 0
		for range n {
			if isEarly(left, took) {
				early++
			}
		}
		return float64(early) / n
	}
	require.InDelta(t, 0.3679, count(second, second), 0.01, "e^-1")
	require.InDelta(t, 0.1353, count(2*second, second), 0.01, "e^-2")
	require.Zero(t, count(time.Minute, second))
	require.Zero(t, count(second, 0))
}

// TestJitter: what is learned at one moment does not expire at one moment, and at most a tenth early.
func TestJitter(t *testing.T) {
	r := newRecords(&Options{TTL: 10 * time.Minute, NegativeTTL: 5 * second}, 1<<20)
	now := time.Now()
	least, most := time.Hour, time.Duration(0)
	for range 1000 {
		ttl := r.expiry(Meta{Checked: now}).Sub(now)
		least, most = min(least, ttl), max(most, ttl)
	}
	require.GreaterOrEqual(t, least, 9*time.Minute)
	require.Less(t, least, 9*time.Minute+30*second)
	require.LessOrEqual(t, most, 10*time.Minute)
	require.Greater(t, most, 9*time.Minute+30*second)
}

func TestNegative(t *testing.T) {
	bubble(t, "old file", func(t *testing.T) {
		o := &origin{file: testFile(1)}
		f := newFleet()
		list := gateways(t, f, 2, Options{})
		for i := range 20 {
			require.ErrorIs(t, get(background, list[i%2], o).err, ErrNotFound)
		}
		require.EqualValues(t, 1, o.fetches.Load()+o.stats.Load(), "the fleet knows")
		o.content = []byte("x")
		o.v = cachetest.Version(o.content)
		time.Sleep(6 * second)
		requireWhole(t, o, get(background, list[0], o))
	})
	bubble(t, "young file", func(t *testing.T) {
		o := &origin{file: testFile(1)}
		f := newFleet()
		c := gateways(t, f, 1, Options{})[0]
		for _, hint := range []int64{0, NoHint} {
			for range 3 {
				_, err := c.Lookup(background, o.file, o, Ask{Hint: hint, Young: true})
				require.ErrorIs(t, err, ErrNotFound)
			}
		}
		require.EqualValues(t, 6, o.fetches.Load()+o.stats.Load())
		require.Empty(t, f.metas)
		_, err := c.Lookup(background, o.file, o, Ask{}) // somebody with another clock takes it for old
		require.ErrorIs(t, err, ErrNotFound)
		o.content = []byte("x")
		o.v = cachetest.Version(o.content)
		_, err = c.Lookup(background, o.file, o, Ask{Young: true})
		require.NoError(t, err, "a negative entry is not believed")
	})
	bubble(t, "purge", func(t *testing.T) {
		o := &origin{file: testFile(1)}
		c := newCache(t, Options{})
		require.ErrorIs(t, get(background, c, o).err, ErrNotFound)
		o.content = []byte("x")
		o.v = cachetest.Version(o.content)
		require.Equal(t, 1, c.Purge(tier.MatchFolder("group1/M00")))
		requireWhole(t, o, get(background, c, o))
	})
}

// TestBroken: an origin that breaks off.
func TestBroken(t *testing.T) {
	bubble(t, "at half, once", func(t *testing.T) {
		o := newOrigin(testFile(1), SegmentSize)
		o.whole = second
		o.breakAt = func(fetch, served int64) bool { return fetch == 1 && served >= SegmentSize/2 }
		for _, r := range crowd(gateways(t, newFleet(), 2, Options{}), o, 20) {
			requireWhole(t, o, r)
		}
		require.EqualValues(t, 2, o.fetches.Load())
		require.EqualValues(t, SegmentSize, o.served.Load(), "from the first missing byte on")
	})
	bubble(t, "always", func(t *testing.T) {
		o := newOrigin(testFile(1), SegmentSize)
		o.whole = second
		o.breakAt = func(_, served int64) bool { return served >= 1000 }
		list := gateways(t, newFleet(), 2, Options{})
		for _, r := range crowd(list, o, 20) {
			require.ErrorIs(t, r.err, errOrigin)
			require.NotEmpty(t, r.body)
			requireHonest(t, o, r)
		}
		o.set(func() { o.breakAt = nil })
		requireWhole(t, o, get(background, list[0], o))
	})
	bubble(t, "dead", func(t *testing.T) {
		o := newOrigin(testFile(1), 1000)
		o.first, o.down = second, true
		list := gateways(t, newFleet(), 2, Options{})
		for _, r := range crowd(list, o, 20) {
			require.ErrorIs(t, r.err, errOrigin)
			require.Empty(t, r.body)
		}
		require.LessOrEqual(t, o.fetches.Load(), int64(2), "one a gateway")
		o.set(func() { o.down = false })
		requireWhole(t, o, get(background, list[0], o))
	})
	bubble(t, "short without an error", func(t *testing.T) {
		o := newOrigin(testFile(1), 1000)
		o.v.Size = 2000
		r := get(background, newCache(t, Options{}), o)
		require.ErrorIs(t, r.err, io.ErrUnexpectedEOF)
	})
}

// TestClientGone: the fetch goes on without the client that began it.
func TestClientGone(t *testing.T) {
	bubble(t, "leader's client", func(t *testing.T) {
		o := newOrigin(testFile(1), SegmentSize)
		o.first, o.whole = second, second
		c := newCache(t, Options{})
		ctx, cancel := context.WithTimeout(background, second/2)
		defer cancel()
		require.ErrorIs(t, get(ctx, c, o).err, context.DeadlineExceeded)
		ctx, cancel = context.WithTimeout(background, second)
		defer cancel()
		r := get(ctx, c, o)
		require.ErrorIs(t, r.err, context.DeadlineExceeded)
		require.NotEmpty(t, r.body)
		time.Sleep(second)
		r = get(background, c, o)
		requireWhole(t, o, r)
		require.Equal(t, FromMemory, r.from)
		require.EqualValues(t, 1, o.fetches.Load())
	})
}

// TestChanged: a file that changes while it is read is cut, and is new for the next request.
func TestChanged(t *testing.T) {
	bubble(t, "between segments", func(t *testing.T) {
		o := newOrigin(testFile(1), 2*SegmentSize)
		o.v.Immutable = false
		c := newCache(t, Options{})
		e, err := lookup(c, o)
		require.NoError(t, err)
		old := o.content
		s := c.Open(background, e, o, 0, e.Version.Size)
		defer func() { _ = s.Close() }()
		buf := make([]byte, 100)
		_, err = io.ReadFull(s, buf)
		require.NoError(t, err)
		o.set(func() {
			o.content = cachetest.Content("new", 3*SegmentSize)
			o.v = cachetest.Version(o.content)
			o.v.ModTime++
		})
		rest, err := io.ReadAll(s)
		require.ErrorIs(t, err, ErrChanged)
		require.True(t, bytes.HasPrefix(old, append(buf, rest...)))
		r := get(background, c, o)
		requireWhole(t, o, r)
	})
	bubble(t, "found by a refresh", func(t *testing.T) {
		o := newOrigin(testFile(1), 5000)
		o.v.Immutable = false
		list := gateways(t, newFleet(), 2, Options{})
		requireWhole(t, o, get(background, list[0], o))
		requireWhole(t, o, get(background, list[1], o))
		o.set(func() {
			o.content = cachetest.Content("new", 6000)
			o.v = cachetest.Version(o.content)
		})
		time.Sleep(11 * time.Minute)
		_, err := lookup(list[0], o)
		require.NoError(t, err)
		time.Sleep(second)
		requireWhole(t, o, get(background, list[0], o))
		_, _ = lookup(list[1], o)
		time.Sleep(second)
		requireWhole(t, o, get(background, list[1], o))
		require.EqualValues(t, 2, o.fetches.Load())
	})
}

// TestChecksum: content that is not the one of the CRC32 is not kept, unless it is a link's.
func TestChecksum(t *testing.T) {
	for name, size := range map[string]int64{"one segment": 5000, "three": 2*SegmentSize + 5} {
		bubble(t, "damaged, "+name, func(t *testing.T) {
			o := newOrigin(testFile(1), size)
			c := newCache(t, Options{})
			good := o.content
			bad := bytes.Clone(good)
			bad[size/2] ^= 1
			o.content = bad
			o.v.CRC32 = crc32.ChecksumIEEE(good)
			src := &distrusting{origin: o, good: good}
			e, err := c.Lookup(background, o.file, src, Ask{})
			require.NoError(t, err)
			read := func() ([]byte, error) {
				s := c.Open(background, e, src, 0, size)
				defer func() { _ = s.Close() }()
				return io.ReadAll(s)
			}
			got, err := read()
			if size > SegmentSize {
				require.ErrorIs(t, err, ErrCorrupt, "it was seen with the last segment only")
				require.Less(t, len(got), int(size))
				require.Zero(t, c.Stats().Memory.Entries)
				got, err = read()
			}
			require.NoError(t, err)
			require.True(t, bytes.Equal(good, got), "from the storage that is trusted")
			require.EqualValues(t, 1, c.Stats().CRCErrors)
			require.EqualValues(t, 1, o.distrusted.Load())
		})
		bubble(t, "link, "+name, func(t *testing.T) {
			o := newOrigin(testFile(1), size)
			o.v.CRC32++
			c := newCache(t, Options{})
			requireWhole(t, o, get(background, c, o))
			fetches := o.fetches.Load()
			require.Equal(t, o.v.Segments()+1, fetches, "it was read once more")
			c.tiers.Drop(tier.MatchAll())
			requireWhole(t, o, get(background, c, o))
			require.Equal(t, fetches+o.v.Segments(), o.fetches.Load(), "it is known to be one")
			require.Zero(t, c.Stats().CRCErrors)
		})
	}
}

// distrusting gives the right content when it was told that the other is wrong.
type distrusting struct {
	*origin
	good []byte
}

func (d *distrusting) Distrust(err error) {
	d.origin.Distrust(err)
	d.set(func() { d.content = d.good })
}

// TestPurgeWhileFetching: those who wait are served; what they got is not kept, and the next one asks again.
func TestPurgeWhileFetching(t *testing.T) {
	bubble(t, "content", func(t *testing.T) {
		o := newOrigin(testFile(1), SegmentSize)
		o.whole = 2 * second
		f := newFleet()
		c := gateways(t, f, 1, Options{})[0]
		done := make(chan result)
		go func() { done <- get(background, c, o) }()
		time.Sleep(second)
		c.Purge(tier.MatchFile(o.file))
		requireWhole(t, o, <-done)
		synctest.Wait()
		require.Empty(t, f.places)
		require.Zero(t, c.Stats().Memory.Entries)
		require.Zero(t, c.Stats().Records)
	})
	bubble(t, "question", func(t *testing.T) {
		o := newOrigin(testFile(1), 100)
		o.first = 2 * second
		f := newFleet()
		c := gateways(t, f, 1, Options{})[0]
		done := make(chan error)
		go func() {
			_, err := lookup(c, o)
			done <- err
		}()
		time.Sleep(second)
		c.Purge(tier.MatchAll())
		require.NoError(t, <-done)
		require.Empty(t, f.metas)
		require.Zero(t, c.Stats().Records)
	})
}

// TestSlowReader: when the fetch is over the reader does not hold the segment; evicted, it is fetched again.
func TestSlowReader(t *testing.T) {
	bubble(t, "holds a chunk", func(t *testing.T) {
		o := newOrigin(testFile(1), SegmentSize)
		o.whole = second
		c := newCache(t, Options{})
		e, err := c.Lookup(background, o.file, o, Ask{})
		require.NoError(t, err)
		s := c.Open(background, e, o, 0, e.Version.Size)
		defer func() { _ = s.Close() }()
		buf := make([]byte, 1000)
		_, err = io.ReadFull(s, buf)
		require.NoError(t, err)
		require.NotNil(t, s.f)
		time.Sleep(10 * second)
		require.Nil(t, s.f.chunks)
		c.tiers.Drop(tier.MatchAll())
		rest, err := io.ReadAll(s)
		require.NoError(t, err)
		require.True(t, bytes.Equal(o.content[1000:], rest))
		require.EqualValues(t, 2, o.fetches.Load())
	})
}

// TestSequential: a reader of many segments does not stand still between two of them.
func TestSequential(t *testing.T) {
	bubble(t, "read ahead", func(t *testing.T) {
		o := newOrigin(testFile(1), 5*SegmentSize)
		o.first, o.whole = second, 4*second
		r := get(background, newCache(t, Options{}), o)
		requireWhole(t, o, r)
		require.Less(t, r.total, 5*(o.first+o.whole)-3*second)
	})
	bubble(t, "not beyond the range", func(t *testing.T) {
		o := newOrigin(testFile(1), 5*SegmentSize)
		r := getRange(background, newCache(t, Options{}), o, 10, SegmentSize-10)
		require.NoError(t, r.err)
		require.True(t, bytes.Equal(o.content[10:SegmentSize], r.body))
		require.EqualValues(t, 1, o.fetches.Load())
	})
}

// TestHint: a range of a cold file, and one behind its end.
func TestHint(t *testing.T) {
	bubble(t, "ranges", func(t *testing.T) {
		o := newOrigin(testFile(1), 3*SegmentSize)
		c := newCache(t, Options{})
		r := getRange(background, c, o, 2*SegmentSize+5, 100)
		require.NoError(t, r.err)
		require.True(t, bytes.Equal(o.content[2*SegmentSize+5:][:100], r.body))
		require.EqualValues(t, 1, o.fetches.Load())
		require.Zero(t, o.stats.Load())
		beyond := newOrigin(testFile(2), 100)
		e, err := c.Lookup(background, beyond.file, beyond, Ask{Hint: 7 * SegmentSize})
		require.NoError(t, err)
		require.Equal(t, beyond.v, e.Version)
		_, err = c.Open(background, e, beyond, 50, 51).Next(100)
		require.ErrorContains(t, err, "not inside")
	})
}

// TestRandomRanges: many readers of parts of a large file, with memory for a part of it and a disk for the rest.
func TestRandomRanges(t *testing.T) {
	const size = 40<<20 + 321
	o := newOrigin(testFile(1), size)
	c := newCache(t, Options{Memory: 24 << 20, DiskPath: t.TempDir()})
	touched := make([]bool, size/SegmentSize+1)
	var mu sync.Mutex // guards touched
	var wg sync.WaitGroup
	for worker := range uint64(32) {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(worker, 7))
			for range 8 {
				offset := r.Int64N(size)
				length := 1 + r.Int64N(min(size-offset, 1<<20))
				got := getRange(background, c, o, offset, length)
				if got.err != nil || !bytes.Equal(got.body, o.content[offset:offset+length]) {
					t.Errorf("%d bytes from %d on: got %d, %v", length, offset, len(got.body), got.err)
				}
				mu.Lock()
				for i := offset / SegmentSize; i <= (offset+length-1)/SegmentSize; i++ {
					touched[i] = true
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	bytesTouched := int64(0)
	for i, yes := range touched {
		if yes {
			bytesTouched += o.v.SegmentLength(int64(i))
		}
	}
	t.Logf("%d bytes touched, %d from the origin in %d fetches", bytesTouched, o.served.Load(), o.fetches.Load())
	require.LessOrEqual(t, float64(o.served.Load()), 1.1*float64(bytesTouched))
	s := c.Stats()
	require.LessOrEqual(t, float64(s.Memory.Bytes), 1.05*(24<<20))
}

// TestRestartWithDisk: the next process asks whether the file is still there, and downloads nothing.
func TestRestartWithDisk(t *testing.T) {
	path := t.TempDir()
	o := newOrigin(testFile(1), 2*SegmentSize+77)
	c := newCache(t, Options{DiskPath: path})
	requireWhole(t, o, get(background, c, o))
	require.Eventually(t, func() bool { return c.Stats().Disk.Entries == 3 }, 20*second, time.Millisecond)
	require.NoError(t, c.Close())
	ready := make(chan struct{})
	c = newCache(t, Options{DiskPath: path, DiskReady: ready})
	_, held := c.tiers.Holds(keyAt(o.file, 0))
	require.False(t, held, "it may not be used yet")
	close(ready)
	require.False(t, c.Knows(o.file))
	r := get(background, c, o)
	requireWhole(t, o, r)
	require.Equal(t, FromDisk, r.from)
	require.True(t, c.Knows(o.file))
	require.EqualValues(t, 3, o.fetches.Load())
	require.EqualValues(t, 1, o.stats.Load())
	require.Positive(t, c.Purge(tier.MatchAll()))
	require.Zero(t, c.Stats().Disk.Entries)
	requireWhole(t, o, get(background, c, o))
	require.EqualValues(t, 6, o.fetches.Load())
}

// TestRecordsBudget: facts about files stay in their part of the memory.
func TestRecordsBudget(t *testing.T) {
	r := newRecords(&Options{TTL: time.Minute}, 100<<10)
	for i := range 5000 {
		r.put(testFile(i), Meta{Version: Version{Size: int64(i) << 20, Immutable: true}, Checked: time.Now()})
		require.LessOrEqual(t, r.used, r.max)
	}
	require.Greater(t, r.used, r.max*9/10)
	require.Equal(t, r.list.Len(), r.drop(tier.MatchFolder("group1/M00")))
	require.Zero(t, r.used)
}

func FuzzConcat(f *testing.F) {
	f.Add([]byte("123456789"), []byte("abc"))
	f.Add([]byte{}, make([]byte, 100))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		require.Equal(t, crc32.ChecksumIEEE(append(bytes.Clone(a), b...)), crcConcat(crc32.ChecksumIEEE(a), crc32.ChecksumIEEE(b), int64(len(b))))
	})
}

// TestWarmIsCheap: a warm small file costs two allocations, the stream and what the clock needs.
func TestWarmIsCheap(t *testing.T) {
	o := newOrigin(testFile(1), 4000)
	c := newCache(t, Options{})
	requireWhole(t, o, get(background, c, o))
	allocs := testing.AllocsPerRun(1000, func() { warm(c, o) })
	require.LessOrEqual(t, allocs, 1.0)
}

func warm(c *Cache, o *origin) {
	e, err := c.Lookup(background, o.file, o, Ask{})
	if err != nil {
		panic(err)
	}
	s := c.Open(background, e, o, 0, e.Version.Size)
	if stretch, err := s.Next(1 << 20); err != nil || stretch.Length != e.Version.Size {
		panic(err)
	}
	_ = s.Close()
}

func BenchmarkWarm(b *testing.B) {
	o := newOrigin(testFile(1), 4000)
	c, err := New(Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if r := get(background, c, o); r.err != nil {
		b.Fatal(r.err)
	}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			warm(c, o)
		}
	})
}

func TestClose(t *testing.T) {
	bubble(t, "while fetching", func(t *testing.T) {
		o := newOrigin(testFile(1), SegmentSize)
		o.whole = time.Hour
		c := newCache(t, Options{})
		done := make(chan result)
		go func() { done <- get(background, c, o) }()
		time.Sleep(second)
		require.NoError(t, c.Close())
		r := <-done
		require.ErrorIs(t, r.err, ErrClosed)
		requireHonest(t, o, r)
		require.ErrorIs(t, get(background, c, newOrigin(testFile(2), 5)).err, ErrClosed)
	})
}

var errTest = errors.New("test")

// TestSourceError: the source's own errors reach the caller.
func TestSourceError(t *testing.T) {
	_, err := newCache(t, Options{}).Lookup(background, "x", failing{}, Ask{Hint: NoHint})
	require.ErrorIs(t, err, errTest)
}

type failing struct{}

func (failing) Name() string                          { return "" }
func (failing) Stat(context.Context) (Version, error) { return Version{}, errTest }
func (failing) Fetch(context.Context, *Version, int64, int64) (Version, io.ReadCloser, error) {
	return Version{}, nil, errTest
}
