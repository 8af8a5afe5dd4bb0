package tier

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"fastdfs-gateway/internal/testing/contenttest"

	"github.com/stretchr/testify/require"
)

// checked is a disk with one segment. It counts the chunks that are read to be checked.
type checked struct {
	*Disk
	s       *Segment
	content []byte
	reads   atomic.Int64
	reading func() // called before each of the reads, if not nil
}

// onChecked runs a test with a segment of three and a half chunks, in a bubble, where waits take no
// time.
func onChecked(t *testing.T, test func(t *testing.T, d *checked)) {
	t.Helper()
	path := emptyFolder(t)
	synctest.Test(t, func(t *testing.T) {
		d := &checked{}
		disk, err := OpenDisk(DiskOptions{Path: path, failure: d.failure})
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

// TestRecheckAfterADay: all chunks are checked again after a day. Readers that have a corrupted one
// open get an error.
func TestRecheckAfterADay(t *testing.T) {
	onChecked(t, func(t *testing.T, d *checked) {
		d.warm(t)
		d.corrupt(t, 0)
		time.Sleep(recheckAfter - 4*time.Second)
		require.Len(t, d.get(t, 0, len(d.content)), len(d.content))
		require.Zero(t, d.reads.Load())
		view, ok := d.Get(d.s.Key, d.s.Version, true)
		require.True(t, ok)
		defer view.Release()
		chunk, err := view.At(100, SegmentSize)
		require.NoError(t, err)
		require.EqualValues(t, len(d.content)-100, chunk.Length, "checked chunks are sent in one piece")
		time.Sleep(time.Second)
		d.requireCorrupt(t, 0, len(d.content))
		_, err = view.At(5, 100)
		require.ErrorIs(t, err, ErrCorrupt)
		d.requireStoredAnew(t)
	})
}

// TestCheckedTogether: concurrent readers of a chunk check it once.
func TestCheckedTogether(t *testing.T) {
	onChecked(t, func(t *testing.T, d *checked) {
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
