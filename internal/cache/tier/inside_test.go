package tier

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"fastdfs-gateway/internal/testing/eventually"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// InMemory reports whether the bytes are in memory.
func (v View) InMemory() bool { return v.file == nil }

// Settle waits until the queue of writes is empty, and the files of all removed segments are gone
// or could not be removed.
func (d *Disk) Settle() {
	for {
		var some *job
		d.pending.Visit(&d.mu, MatchAll, func(_ Key, j *job) { some = j })
		if some == nil {
			_ = d.flush() // fails while the disk hangs
			return
		}
		<-some.done
	}
}

// Pass ends the time for which a failed disk is disabled.
func (d *Disk) Pass() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.writing.Reset()
	d.reading.Reset()
}

// TestFailingDisk: failed reads and writes disable the disk for a while. Then it is used again.
func TestFailingDisk(t *testing.T) {
	var failing atomic.Value
	failing.Store("")
	d := openDisk(t, DiskOptions{Retry: time.Hour, failure: func(op string) error {
		if failing.Load() == op {
			return errors.New("input/output error")
		}
		return nil
	}})
	s := tiny("a")
	found := func() bool {
		view, ok := d.Get(s.Key, s.Version, true)
		if !ok {
			return false
		}
		defer view.Release()
		_, err := view.At(0, 1)
		return err == nil
	}
	failing.Store("create")
	require.True(t, d.Put(s))
	d.Settle()
	require.False(t, found())
	require.EqualValues(t, 1, d.Stats().Failed)
	require.True(t, d.Stats().Disabled)
	failing.Store("")
	require.False(t, d.Put(s), "it is disabled for a while")
	d.Pass()
	require.True(t, d.Put(s))
	d.Settle()
	require.False(t, d.Stats().Disabled)
	for i, op := range []string{"read", "open"} {
		d.mu.Lock()
		d.index.get(s.Key, false).checks.Store(nil)
		d.mu.Unlock()
		failing.Store(op)
		require.False(t, found(), op)
		require.False(t, found(), op)
		require.EqualValues(t, 2+i, d.Stats().Failed, op)
		failing.Store("")
		require.False(t, found(), "it is disabled for a while")
		d.Pass()
		require.True(t, found(), op)
	}
}

// onRecord is a handler of warnings and errors that calls a function.
type onRecord struct {
	slog.Handler
	call func()
}

func (h onRecord) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }

func (h onRecord) Handle(context.Context, slog.Record) error {
	h.call()
	return nil
}

// TestOffBeforeItLeavesTheQueue: the disk is disabled before a segment that could not be written
// leaves the queue, so no segment enters the queue in between.
func TestOffBeforeItLeavesTheQueue(t *testing.T) {
	s := tiny("a")
	var d *Disk
	var off, waiting, failing atomic.Bool
	failing.Store(true)
	log := slog.New(onRecord{slog.DiscardHandler, func() {
		_, found := d.Get(s.Key, s.Version, true)
		waiting.Store(found)
		off.Store(d.Stats().Disabled)
	}})
	d = openDisk(t, DiskOptions{Logger: log, failure: failureOf("create", &failing)})
	require.True(t, d.Put(s))
	d.Settle()
	require.NoError(t, d.Close())
	require.True(t, off.Load())
	require.True(t, waiting.Load())
}

// whileRemoved calls do when the file of a segment that was canceled during its write exists, and
// is about to be removed. It returns after the removal.
func whileRemoved(t *testing.T, do func(d *Disk, canceled *Segment, writes *atomic.Int64)) {
	t.Helper()
	path := emptyFolder(t)
	synctest.Test(t, func(t *testing.T) {
		write, remove := make(chan struct{}), make(chan struct{})
		var writes atomic.Int64
		d, err := OpenDisk(DiskOptions{Path: path, failure: func(op string) error {
			switch {
			case op == "create" && writes.Add(1) == 1:
				<-write
			case op == "remove":
				<-remove
			}
			return nil
		}})
		require.NoError(t, err)
		s := &Segment{Key: Key{File: "a"}, Version: Version{Size: 10, ModTime: 1}, Chunks: [][]byte{make([]byte, 10)}}
		require.True(t, d.Put(s))
		synctest.Wait()
		_, found := d.Get(s.Key, Version{Size: 10, ModTime: 2}, true) // cancels it
		require.False(t, found)
		close(write)
		synctest.Wait()
		require.FileExists(t, filepath.Join(path, d.path(s.Key)))
		d.folders[folderOf(s.File)].named.Store(false) // so the names of the files are read again
		do(d, s, &writes)
		close(remove)
		synctest.Wait()
		require.Nil(t, d.active)
		require.NoError(t, d.Close())
	})
}

