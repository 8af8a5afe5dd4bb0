package local

import (
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/testing/contenttest"
	"fastdfs-gateway/internal/testing/eventually"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestOpenPlain(t *testing.T) {
	eachOpener(t, func(t *testing.T, s *testStore, l *Store) {
		normal := s.normal("a normal file")
		f := requireContent(t, l, normal, "a normal file")
		require.Equal(t, created, f.ModTime())
		require.True(t, written.Equal(f.FileTime()))
		require.False(t, f.Mutable())
		require.False(t, f.Linked())
		require.Equal(t, normal, f.Content())
		require.Zero(t, f.Base())

		requireContent(t, l, s.normal(""), "")

		slave, err := fdfs.EncodeSlave(normal, "_150x150", "txt")
		require.NoError(t, err)
		f = requireContent(t, l, s.write(slave, "a slave file, of any size"), "a slave file, of any size")
		require.True(t, written.Equal(f.ModTime()), f.ModTime())
		require.True(t, f.Mutable())

		appender := s.write(s.id(fdfs.KindAppender, "", nil), "grown")
		f = requireContent(t, l, appender, "grown")
		require.True(t, written.Equal(f.ModTime()))
		require.True(t, f.Mutable())

		second := s.write(s.id(fdfs.KindNormal, "M01", func(f *fdfs.Fields) { f.PathIndex = 1 }), "M01")
		requireContent(t, l, second, "M01")
		other := s.write(s.id(fdfs.KindNormal, "group2", func(f *fdfs.Fields) { f.Group = "group2" }), "group2")
		requireContent(t, l, other, "group2")
	})
}

func TestOpenMissing(t *testing.T) {
	eachOpener(t, func(t *testing.T, s *testStore, l *Store) {
		requireMissing(t, l, s.id(fdfs.KindNormal, "never written", nil), fdfs.ErrNoFile)
		requireMissing(t, l, s.id(fdfs.KindNormal, "no such folder", func(f *fdfs.Fields) { f.High = 0xFF }),
			fdfs.ErrNoFile)
		requireMissing(t, l, s.write(s.id(fdfs.KindNormal, "whole", nil), "who"), errSize)
		requireMissing(t, l, s.write(s.id(fdfs.KindNormal, "whole", nil), "whole and more"), errSize)

		_, err := l.Open(s.id(fdfs.KindNormal, "x", func(f *fdfs.Fields) { f.Group = "group3" }))
		require.Equal(t, ErrNoGroup, err)
		_, err = l.Open(s.id(fdfs.KindNormal, "x", func(f *fdfs.Fields) { f.PathIndex = 2 }))
		require.Equal(t, ErrPathIndex, err)
	})
}

func TestOpenNotRegular(t *testing.T) {
	eachOpener(t, func(t *testing.T, s *testStore, l *Store) {
		id := s.id(fdfs.KindNormal, "folder", nil)
		require.NoError(t, os.Mkdir(s.disk(id), 0o755))
		requireMissing(t, l, id, errNotRegular)

		id = s.id(fdfs.KindNormal, "fifo", nil)
		require.NoError(t, unix.Mkfifo(s.disk(id), 0o644))
		requireMissing(t, l, id, errNotRegular) // without a wait for a writer

		id = s.id(fdfs.KindNormal, "socket", nil)
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		require.NoError(t, err)
		require.NoError(t, unix.Mknod(s.disk(id), unix.S_IFSOCK|0o644, 0))
		requireMissing(t, l, id, fdfs.ErrNoFile)
		require.NoError(t, unix.Close(fd))

		id = s.id(fdfs.KindAppender, "", nil)
		if err := unix.Mknod(s.disk(id), unix.S_IFCHR|0o644, int(unix.Mkdev(1, 5))); err == nil { // for root only
			_, err := l.Open(id)
			require.Error(t, err)
		}
		id = s.id(fdfs.KindTrunk, "x", func(f *fdfs.Fields) { f.Trunk = fdfs.Trunk{ID: 7, Alloc: 256} })
		require.NoError(t, os.Mkdir(s.disk(id), 0o755))
		requireMissing(t, l, id, errNotRegular)
	})
}

func TestOpenTrunk(t *testing.T) {
	eachOpener(t, func(t *testing.T, s *testStore, l *Store) {
		first := s.slot(0, fdfs.SlotFile, trunkText(1), nil)
		second := s.slot(256, fdfs.SlotFile, trunkText(2), nil)
		empty := s.slot(512, fdfs.SlotFile, "", nil)
		f := requireContent(t, l, first, trunkText(1))
		require.EqualValues(t, 24, f.Base())
		f = requireContent(t, l, second, trunkText(2))
		require.EqualValues(t, 256+24, f.Base())
		require.Equal(t, created, f.ModTime())
		require.False(t, f.Mutable() || f.Linked())
		requireContent(t, l, empty, "")

		// Slots that are freed, and reused by a smaller file at the same place.
		s.writeAt(first, 0, make([]byte, 24))
		requireMissing(t, l, first, errSlot)
		requireMissing(t, l, s.slot(0, fdfs.SlotFree, "freed", nil), errSlot)
		reuser := s.slot(256, fdfs.SlotFile, "another", nil)
		requireMissing(t, l, second, errSlot)
		requireContent(t, l, reuser, "another")

		// A slot header with the CRC32 of other content.
		_, err := l.Open(s.slot(256, fdfs.SlotFile, "forged", func(f *fdfs.Fields) { f.CRC32++ }))
		require.ErrorIs(t, err, ErrSlotContent)
		require.NotErrorIs(t, err, fdfs.ErrNoFile, "nobody else is asked")
		legacy := s.slot(256, fdfs.SlotFile, "hello", func(f *fdfs.Fields) { f.CRC32 = 0x1bedb6f4 })
		requireContent(t, l, legacy, "hello")

		// Slots at, across and far behind the end of the trunk file, and a missing trunk file.
		size := int64(512 + 24)
		require.NoError(t, os.Truncate(s.disk(first), size))
		requireContent(t, l, empty, "")
		for _, offset := range []uint32{uint32(size), uint32(size) - 23, 1<<32 - 1} {
			requireMissing(t, l, s.id(fdfs.KindTrunk, "x", func(f *fdfs.Fields) {
				f.Trunk = fdfs.Trunk{ID: 1, Offset: offset, Alloc: 256}
			}), errSlot)
		}
		cut := s.slot(768, fdfs.SlotFile, "cut short", nil)
		require.NoError(t, os.Truncate(s.disk(cut), 768+24+8))
		requireMissing(t, l, cut, errSlot)
		requireMissing(t, l, s.id(fdfs.KindTrunk, "x",
			func(f *fdfs.Fields) { f.Trunk = fdfs.Trunk{ID: 99, Alloc: 256} }), fdfs.ErrNoFile)
	})
}

func TestOptions(t *testing.T) {
	for name, opts := range map[string]Options{
		"no name":    {Groups: []GroupPaths{{"", []string{"/x"}}}},
		"bad name":   {Groups: []GroupPaths{{"a/b", []string{"/x"}}}},
		"no path":    {Groups: []GroupPaths{{"a", nil}}},
		"empty path": {Groups: []GroupPaths{{"a", []string{"/x", ""}}}},
		"257 paths":  {Groups: []GroupPaths{{"a", make([]string, 257)}}},
		"twice":      {Groups: []GroupPaths{{"a", []string{"/x"}}, {"a", []string{"/y"}}}},
	} {
		_, err := Open(opts)
		require.Error(t, err, name)
	}
}

func TestUnavailable(t *testing.T) {
	s := newTestStore(t)
	id := s.normal("content")
	root := s.paths["group1"][0]
	require.NoError(t, os.Rename(root, root+".away"))
	l, err := Open(s.options())
	require.NoError(t, err)
	err = l.Ready()
	require.ErrorIs(t, err, ErrUnavailable)
	require.ErrorContains(t, err, root)
	_, err = l.Open(id)
	require.ErrorIs(t, err, ErrUnavailable)
	require.NotErrorIs(t, err, fdfs.ErrNoFile)
	toMissing := s.id(fdfs.KindNormal, "link", func(f *fdfs.Fields) { f.PathIndex = 1 })
	require.NoError(t, os.Symlink(s.disk(id), s.disk(toMissing)))
	_, err = l.Open(toMissing)
	require.ErrorIs(t, err, ErrUnavailable, "the target's disk is away")

	require.NoError(t, os.Rename(root+".away", root)) // the disk is mounted, and Open works without a call of Ready
	requireContent(t, l, id, "content")
	require.NoError(t, l.Ready())

	require.NoError(t, os.RemoveAll(filepath.Join(root, "data")))
	require.ErrorIs(t, l.Ready(), ErrUnavailable)
	_, err = l.Open(id)
	require.ErrorIs(t, err, ErrUnavailable)

	for range 2 {
		require.NoError(t, l.Close())
		require.ErrorIs(t, l.Ready(), ErrUnavailable)
		_, err = l.Open(id)
		require.ErrorIs(t, err, ErrUnavailable)
	}
}

func TestDescriptorsRunOut(t *testing.T) {
	s := newTestStore(t)
	id := s.normal("content")
	l := s.local()
	defer l.Close()
	var old unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &old))
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 3, Max: old.Max}))
	_, err := l.Open(id)
	ready := l.Ready()
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &old))
	require.ErrorIs(t, err, ErrUnavailable)
	require.ErrorIs(t, err, unix.EMFILE)
	require.ErrorIs(t, ready, ErrUnavailable)
	requireContent(t, l, id, "content")
}

