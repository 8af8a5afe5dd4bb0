package local

import (
	"io"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"

	"fastdfs-gateway/internal/fdfs"

	"github.com/stretchr/testify/require"
)

// hangingDisk is the place of a slot's content whose reads block until it is closed.
type hangingDisk chan struct{}

func (d hangingDisk) ReadAt([]byte, int64) (int, error) {
	<-d
	return 0, io.ErrUnexpectedEOF
}

// TestHangingDiskDelaysItsSlotsOnly: while the reads of many large slots of one store path hang, a
// large slot of another store path is checked.
func TestHangingDiskDelaysItsSlotsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestStore(t)
		l := s.local()
		first, content := s.largeSlot(256, 2*freeCheck)
		second := s.slot(256, fdfs.SlotFile, content, func(f *fdfs.Fields) { f.PathIndex = 1 })
		disk := make(hangingDisk)
		var checks sync.WaitGroup
		for range 100 * runtime.GOMAXPROCS(0) {
			f, err := l.openUnchecked(first)
			require.NoError(t, err)
			f.slot = fdfs.NewSlotContent(disk, f.size)
			checks.Go(func() {
				require.ErrorIs(t, l.slots.check(f, nil), io.ErrUnexpectedEOF)
				require.NoError(t, f.Close())
			})
		}
		synctest.Wait()
		opened := make(chan error, 1)
		checks.Go(func() {
			f, err := l.Open(second)
			if err == nil {
				err = f.Close()
			}
			opened <- err
		})
		synctest.Wait()
		select {
		case err := <-opened:
			require.NoError(t, err)
		default:
			t.Error("a slot of another store path waits for the disk that hangs")
		}
		close(disk)
		checks.Wait()
		require.NoError(t, l.Close())
	})
}