// TestCanceledWhileWritten: a segment that was canceled during its write is not found by its name.
// Sync after a purge waits until its file is gone. The segment that replaces it is not removed
// instead of it.
func TestCanceledWhileWritten(t *testing.T) {
	whileRemoved(t, func(d *Disk, canceled *Segment, _ *atomic.Int64) {
		_, found := d.Get(canceled.Key, canceled.Version, true)
		require.False(t, found)
		_, found = d.Holds(canceled.Key)
		require.False(t, found)
	})
	var gone atomic.Bool
	whileRemoved(t, func(d *Disk, _ *Segment, _ *atomic.Int64) {
		require.Zero(t, d.Purge(MatchAll), "it was canceled before")
		go func() {
			if d.Sync() == nil {
				gone.Store(true)
			}
		}()
		synctest.Wait()
		require.False(t, gone.Load(), "it is still there")
	})
	require.True(t, gone.Load())
	var disk *Disk
	newer := &Segment{Key: Key{File: "a"}, Version: Version{Size: 10, ModTime: 2}, Chunks: [][]byte{make([]byte, 10)}}
	whileRemoved(t, func(d *Disk, _ *Segment, writes *atomic.Int64) {
		require.True(t, d.Put(newer))
		synctest.Wait()
		require.EqualValues(t, 1, writes.Load(), "it waits")
		disk = d
	})
	require.FileExists(t, filepath.Join(disk.o.Path, disk.path(newer.Key)))
	require.Equal(t, 1, disk.Stats().Entries)
}

// TestSlowDisk: segments that do not fit into the queue are not stored, and Put does not wait for
// the disk.
func TestSlowDisk(t *testing.T) {
	stuck := make(chan struct{})
	d := openDisk(t, DiskOptions{Queue: 10000, failure: func(op string) error {
		if op == "create" {
			<-stuck
		}
		return nil
	}})
	for i := range int64(20) {
		s := &Segment{Key: Key{File: "a", Index: i}, Version: Version{Size: 1000}, Chunks: [][]byte{make([]byte, 1000)}}
		require.Equal(t, i < 10, d.Put(s), i)
		_, ok := d.Get(s.Key, s.Version, true)
		require.Equal(t, i < 10, ok, "what waits in the queue is found")
	}
	require.EqualValues(t, 10, d.Stats().Skipped)
	close(stuck)
	d.Settle()
	require.Equal(t, 10, d.Stats().Entries)
}

// TestPurgeBesideASlowWrite: Purge does not wait while the disk writes, also the same file. A
// purged segment in the queue is not written, and the one that is being written is removed.
func TestPurgeBesideASlowWrite(t *testing.T) {
	path := emptyFolder(t)
	synctest.Test(t, func(t *testing.T) {
		stuck := make(chan struct{})
		var writes atomic.Int64
		d, err := OpenDisk(DiskOptions{Path: path, failure: func(op string) error {
			if op == "create" && writes.Add(1) == 1 {
				<-stuck
			}
			return nil
		}})
		require.NoError(t, err)
		for _, file := range []string{"a", "b", "c"} {
			require.True(t, d.Put(tiny(file)))
		}
		synctest.Wait()
		require.Equal(t, 1, d.Purge(MatchFile("b")))
		require.Equal(t, 1, d.Purge(MatchFile("a")), "it is being written")
		close(stuck)
		d.Settle()
		require.EqualValues(t, 2, writes.Load())
		require.Equal(t, 1, d.Stats().Entries)
		require.NoFileExists(t, filepath.Join(path, d.path(Key{File: "a"})))
		require.NoFileExists(t, filepath.Join(path, d.path(Key{File: "b"})))
		require.NoError(t, d.Close())
	})
}