// TestDiskReplaced: Ready notices another disk at the same path, and its files are served from then
// on.
func TestDiskReplaced(t *testing.T) {
	s := newTestStore(t)
	l := s.local()
	defer l.Close()
	id := s.normal("on the old disk only")
	root := s.paths["group1"][0]
	d, err := l.groups["group1"][0].acquire()
	require.NoError(t, err)
	require.NoError(t, os.Rename(root, root+".old"))
	require.NoError(t, os.MkdirAll(filepath.Join(root, "data", "0A", "01"), 0o755))
	fresh := s.normal("on the new disk only")
	requireContent(t, l, id, "on the old disk only")
	require.NoError(t, l.Ready())
	requireContent(t, l, fresh, "on the new disk only")
	requireMissing(t, l, id, fdfs.ErrNoFile)

	var st unix.Stat_t
	require.NoError(t, unix.Fstat(d.fd, &st), "closed although an opening uses it")
	d.dropRef()
	require.ErrorIs(t, unix.Fstat(d.fd, &st), unix.EBADF)
	require.False(t, d.retain(), "used after it was closed")
}

// TestSwapWhileOpening: while disks are swapped again and again, each call of Open returns the
// right file or ErrUnavailable, and no descriptor stays open.
func TestSwapWhileOpening(t *testing.T) {
	before := descriptors(t)
	s := newTestStore(t)
	id := s.normal("content")
	root := s.paths["group1"][0]
	spare := root + ".spare"
	require.NoError(t, os.CopyFS(spare, os.DirFS(root)))
	l := s.local()
	var opened atomic.Int64
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				f, err := l.Open(id)
				if err == nil {
					opened.Add(1)
					err = f.Close()
				}
				if err != nil && !errors.Is(err, ErrUnavailable) {
					t.Errorf("open: %v", err)
				}
			}
		})
	}
	began := time.Now()
	for swaps := 0; (swaps < 150 || opened.Load() < 150) && time.Since(began) < eventually.Limit; swaps++ {
		require.NoError(t, unix.Renameat2(unix.AT_FDCWD, root, unix.AT_FDCWD, spare, unix.RENAME_EXCHANGE))
		require.NoError(t, l.Ready())
	}
	close(stop)
	wg.Wait()
	require.NoError(t, l.Close())
	require.Positive(t, opened.Load())
	require.Equal(t, before, descriptors(t))
}

