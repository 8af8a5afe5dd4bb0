package tier

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"fastdfs-gateway/internal/testing/contenttest"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// checked is a disk with one segment. It counts the chunks that are read to be checked.
type checked struct {
	*Disk
	s       *Segment
	content []byte
	reads   atomic.Int64
	lacking []string // system calls that the kernel lacks
	reading func()   // called before each of the reads, if not nil
	log     bytes.Buffer
}

// onChecked runs a test with a segment of three and a half chunks, in a bubble, where waits take no
// time.
func onChecked(t *testing.T, lacking []string, test func(t *testing.T, d *checked)) {
	t.Helper()
	path := emptyFolder(t)
	synctest.Test(t, func(t *testing.T) {
		d := &checked{lacking: lacking}
		disk, err := OpenDisk(DiskOptions{Path: path, Logger: slog.New(slog.NewTextHandler(&d.log, nil)),
			failure: d.failure})
		require.NoError(t, err)
		d.Disk = disk
		defer func() { require.NoError(t, d.Close()) }()
		d.store(t, 3*ChunkSize+ChunkSize/2)
		test(t, d)
	})
}

// store stores a segment of size bytes.
func (d *checked) store(t *testing.T, size int) {
	t.Helper()
	d.content = contenttest.Shared(1, int64(size))
	d.s = &Segment{Key: Key{File: "group1/M00/00/00/a"}, Version: Version{Size: int64(size)},
		Chunks: slices.Collect(slices.Chunk(d.content, ChunkSize))}
	require.True(t, d.Put(d.s))
	d.Settle()
}

func (d *checked) failure(op string) error {
	if op == "read" {
		d.reads.Add(1)
		if d.reading != nil {
			d.reading()
		}
	}
	if slices.Contains(d.lacking, op) {
		return unix.ENOSYS
	}
	return nil
}

func (d *checked) file() string { return filepath.Join(d.o.Path, d.path(d.s.Key)) }

// corrupt changes one byte of the content on the disk.
func (d *checked) corrupt(t *testing.T, offset int) {
	t.Helper()
	f, err := os.OpenFile(d.file(), os.O_RDWR, 0)
	require.NoError(t, err)
	info, err := f.Stat()
	require.NoError(t, err)
	_, err = f.WriteAt([]byte{^d.content[offset]}, info.Size()-int64(len(d.content)-offset))
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

// evict removes the file from the page cache.
func (d *checked) evict(t *testing.T) {
	t.Helper()
	f, err := os.Open(d.file())
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, f.Sync())
	require.NoError(t, unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED))
	cached, err := cachestat(int(f.Fd()), 0, 1)
	require.NoError(t, err)
	if cached {
		t.Skip("SKIPPED: the file system of the temporary folder evicts nothing")
	}
}

// get reads bytes as a client does. It returns nil if the segment is missing or corrupted.
func (d *checked) get(t *testing.T, offset, length int) []byte {
	t.Helper()
	view, ok := d.Get(d.s.Key, d.s.Version, true)
	if !ok {
		return nil
	}
	defer view.Release()
	got := make([]byte, 0, length)
	for len(got) < length {
		s, err := view.At(int64(offset+len(got)), int64(length-len(got)))
		if err != nil {
			require.ErrorIs(t, err, ErrCorrupt)
			return nil
		}
		b, err := contenttest.ReadChunk(s)
		require.NoError(t, err)
		got = append(got, b...)
	}
	return got
}

// requireRead requires that the right bytes are read.
func (d *checked) requireRead(t *testing.T, offset, length int) {
	t.Helper()
	require.True(t, bytes.Equal(d.content[offset:offset+length], d.get(t, offset, length)))
}

// requireCorrupt requires that the corruption of bytes is detected and counted, and the segment is
// removed.
func (d *checked) requireCorrupt(t *testing.T, offset, length int) {
	t.Helper()
	require.True(t, d.get(t, offset, length) == nil, "wrong bytes")
	require.EqualValues(t, 1, d.Stats().Corrupt)
	d.Settle()
	require.NoFileExists(t, d.file())
	require.True(t, d.get(t, 0, 1) == nil)
}

// requireStoredAnew requires that a segment can be stored in the place of the removed one.
func (d *checked) requireStoredAnew(t *testing.T) {
	t.Helper()
	require.True(t, d.Put(d.s))
	d.Settle()
	d.requireRead(t, 0, len(d.content))
}

// warm reads the whole segment three times, which checks every chunk once, and lets a second pass
// after each.
func (d *checked) warm(t *testing.T) {
	t.Helper()
	for range 3 {
		d.requireRead(t, 0, len(d.content))
		time.Sleep(time.Second)
	}
	require.EqualValues(t, 4, d.reads.Swap(0))
}

// logged counts the occurrences of a text in the log.
func (d *checked) logged(text string) int { return strings.Count(d.log.String(), text) }

// TestRecheckEvicted: chunks whose pages were evicted are checked once before they are used again.
// This detects a chunk that was corrupted on the disk.
func TestRecheckEvicted(t *testing.T) {
	onChecked(t, nil, func(t *testing.T, d *checked) {
		d.warm(t)
		d.evict(t)
		d.warm(t)
		d.corrupt(t, len(d.content)-1)
		d.evict(t)
		d.requireRead(t, 0, 100) // this chunk is correct; the kernel reads others ahead
		d.requireCorrupt(t, 0, len(d.content))
		d.requireStoredAnew(t)
		require.Zero(t, d.logged("by time only"))
	})
}

