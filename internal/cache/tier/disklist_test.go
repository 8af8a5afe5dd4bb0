package tier

import (
	"sync/atomic"
	"syscall"
	"testing"

	"fastdfs-gateway/internal/testing/eventually"

	"github.com/stretchr/testify/require"
)

// onFive is a disk with five segments of one file, which is opened anew with a failure.
func onFive(t *testing.T, o DiskOptions, failure func(op string) error) *Disk {
	t.Helper()
	o.Path = t.TempDir()
	d, err := OpenDisk(o)
	require.NoError(t, err)
	eventually.True(t, d.Listed)
	for i := range int64(5) {
		s := tiny("group1/a")
		s.Index, s.Version.Size = i, i*SegmentSize+1
		require.True(t, d.Put(s))
	}
	d.Settle()
	require.NoError(t, d.Close())
	o.failure = failure
	d, err = OpenDisk(o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// TestFileThatCannotBeExamined: where the size of a file cannot be read at start, those of the
// others in its folder are known.
func TestFileThatCannotBeExamined(t *testing.T) {
	var examined atomic.Int64
	d := onFive(t, DiskOptions{}, func(op string) error {
		if op == "examine" && examined.Add(1) == 2 {
			return syscall.EIO
		}
		return nil
	})
	eventually.True(t, d.Listed)
	require.Equal(t, 4, d.Stats().Entries)
}

// TestReleaseWhileListing: the next process does not wait until a slow disk is listed. Until it is,
// a small part of the budget is used, since nothing can be evicted.
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
