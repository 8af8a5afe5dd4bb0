package tier

import (
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"fastdfs-gateway/internal/testing/eventually"

	"github.com/stretchr/testify/require"
)

// onFive returns a disk with five segments of one file, which is opened again with a failure.
func onFive(t *testing.T, o DiskOptions, failure func(op string) error) *Disk {
	t.Helper()
	o.Path = emptyFolder(t)
	d := openDisk(t, o)
	eventually.True(t, d.Listed)
	for i := range int64(5) {
		s := tiny("group1/a")
		s.Index, s.Version.Size = i, i*SegmentSize+1
		require.True(t, d.Put(s))
	}
	d.Settle()
	require.NoError(t, d.Close())
	o.failure = failure
	return openDisk(t, o)
}

// TestFileThatCannotBeExamined: if the size of a file cannot be read at start, the other files of
// its folder are listed. The file is examined again until its size is known.
func TestFileThatCannotBeExamined(t *testing.T) {
	var examined atomic.Int64
	var failing atomic.Bool
	failing.Store(true)
	d := onFive(t, DiskOptions{Retry: time.Millisecond}, func(op string) error {
		if op != "examine" {
			return nil
		}
		if n := examined.Add(1); failing.Load() && (n == 2 || n > 5) {
			return syscall.EIO
		}
		return nil
	})
	eventually.True(t, d.Listed)
	require.Equal(t, 4, d.Stats().Entries)
	require.EqualValues(t, 1, d.Stats().Failed)
	failing.Store(false)
	eventually.True(t, func() bool { return d.Stats().Entries == 5 })
}

// TestFolderThatCannotBeListed: a folder whose names cannot be read at start is read later, and its
// files then count in the budget.
func TestFolderThatCannotBeListed(t *testing.T) {
	var failing atomic.Bool
	failing.Store(true)
	d := onFive(t, DiskOptions{Retry: time.Millisecond}, failureOf("list", &failing))
	eventually.True(t, d.Listed)
	require.Zero(t, d.Stats().Entries)
	failing.Store(false)
	eventually.True(t, func() bool { return d.Stats().Entries == 5 })
	d.SetMax(onDisk(1))
	require.Equal(t, 1, d.Stats().Entries)
}

// TestReleaseWhileListing: Release does not wait until a slow disk is listed. Until then only a
// small part of the budget is used, since nothing can be evicted.
func TestReleaseWhileListing(t *testing.T) {
	examining, goOn := make(chan struct{}, 10), make(chan struct{})
	d := onFive(t, DiskOptions{Max: 1 << 20}, func(op string) error {
		if op == "examine" {
			examining <- struct{}{}
			<-goOn
		}
		return nil
	})
	<-examining
	stored := 0
	for i := range 1000 {
		if d.Put(tiny(numberedFile(i))) {
			stored++
		}
	}
	require.Equal(t, (1<<20)/startShare/4096, stored)
	go func() {
		<-d.life.Done()
		close(goOn)
	}()
	require.NoError(t, d.Release())
	require.Empty(t, examining, "it stops between two files")
	require.False(t, d.Listed())
}

