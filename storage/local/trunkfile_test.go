package local

import (
	"os"
	"testing"
	"testing/synctest"
	"time"

	"fastdfs-gateway/internal/fdfs"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestManyMissingSlots: requests for missing slots of a trunk file open it once, and find a slot as
// soon as it is written. Deleted looks for none of them again.
func TestManyMissingSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestStore(t)
		c := newTestCache(t, s, FileCacheOptions{})
		var ids []fdfs.FileID
		for i := range 500 {
			id := s.slot(uint32(i+1)*256, fdfs.SlotFile, trunkText(i), nil)
			s.writeAt(id, int64(id.Trunk.Offset), []byte{fdfs.SlotFree})
			ids = append(ids, id)
		}
		opens, open := 0, c.local.opener
		c.local.opener = func(dirfd int, name string, how *unix.OpenHow) (int, error) {
			opens++
			return open(dirfd, name, how)
		}
		require.True(t, c.local.Deleted(ids[0], nil, time.Time{})) // the folder is known to be sound
		time.Sleep(time.Millisecond)
		begin := time.Now()
		opens = 0
		for _, id := range append(ids, ids...) {
			_, err := c.Open(id)
			require.Equal(t, errSlot, err)
			require.True(t, c.local.Deleted(id, err, begin))
		}
		require.LessOrEqual(t, opens, 2, "for the first slot, and to stay open")
		require.Equal(t, 1, c.Stats().Files)

		s.writeAt(ids[0], 256, []byte{fdfs.SlotFile})
		requireRead(t, c, ids[0], trunkText(0), false)
		require.NoError(t, os.Remove(s.disk(ids[1])))
		time.Sleep(time.Second)
		_, err := c.Open(ids[1])
		require.Equal(t, ErrMissing, err)
		require.Equal(t, 1, c.Purge("group1/M00/0A"), "the slot that was there")
	})
}