func TestAt(t *testing.T) {
	s := newTestStore(t)
	l := s.local()
	defer l.Close()
	id := s.slot(256, fdfs.SlotFile, "0123456789", nil)
	s.slot(512, fdfs.SlotFile, "a neighbour", nil)
	f, err := l.Open(id)
	require.NoError(t, err)
	defer f.Close()
	for _, test := range []struct {
		offset, limit int64
		want          string
	}{
		{0, 10, "0123456789"}, {0, 11, "0123456789"}, {9, 1, "9"}, {9, 2, "9"}, {3, 4, "3456"}, {5, 100, "56789"},
		{5, math.MaxInt64, "56789"},
	} {
		chunk, err := f.At(test.offset, test.limit)
		require.NoError(t, err, test)
		b, err := contenttest.ReadChunk(chunk)
		require.NoError(t, err, test)
		require.Equal(t, test.want, string(b), test)
	}
	for _, outside := range [][2]int64{{10, 1}, {1 << 62, 1}, {2, 0}, {-1, 5}, {0, -1}} {
		_, err = f.At(outside[0], outside[1])
		require.ErrorIs(t, err, io.ErrUnexpectedEOF, outside)
	}
	require.NoError(t, os.Truncate(s.disk(id), 256+24+4))
	b, err := contenttest.ReadAll(f, 10)
	require.Empty(t, b)
	require.ErrorIs(t, err, fdfs.ErrFileChanged)
}
