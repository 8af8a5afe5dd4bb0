package cache

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"fastdfs-gateway/internal/cache/tier"
	"fastdfs-gateway/internal/fdfs/checksum"
	"fastdfs-gateway/internal/testing/cachetest"
	"fastdfs-gateway/internal/testing/eventually"
)

// TestBroken: a fetch that breaks off is continued at the first missing byte. If the origin fails
// for good, the clients get an error after a correct beginning of the body.
func TestBroken(t *testing.T) {
	bubble(t, "at half, once", func(t *testing.T) {
		o := newOrigin(testFile(1), SegmentSize)
		o.whole = second
		o.breakAt = func(fetch, served int64) bool { return fetch == 1 && served >= SegmentSize/2 }
		for _, r := range manyClients(gateways(t, newFleet(), 2, Options{}), o, 20) {
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
		for _, r := range manyClients(list, o, 20) {
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
		for _, r := range manyClients(list, o, 20) {
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

// TestChanged: a response is aborted if the file changes while it is read. The next request gets
// the new version.
func TestChanged(t *testing.T) {
	bubble(t, "between segments", func(t *testing.T) {
		o := newOrigin(testFile(1), 2*SegmentSize)
		o.v.Immutable = false
		o.whole = second // so no request for the second segment is sent before the file has changed
		c := gateways(t, newFleet(), 1, Options{})[0]
		e, err := lookup(c, o)
		require.NoError(t, err)
		time.Sleep(2 * second)
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
		rest, err := readAll(s, old[100:])
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

// slowStore is a fleet whose lease of segment 0 delays the storing of the segment until held is
// closed.
type slowStore struct {
	alone
	held chan struct{}
}

// AcquireLease implements Fleet.
func (f slowStore) AcquireLease(_ context.Context, key string, _ bool) (context.Context, func(), error) {
	if strings.HasSuffix(key, "#0") {
		return slowLease{background, f.held}, func() {}, nil
	}
	return background, func() {}, nil
}

// slowLease is a lease whose Err blocks until held is closed. The fill calls Err before it stores
// the segment.
type slowLease struct {
	context.Context
	held chan struct{}
}

// Err implements context.Context.
func (l slowLease) Err() error {
	<-l.held
	return nil
}

// TestChangedBefore: a request that looks up a changed file again does not get the old version from
// an earlier fill that has not ended yet.
func TestChangedBefore(t *testing.T) {
	bubble(t, "first segment is not stored yet", func(t *testing.T) {
		o := newOrigin(testFile(1), 2*SegmentSize)
		o.v.Immutable = false
		fleet := slowStore{held: make(chan struct{})}
		c := newCache(t, Options{Fleet: fleet})
		release := sync.OnceFunc(func() { close(fleet.held) })
		t.Cleanup(release)
		e, err := lookup(c, o)
		require.NoError(t, err)
		s := c.Open(background, e, o, 0, SegmentSize)
		defer func() { _ = s.Close() }()
		_, err = readAll(s, o.content)
		require.NoError(t, err)
		o.set(func() {
			o.content = cachetest.Content("new", 3*SegmentSize)
			o.v = cachetest.Version(o.content)
			o.v.ModTime++
		})
		rest := c.Open(background, e, o, SegmentSize, SegmentSize)
		defer func() { _ = rest.Close() }()
		_, err = rest.Next(1)
		require.ErrorIs(t, err, ErrChanged)
		requireWhole(t, o, get(background, c, o))
		release()
		synctest.Wait()
		v, held := c.holdsSegment(tier.KeyAt(o.file, 0))
		require.True(t, held)
		require.Equal(t, o.v, v, "what is old is not stored after what is new")
	})
}

// TestChecksum: content that does not match its CRC32 is not stored, unless the file is a link.
func TestChecksum(t *testing.T) {
	for name, size := range map[string]int64{"one segment": 5000, "three": 2*SegmentSize + 5} {
		bubble(t, "corrupted, "+name, func(t *testing.T) {
			o := newOrigin(testFile(1), size)
			o.whole = second // the first reader waits before the content arrives
			c := newCache(t, Options{})
			o.corrupt(size / 2)
			e, err := c.Get(background, o.file, o, GetOptions{})
			require.NoError(t, err)
			read := func() ([]byte, error) {
				s := c.Open(background, e, o, 0, size)
				defer func() { _ = s.Close() }()
				return readAll(s, o.content)
			}
			got, err := read()
			if size > SegmentSize {
				require.ErrorIs(t, err, ErrCorrupt, "it was seen with the last segment only")
				require.Less(t, len(got), int(size))
				synctest.Wait() // until the wrong content was purged
				got, err = read()
			}
			require.NoError(t, err)
			require.True(t, bytes.Equal(o.content, got), "from the storage that is not corrupted")
			require.EqualValues(t, 1, c.Stats().CRCErrors)
			require.EqualValues(t, 1, o.rechecks.Load())
			require.Equal(t, map[string]bool{"corrupted": true}, o.excluded)
		})
		bubble(t, "legacy, "+name, func(t *testing.T) {
			c := newCache(t, Options{})
			for i, again := range []int64{1, 0, 0} { // the first file of several segments is read once more
				o := newOrigin(testFile(i), size)
				o.v.CRC32 = checksum.UpdateLegacy(0, o.content)
				requireWhole(t, o, get(background, c, o))
				if size <= SegmentSize {
					again = 0
				}
				require.Equal(t, o.v.Segments(), o.fetches.Load(), "file %d", i)
				require.Equal(t, again, o.rechecks.Load(), "file %d", i)
			}
			require.Zero(t, c.Stats().CRCErrors)
			other := newOrigin("group2/M00/00/00/a", 100)
			other.v.CRC32 = checksum.UpdateLegacy(0, other.content) // of a group without a known legacy CRC32
			requireWhole(t, other, get(background, c, other))
			require.EqualValues(t, 1, other.fetches.Load())
		})
		bubble(t, "legacy and corrupted, "+name, func(t *testing.T) {
			o := newOrigin(testFile(1), size)
			o.v.CRC32 = checksum.UpdateLegacy(0, o.content)
			o.corrupt(0)
			c := newCache(t, Options{})
			e, err := c.Get(background, o.file, o, GetOptions{})
			require.NoError(t, err)
			s := c.Open(background, e, o, 0, size)
			got, err := readAll(s, o.content)
			require.NoError(t, s.Close())
			require.True(t, err != nil || bytes.Equal(o.content, got))
			require.EqualValues(t, 1, c.Stats().CRCErrors)
		})
		bubble(t, "link, "+name, func(t *testing.T) {
			o := newOrigin(testFile(1), size)
			o.v.CRC32++
			c := newCache(t, Options{})
			requireWhole(t, o, get(background, c, o))
			fetches := o.fetches.Load()
			require.Equal(t, o.v.Segments(), fetches)
			require.EqualValues(t, 1, o.rechecks.Load(), "it was read once more")
			synctest.Wait()
			c.purgeTiers(tier.MatchAll)
			requireWhole(t, o, get(background, c, o))
			require.Equal(t, fetches+o.v.Segments(), o.fetches.Load(), "it is known to be one")
			require.Zero(t, c.Stats().CRCErrors)
		})
	}
}

// corrupt adds a storage whose content differs in a byte, and which is healthier than the good
// storage.
func (o *origin) corrupt(at int64) {
	wrong := bytes.Clone(o.content)
	wrong[at] ^= 1
	o.set(func() { o.corrupted["corrupted"], o.order = wrong, []string{"corrupted", "storage"} })
}

// TestPurgeWhileFetching: a purge during a fetch does not abort the waiting requests. The fetched
// content and metadata are not stored, and the next request starts another fetch.
func TestPurgeWhileFetching(t *testing.T) {
	purged := func(t *testing.T, whole time.Duration) (*origin, *Cache, <-chan result) {
		o := newOrigin(testFile(1), SegmentSize)
		o.whole = whole
		c := gateways(t, newFleet(), 1, Options{})[0]
		done := make(chan result)
		go func() { done <- get(background, c, o) }()
		time.Sleep(second)
		c.Purge(tier.MatchFile(o.file))
		return o, c, done
	}
	bubble(t, "content", func(t *testing.T) {
		o, c, done := purged(t, 2*second)
		requireWhole(t, o, <-done)
		synctest.Wait()
		require.Zero(t, c.Stats().Memory.Entries)
		require.Zero(t, c.Stats().Records)
	})
	bubble(t, "next request", func(t *testing.T) {
		o, c, done := purged(t, 20*second)
		next := get(background, c, o)
		requireWhole(t, o, next)
		require.Less(t, next.first, 2*second, "it does not wait for the lease of the first")
		requireWhole(t, o, <-done)
	})
	bubble(t, "question", func(t *testing.T) {
		o := newOrigin(testFile(1), 100)
		o.first = 2 * second
		c := gateways(t, newFleet(), 1, Options{})[0]
		done := make(chan error)
		go func() {
			_, err := lookup(c, o)
			done <- err
		}()
		time.Sleep(second)
		c.Purge(tier.MatchAll)
		require.NoError(t, <-done)
		require.Zero(t, c.Stats().Records)
	})
}

// TestSequential: a reader of many segments does not wait for each of them in full, since the next
// one is fetched ahead. Nothing beyond the requested range is fetched.
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

// TestHint: a range of a cold file is fetched without a request for metadata. A hint behind the end
// of the file still brings its version.
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
		e, err := c.Get(background, beyond.file, beyond, GetOptions{Hint: 7 * SegmentSize})
		require.NoError(t, err)
		require.Equal(t, beyond.v, e.Version)
		_, err = c.Open(background, e, beyond, 50, 51).Next(100)
		require.ErrorContains(t, err, "not inside")
	})
}

// TestRandomRanges: many readers of parts of a large file fetch each segment about once, with
// memory for a part of the file and a disk for the rest. The whole file fits into the write queue
// of the disk.
func TestRandomRanges(t *testing.T) {
	const size, memory = 28<<20 + 321, 16 << 20
	o := newOrigin(testFile(1), size)
	c := newCacheOnDisk(t, t.TempDir(), Options{Memory: memory})
	eventually.True(t, c.disk.Listed)
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
	s := c.Stats()
	again := int64(s.Disk.Skipped) * SegmentSize // the disk was slow: only memory held these segments
	require.LessOrEqual(t, float64(o.served.Load()), 1.1*float64(bytesTouched)+float64(again))
	require.LessOrEqual(t, float64(s.Memory.Bytes), 1.05*memory)
}

// TestCorruptedBehind: a reader that has read wrong content before its detection gets an error, and
// not the end of the file.
func TestCorruptedBehind(t *testing.T) {
	bubble(t, "first segment", func(t *testing.T) {
		o := newOrigin(testFile(1), 3*SegmentSize)
		o.corrupt(5)
		c := newCache(t, Options{})
		e, err := c.Get(background, o.file, o, GetOptions{})
		require.NoError(t, err)
		s := c.Open(background, e, o, 0, e.Version.Size)
		defer func() { _ = s.Close() }()
		_, err = io.ReadFull(s, make([]byte, SegmentSize/4))
		require.NoError(t, err)
		other := c.Open(background, e, o, 0, e.Version.Size)
		_, err = readAll(other, o.content)
		require.ErrorIs(t, err, ErrCorrupt)
		require.NoError(t, other.Close())
		synctest.Wait() // until the wrong content was purged
		requireWhole(t, o, get(background, c, o))
		rest, err := readAll(s, o.content[SegmentSize/4:])
		require.ErrorIs(t, err, ErrCorrupt)
		require.Less(t, len(rest), 3*SegmentSize-SegmentSize/4)
		require.EqualValues(t, 1, c.Stats().CRCErrors)
	})
}

// TestFillKeepsItsVersion: a fill with a version rejects the metadata of another version, so it
// does not append bytes of the other one.
func TestFillKeepsItsVersion(t *testing.T) {
	file := testFile(1)
	f := newCache(t, Options{}).newFill(SegmentKey{File: file}, newOrigin(file, 1), fillOptions{})
	require.NoError(t, f.setMeta(Meta{Version: Version{Size: 1}}))
	require.NoError(t, f.setMeta(Meta{Version: Version{Size: 1}}), "of the same one")
	require.ErrorIs(t, f.setMeta(Meta{Version: Version{Size: 2}}), ErrChanged)
}