// FuzzHeader: a header is read as it was written, and one of another version is rejected as such.
// Any other bytes are a header of the right lengths, or an error.
func FuzzHeader(f *testing.F) {
	s := &Segment{Key: Key{File: "group1/M00/00/00/a", Index: 1},
		Version: Version{Size: SegmentSize + 300000, ModTime: -5, CRC32: 7, Immutable: true, Linked: true},
		Chunks:  [][]byte{make([]byte, ChunkSize), make([]byte, 300000-ChunkSize)}}
	good := appendHeader(nil, s)
	size := int64(len(good)) + 300000
	h, err := parseHeader(good, size)
	require.NoError(f, err)
	require.Equal(f, []any{s.Key, s.Version, int64(300000)}, []any{h.key, h.version, h.length})
	other := bytes.Clone(good)
	other[8] = 2
	_, err = parseHeader(other, size)
	require.ErrorContains(f, err, "version 2 of the format")
	f.Add(good, size)
	f.Add([]byte(magic), int64(0))
	f.Fuzz(func(t *testing.T, b []byte, size int64) {
		h, err := parseHeader(b, size)
		if err != nil {
			require.ErrorIs(t, err, errFormat)
			return
		}
		require.Equal(t, size, h.size+h.length)
		require.LessOrEqual(t, h.length, int64(SegmentSize))
		require.LessOrEqual(t, h.size, int64(maxHeader))
	})
}

// TestMissRemovesNoNewerEntry: a reader that finds no file removes the index entry that it has
// looked up, not one that a writer has added since.
func TestMissRemovesNoNewerEntry(t *testing.T) {
	d, key := openDisk(t, DiskOptions{}), Key{File: "a"}
	newer := &diskEntry{key: key, bytes: 1}
	d.mu.Lock()
	d.index.addEntry(newer)
	d.mu.Unlock()
	require.Nil(t, d.openFile(key, &diskEntry{}))
	require.Equal(t, 1, d.Stats().Entries)
	require.Nil(t, d.openFile(key, newer))
	require.Zero(t, d.Stats().Entries)
}

// TestDiscardSparesNewer: a reader that finds another version removes that one, not one that a
// writer has stored in its place since.
func TestDiscardSparesNewer(t *testing.T) {
	d := openDisk(t, DiskOptions{})
	put := func(modTime int64) Version {
		v := Version{Size: 10, ModTime: modTime}
		require.True(t, d.Put(&Segment{Key: Key{File: "a"}, Version: v, Chunks: [][]byte{make([]byte, 10)}}))
		eventually.True(t, func() bool {
			d.mu.Lock()
			defer d.mu.Unlock()
			return d.listed && len(d.pending) == 0 && d.active == nil
		})
		return v
	}
	put(1)
	_, was := d.look(Key{File: "a"}, Version{Size: 10, ModTime: 2}, true)
	require.NotNil(t, was)
	f := d.openFile(Key{File: "a"}, was)
	require.NotNil(t, f)
	newer := put(2)
	d.invalidate(f, was)
	view, found := d.Get(Key{File: "a"}, newer, true)
	require.True(t, found)
	view.Release()
	_, found = d.Get(Key{File: "a"}, Version{Size: 10, ModTime: 3}, true)
	require.False(t, found)
	d.Settle()
	require.NoFileExists(t, filepath.Join(d.o.Path, d.path(Key{File: "a"})), "the other version is removed")
}

func FuzzName(f *testing.F) {
	for _, s := range []string{"group1+M00+00+0C+a.jpg+0.seg", "+0.seg", "a%2e+0.seg", "a+-1.seg", "a+01.seg"} {
		f.Add(s, int64(1))
	}
	f.Fuzz(func(t *testing.T, s string, index int64) {
		if key, ok := decodeName(s); ok {
			name, ok := encodeName(key)
			require.True(t, ok)
			require.Equal(t, s, name)
		}
		key := Key{File: s, Index: index}
		name, ok := encodeName(key)
		if !ok {
			return
		}
		require.LessOrEqual(t, len(name), 255)
		require.NotContains(t, name, "/")
		again, ok := decodeName(name)
		require.True(t, ok)
		require.Equal(t, key, again)
	})
}