// TestHangingDisk: as soon as an operation of any kind hangs for a bounded time, the tier is off
// for everybody: look-ups miss, nothing is queued, purges are in force at once, Sync fails, and
// none of them waits. When the operation has ended, a probe turns the tier on, and purged files are
// removed.
func TestHangingDisk(t *testing.T) {
	for _, op := range []string{"open", "read", "create", "remove", "sync"} {
		path := emptyFolder(t)
		synctest.Test(t, func(t *testing.T) {
			var hang atomic.Bool
			goOn := make(chan struct{})
			d := openDisk(t, DiskOptions{Path: path, failure: func(what string) error {
				if hang.Load() && (what == op || what == "probe") {
					<-goOn
				}
				return nil
			}})
			for _, file := range []string{"group1/a", "group1/b"} {
				require.True(t, d.Put(tiny(file)))
			}
			d.Settle()
			find := func(file string) bool {
				view, ok := d.Get(Key{File: file}, Version{Size: 1}, true)
				if ok {
					_, err := view.At(0, 1)
					ok = err == nil
					view.Release()
				}
				return ok
			}
			hang.Store(true)
			began := time.Now()
			switch op {
			case "create":
				require.True(t, d.Put(tiny("group1/c")))
			case "remove", "sync":
				require.Equal(t, 1, d.Purge(MatchFile("group1/a")))
				require.Zero(t, time.Since(began), "a purge does not wait")
				require.ErrorIs(t, d.Sync(), errOff)
				require.Equal(t, hangTime+graceTime, time.Since(began))
			default:
				require.False(t, find("group1/a"))
				require.False(t, find("group1/b"))
				require.Equal(t, readTime, time.Since(began), "one reader waits")
				require.False(t, d.Stats().Disabled, "it may be slow only")
			}
			time.Sleep(time.Hour)
			synctest.Wait()
			began = time.Now()
			require.False(t, find("group1/b"))
			_, held := d.Holds(Key{File: "group1/b"})
			require.False(t, held)
			require.False(t, d.Put(tiny("group1/d")))
			require.True(t, d.Stats().Disabled)
			require.EqualValues(t, 1, d.Stats().Failed)
			d.Purge(MatchFile("group1/a"))
			require.ErrorIs(t, d.Sync(), errOff)
			require.Zero(t, time.Since(began))
			hang.Store(false)
			close(goOn)
			time.Sleep(2 * probePause)
			require.True(t, find("group1/b"), op)
			require.False(t, d.Stats().Disabled)
			require.NoError(t, d.Sync())
			require.NoFileExists(t, filepath.Join(path, d.path(Key{File: "group1/a"})))
			require.NoError(t, d.Close())
		})
	}
}

// TestHangingStart: a disk that hangs at start is opened when it responds. Files that were purged
// meanwhile are not found then. Release and Close do not wait for a disk that hangs, and the folder
// is left to another process when it responds.
func TestHangingStart(t *testing.T) {
	path := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		d := openDisk(t, DiskOptions{Path: path})
		for _, file := range []string{"group1/a", "group1/b"} {
			require.True(t, d.Put(tiny(file)))
		}
		d.Settle()
		require.NoError(t, d.Close())
		var hang atomic.Bool
		goOn := make(chan struct{})
		hangs := func(what string) error {
			if hang.Load() {
				<-goOn
			}
			return nil
		}
		hang.Store(true)
		d = openDisk(t, DiskOptions{Path: path, failure: hangs})
		require.False(t, d.Put(tiny("group1/c")))
		d.Purge(MatchFile("group1/a"))
		require.Error(t, d.Sync())
		hang.Store(false)
		close(goOn)
		time.Sleep(2 * probePause)
		require.NoError(t, d.Sync())
		_, found := d.Holds(Key{File: "group1/a"})
		require.False(t, found)
		_, found = d.Holds(Key{File: "group1/b"})
		require.True(t, found)
		require.NoFileExists(t, filepath.Join(path, d.path(Key{File: "group1/a"})))

		goOn = make(chan struct{})
		hang.Store(true)
		require.True(t, d.Put(tiny("group1/c")))
		synctest.Wait()
		began := time.Now()
		require.ErrorIs(t, d.Release(), errOff)
		require.Equal(t, endTime, time.Since(began))
		next := openDisk(t, DiskOptions{Path: path, Successor: true})
		require.True(t, next.Stats().Disabled, "another process has it")
		hang.Store(false)
		close(goOn)
		time.Sleep(2 * probePause)
		_, found = next.Holds(Key{File: "group1/b"})
		require.True(t, found)
		require.NoError(t, next.Close())
		require.NoError(t, d.Close())
	})
}
