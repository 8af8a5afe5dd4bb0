package local

import (
	"testing"
	"testing/synctest"
	"time"

	"fastdfs-gateway/internal/fdfs"

	"github.com/stretchr/testify/require"
)

// forged writes the headers of n slots of size bytes into trunk file 1, one each 256 bytes from
// offset at on, and returns their ids. The content of the slots has other CRC32s.
func (s *testStore) forged(at uint32, n, size int) []fdfs.FileID {
	ids := make([]fdfs.FileID, n)
	for i := range ids {
		ids[i] = s.id(fdfs.KindTrunk, "", func(f *fdfs.Fields) {
			f.Size, f.CRC32 = int64(size), uint32(i)
			f.Trunk = fdfs.Trunk{ID: 1, Offset: at + uint32(i)*256, Alloc: uint32(size+24+255) &^ 255}
		})
		s.writeAt(ids[i], int64(ids[i].Trunk.Offset), ids[i].SlotHeader().AppendTo(nil))
	}
	s.writeAt(ids[0], int64(at)+int64(n*256+size), []byte{0})
	return ids
}

// otherTrunk writes a slot into trunk file 2.
func (s *testStore) otherTrunk(at uint32, content string) fdfs.FileID {
	return s.slot(at, fdfs.SlotFile, content, func(f *fdfs.Fields) {
		f.Trunk = fdfs.Trunk{ID: 2, Offset: at, Alloc: uint32(len(content)+24+255) &^ 255}
	})
}

// TestFailedChecksAreLimited: the bytes of failed checks are limited, however many ids have other
// content. Meanwhile open slots, small slots and slots of other trunk files are served.
func TestFailedChecksAreLimited(t *testing.T) {
	for name, o := range map[string]FileCacheOptions{
		"copies": {}, "no memory": noBodies, "no files": {MaxFiles: -1, MaxBody: 4 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testFailedChecks(t, o) })
		})
	}
}

func testFailedChecks(t *testing.T, o FileCacheOptions) {
	const size, budget, ids = 256 << 10, 2 << 20, 60
	s := newTestStore(t)
	forged := s.forged(16<<20, ids, size)
	seen, text := s.largeSlot(256, size)
	c := newTestCache(t, s, o)
	limit := c.local.slots
	limit.bytes = budget
	opened := func(id fdfs.FileID) {
		t.Helper()
		f, err := c.Open(id)
		require.NoError(t, err)
		require.NoError(t, f.Close())
	}
	opened(seen)
	for i, id := range forged {
		_, err := c.Open(id)
		if i < budget/size {
			require.ErrorIs(t, err, ErrSlotContent, "id %d", i)
		} else {
			require.ErrorIs(t, err, ErrSlotLimit, "id %d", i)
		}
		opened(seen)
		if i%10 == 0 {
			at := uint32(256 + i*(512<<10)/10)
			opened(s.otherTrunk(at, text))
			opened(s.slot(8<<20+uint32(i)*(128<<10), fdfs.SlotFile, text[:freeCheck], nil))
		}
	}
	require.EqualValues(t, budget/size, c.Stats().CRCErrors, "failed checks")

	time.Sleep(budget * time.Second / failedRate)
	failed := 0
	for _, id := range forged[ids/2:] {
		if _, err := c.Open(id); err != ErrSlotLimit {
			failed++
		}
	}
	require.Equal(t, budget/size, failed, "failed checks after the budget was filled again")
}

// TestSuspectTrunkFile: in a suspect trunk file the check of a slot takes its size from the budget,
// and returns it if the content matches. A known result takes nothing. The suspicion ends after
// suspectFor.
func TestSuspectTrunkFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = 256 << 10
		s := newTestStore(t)
		forged := s.forged(32<<20, 2, size)
		c := newTestCache(t, s, noBodies)
		limit := c.local.slots
		limit.bytes = 2 * size
		for range 5 {
			_, err := c.Open(forged[0])
			require.ErrorIs(t, err, ErrSlotContent)
		}
		require.EqualValues(t, size, limit.bytes, "after one failed check")
		for i := range 10 {
			id, text := s.largeSlot(uint32(256+i*(2<<20)), size)
			requireRead(t, c, id, text, false)
		}
		require.EqualValues(t, size, limit.bytes, "after checks that match")
		_, err := c.Open(forged[1])
		require.ErrorIs(t, err, ErrSlotContent)
		id, text := s.largeSlot(24<<20, size)
		_, err = c.Open(id)
		require.ErrorIs(t, err, ErrSlotLimit)
		time.Sleep(suspectFor)
		limit.bytes, limit.at = 0, time.Now()
		requireRead(t, c, id, text, false)
	})
}

// TestSlotLimitBudget: a failed check outside of a suspect trunk file reduces the budget too, also
// below zero. A slot that is larger than the whole budget can be checked.
func TestSlotLimitBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newSlotLimit()
		f := &File{size: 2 * failedBurst, content: fdfs.FileID{Kind: fdfs.KindTrunk}}
		for range 4 {
			end, err := l.takeBytes(f)
			require.NoError(t, err, "there is a budget, or the trunk file is not suspect")
			end(ErrSlotContent)
			require.EqualValues(t, -failedBurst, l.bytes)
			_, err = l.takeBytes(f)
			require.ErrorIs(t, err, ErrSlotLimit)
			time.Sleep(2*failedBurst/failedRate*time.Second - time.Millisecond)
			_, err = l.takeBytes(f)
			require.ErrorIs(t, err, ErrSlotLimit)
			time.Sleep(2 * time.Millisecond) // more than the rounding error
		}
	})
}