// TestRecheckBehindTheHeader: the read of the header of an evicted file brings the content in the
// same page into the page cache. That content is checked nevertheless.
func TestRecheckBehindTheHeader(t *testing.T) {
	onChecked(t, nil, func(t *testing.T, d *checked) {
		d.store(t, 1000)
		d.requireRead(t, 0, 1000)
		time.Sleep(time.Second)
		d.corrupt(t, 999)
		d.evict(t)
		d.requireCorrupt(t, 0, 1000)
	})
}

// TestRecheckAfterADay: all chunks are checked again after a day, both if they stay in the page
// cache and if the kernel cannot report its state.
func TestRecheckAfterADay(t *testing.T) {
	for _, lacking := range [][]string{nil, {"cachestat"}} {
		onChecked(t, lacking, func(t *testing.T, d *checked) {
			require.Equal(t, len(lacking), d.logged("by time only"))
			d.warm(t)
			d.corrupt(t, 0)
			if len(lacking) > 0 {
				d.evict(t)
			}
			time.Sleep(recheckAfter - 4*time.Second)
			require.Len(t, d.get(t, 0, len(d.content)), len(d.content))
			require.Zero(t, d.reads.Load())
			time.Sleep(time.Second)
			d.requireCorrupt(t, 0, len(d.content))
			d.requireStoredAnew(t)
		})
	}
}

// TestRecheckLooksOnceASecond: the page cache is looked up once a second, not for each reader. If
// the kernel does not report its state, the chunks are used, and no reader checks one again.
func TestRecheckLooksOnceASecond(t *testing.T) {
	onChecked(t, nil, func(t *testing.T, d *checked) {
		looks := 0
		call := d.inPageCache
		d.inPageCache = func(_ int, offset, length int64) bool { looks++; return call(-1, offset, length) }
		for second := range 3 {
			for range 10 {
				d.requireRead(t, 0, len(d.content))
			}
			require.Equal(t, second+1, looks)
			time.Sleep(time.Second)
		}
		require.EqualValues(t, 4, d.reads.Load())
		view, ok := d.Get(d.s.Key, d.s.Version, true)
		require.True(t, ok)
		defer view.Release()
		chunk, err := view.At(100, SegmentSize)
		require.NoError(t, err)
		require.EqualValues(t, len(d.content)-100, chunk.Length, "checked chunks are sent in one piece")
	})
}

// evicted simulates a page cache that evicts everything at once.
func (d *checked) evicted() { d.inPageCache = func(int, int64, int64) bool { return false } }

// scan reads a short range of a chunk that is evicted each time, until it is not checked any more,
// and returns the number of checks.
func (d *checked) scan(t *testing.T) (checks int) {
	t.Helper()
	for before := int64(-1); d.reads.Load() != before && checks < 1000; checks++ {
		before = d.reads.Load()
		d.index.get(d.s.Key, false).checks.Load().looked = 0
		d.requireRead(t, 5, 100)
	}
	return checks - 1
}

// TestRecheckRate: checks for short ranges of evicted chunks read up to the allowed rate in excess
// of the ranges, and no more. Whole chunks are always checked.
func TestRecheckRate(t *testing.T) {
	onChecked(t, nil, func(t *testing.T, d *checked) {
		const excess = ChunkSize - 100 // for one check
		d.warm(t)
		d.evicted()
		require.Equal(t, recheckBurst/excess, d.scan(t))
		time.Sleep(time.Second)
		require.Equal(t, recheckRate/excess, d.scan(t))
		require.Zero(t, d.scan(t))
		d.inPageCache = func(int, int64, int64) bool { return true }
		for range 2 { // the first read checks them
			d.requireRead(t, ChunkSize, 2*ChunkSize)
		}
		d.evicted()
		require.Equal(t, 2, d.scan(t), "two chunks were given without a check")
		for range 3 {
			d.index.get(d.s.Key, false).checks.Load().looked = 0
			before := d.reads.Load()
			d.requireRead(t, 0, ChunkSize)
			require.Equal(t, before+1, d.reads.Load(), "nothing is read in excess")
		}
		time.Sleep(time.Hour)
		require.Equal(t, recheckBurst/excess, d.scan(t))
	})
}

// TestRecheckLater: a chunk that was used without a due check is checked later, though it is in the
// page cache again. If it is corrupted, readers that have it open get an error.
func TestRecheckLater(t *testing.T) {
	onChecked(t, nil, func(t *testing.T, d *checked) {
		d.warm(t)
		require.True(t, d.rechecks.allow(recheckBurst))
		d.rechecks.earned.Store(0)
		d.corrupt(t, 0)
		d.evict(t)
		d.requireRead(t, 5, 100)
		require.Zero(t, d.reads.Load())
		view, ok := d.Get(d.s.Key, d.s.Version, true)
		require.True(t, ok)
		defer view.Release()
		d.requireCorrupt(t, 0, ChunkSize)
		_, err := view.At(5, 100)
		require.ErrorIs(t, err, ErrCorrupt)
	})
}

// TestCheckedTogether: concurrent readers of a chunk check it once.
func TestCheckedTogether(t *testing.T) {
	onChecked(t, nil, func(t *testing.T, d *checked) {
		d.reading = func() {
			for range 1000 { // so that the other readers wait meanwhile
				runtime.Gosched()
			}
		}
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() { d.requireRead(t, 0, len(d.content)) })
		}
		all.Wait()
		require.EqualValues(t, 4, d.reads.Load())
	})
}
