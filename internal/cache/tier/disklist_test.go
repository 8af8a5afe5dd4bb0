package tier

import (
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

// TestHangingRead: while a read of the disk hangs, no other one begins, and segments on the disk
// are misses. They are found after the read has ended.
func TestHangingRead(t *testing.T) {
	for _, op := range []string{"open", "read"} {
		path := emptyFolder(t)
		synctest.Test(t, func(t *testing.T) {
			var hang atomic.Bool
			goOn := make(chan struct{})
			d := openDisk(t, DiskOptions{Path: path, failure: func(what string) error {
				if what == op && hang.Swap(false) {
					<-goOn
				}
				return nil
			}})
			require.True(t, d.Put(tiny("group1/a")))
			require.True(t, d.Put(tiny("group1/b")))
			d.Settle()
			find := func(file string) bool {
				view, ok := d.Get(Key{File: file}, Version{Size: 1}, true)
				if ok {
					_, err := view.At(0, 1)
					require.NoError(t, err)
					view.Release()
				}
				return ok
			}
			hang.Store(true)
			go find("group1/a")
			time.Sleep(hangTime + graceTime)
			synctest.Wait()
			require.False(t, find("group1/b"))
			require.True(t, d.Stats().Disabled)
			time.Sleep(time.Hour)
			_, held := d.Holds(Key{File: "group1/b"})
			require.False(t, held, "it hangs still")
			close(goOn)
			synctest.Wait()
			require.True(t, find("group1/b"))
			require.False(t, d.Stats().Disabled)
		})
	}
}
