package origin

import (
	"bytes"
	"fmt"
	"io"
	"sync/atomic"
	"testing"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/fdfstest"

	"github.com/stretchr/testify/require"
)

// reusedSlot is the content of a slot that others overwrite as soon as it was read to its end.
type reusedSlot struct {
	own, later []byte
	reused     atomic.Bool
}

func (s *reusedSlot) ReadAt(p []byte, off int64) (int, error) {
	from := s.own
	if s.reused.Load() {
		from = s.later
	}
	n := copy(p, from[off:])
	if off+int64(n) == int64(len(from)) {
		s.reused.Store(true)
		return n, io.EOF
	}
	return n, nil
}

// TestRemoteSlotUsedAnew: the CRC32 of an id matches a forged header that claims bytes which its
// uploader knows. Later these bytes belong to files of others, and the storage sends them. The
// gateway sends verified bytes or nothing, both while a response runs and afterwards.
func TestRemoteSlotUsedAnew(t *testing.T) {
	t.Parallel()
	secret := []byte("secret of another user ")
	for name, o := range e2e.SlotFleets {
		t.Run(name, func(t *testing.T) {
			f := e2e.StartFleet(t, o)
			for _, size := range []int{5000, 100_000, 900_000, 3 << 20, 9 << 20} {
				own := make([]byte, size)
				slot := &reusedSlot{own: own, later: bytes.Repeat(secret, size/len(secret)+1)[:size]}
				copy(slot.later, own[:size/4]) // the attacker's own part stays
				id := e2e.Put(t, f.Cluster, fdfstest.FileSpec{Group: "group1", Kind: fdfs.KindTrunk, Reader: slot,
					Size: int64(size), Ext: "bin", Created: e2e.LongAgo})
				slot.reused.Store(false) // Put has read the slot
				status, body, _ := f.Gateways[0].In(t).Try(e2e.Path(id), "Range: bytes=0-9")
				require.Equal(t, 206, status, "what was read to its end is in order")
				require.Equal(t, own[:10], body)
				for _, header := range []string{
					"Range: bytes=0-9", fmt.Sprintf("Range: bytes=%d-", size-1000), "Accept: */*",
					fmt.Sprintf("Range: bytes=%d-%d", size/3, size/2), "Range: bytes=0-0,-2",
				} {
					for _, m := range f.Gateways {
						status, body, _ := m.In(t).Try(e2e.Path(id), header)
						require.NotContains(t, string(body), "secret", "%d bytes, %s, status %d", size, header, status)
					}
				}
			}
		})
	}
}