// TestSyncOfWhatWasRemoved: Sync after a purge syncs only the folders from which a file was removed
// since the last Sync, and not all 256: a gateway may have missed thousands of purges.
func TestSyncOfWhatWasRemoved(t *testing.T) {
	var syncs atomic.Int64
	failing := false
	d := openDisk(t, DiskOptions{failure: func(op string) error {
		if op != "sync" {
			return nil
		}
		syncs.Add(1)
		if failing {
			return syscall.EIO
		}
		return nil
	}})
	purges := func(n int64, m Match) {
		t.Helper()
		syncs.Store(0)
		d.Purge(m)
		require.Zero(t, syncs.Load(), "a purge by itself waits for no disk")
		require.Equal(t, failing, d.Sync() != nil)
		require.Equal(t, n, syncs.Load())
	}
	put := func(file string) {
		require.True(t, d.Put(tiny(file)))
		d.Settle()
	}
	purges(folders, MatchAll)
	purges(0, MatchAll)
	put("group1/a")
	put("group1/b")
	purges(2, MatchFolder("group1"))
	put("group1/a")
	d.mu.Lock()
	d.startUnlink(Key{File: "group1/a"}) // as an eviction does
	d.mu.Unlock()
	d.Settle()
	failing = true
	purges(1, MatchFile("group1/a"))
	failing = false
	purges(1, MatchFile("group1/a"))
	purges(0, MatchFile("group1/a"))
}

// TestRemovalOfANewerFile: the end of the removal of a file is not taken for the removal of a newer
// file of the same segment, which was purged meanwhile.
func TestRemovalOfANewerFile(t *testing.T) {
	x, key := newIndex(), Key{File: "group1/a"}
	x.addEntry(&diskEntry{key: key})
	older := x.startUnlink(key)
	x.addEntry(&diskEntry{key: key})
	newer := x.startUnlink(key)
	x.endUnlink(key, older)
	require.Same(t, newer, x.unlinking.Get(key))
	require.Same(t, newer, x.startUnlink(key), "the file is still there")
	x.endUnlink(key, newer)
	require.Nil(t, x.unlinking.Get(key))
}

// folderPool has the folders that no test uses now.
var folderPool struct {
	sync.Mutex // guards the fields below
	free       []string
}

// RemoveFolders removes all folders of emptyFolder, after the tests.
func RemoveFolders() {
	for _, path := range folderPool.free {
		_ = os.RemoveAll(path) // a folder of the temporary folder that stays does no harm
	}
}

// EmptyFolder is emptyFolder for the tests of the other package.
var EmptyFolder = emptyFolder

// emptyFolder returns the folder of an earlier test without its files, or a new one. To make the
// 256 folders in it takes longer than most tests.
func emptyFolder(t *testing.T) string {
	t.Helper()
	var path string
	folderPool.Lock()
	if n := len(folderPool.free); n > 0 {
		path, folderPool.free = folderPool.free[n-1], folderPool.free[:n-1]
	}
	folderPool.Unlock()
	if path == "" {
		var err error
		path, err = os.MkdirTemp("", "tier")
		require.NoError(t, err)
	}
	t.Cleanup(func() { // after the cleanup that closes the disk
		list, err := filepath.Glob(filepath.Join(path, "*", "*"))
		require.NoError(t, err)
		for _, file := range append(list, filepath.Join(path, "segment.new")) {
			_ = os.Remove(file) // segment.new is seldom there
		}
		folderPool.Lock()
		defer folderPool.Unlock()
		folderPool.free = append(folderPool.free, path)
	})
	return path
}

// TestDiskFailures: a gateway starts without its disk tier if the disk has failed, and not if the
// configuration is wrong.
func TestDiskFailures(t *testing.T) {
	for _, err := range []error{unix.EIO, unix.ENOSPC, unix.EROFS, unix.EBADMSG, unix.EUCLEAN} {
		require.True(t, isDiskFailure(&os.PathError{Op: "statat", Path: "fastdfs-gateway-cache", Err: err}), err)
	}
	require.False(t, isDiskFailure(&os.PathError{Op: "open", Path: "x", Err: unix.EACCES}))
}
