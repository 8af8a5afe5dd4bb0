package cache

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"fastdfs-gateway/internal/cache/tier"
	"fastdfs-gateway/internal/fdfs/checksum"
	"fastdfs-gateway/internal/testing/cachetest"
)

// newSlot returns a file that is verified first, and the options of a cache for it.
func newSlot(size int64) (*origin, Options) {
	return newOrigin(testFile(1), size), Options{VerifyFirst: func(string) (int64, bool) { return size, true }}
}

// TestSlotAsWhole: whichever range of a slot is requested first, the slot is fetched once, as a
// whole. No byte of it is sent before all of them are verified.
func TestSlotAsWhole(t *testing.T) {
	const size = 3*SegmentSize + 1000
	for _, offset := range []int64{0, SegmentSize + 5, size - 1} {
		bubble(t, "slot", func(t *testing.T) {
			o, options := newSlot(size)
			o.whole = second
			c := newCache(t, options)
			list := []result{}
			for range 2 {
				list = append(list, getRange(background, c, o, offset, 1), get(background, c, o))
			}
			require.GreaterOrEqual(t, list[0].first, 3*second, "the first byte comes when all are here")
			for i, r := range list {
				require.NoError(t, r.err)
				if i%2 == 1 {
					requireWhole(t, o, r)
				}
			}
			require.EqualValues(t, 1, o.fetches.Load())
			require.EqualValues(t, size, o.served.Load())
			synctest.Wait()
			require.Equal(t, 4, c.Stats().Memory.Entries)
		})
	}
}

// TestSlotOfWrongContent: no byte of a slot with another CRC32 is sent. After some fetches the file
// counts as not found for a few seconds.
func TestSlotOfWrongContent(t *testing.T) {
	bubble(t, "slot", func(t *testing.T) {
		o, options := newSlot(2 * SegmentSize)
		good := o.content
		o.content = slices.Clone(good)
		o.content[len(good)-1] ^= 1 // the first segment is correct
		c := newCache(t, options)
		for range 5 {
			r := get(background, c, o)
			require.Error(t, r.err)
			require.Empty(t, r.body)
		}
		require.LessOrEqual(t, o.fetches.Load(), int64(3))
		require.ErrorIs(t, get(background, c, o).err, ErrNotFound)
		o.set(func() { o.content = good })
		require.ErrorIs(t, get(background, c, o).err, ErrNotFound)
		sleep(background, 6*second)
		requireWhole(t, o, get(background, c, o))
	})
}

// TestSlotAndLegacyCRC: a slot of several segments with the legacy CRC32 is read once. From then on
// its group is known to have both CRC32s.
func TestSlotAndLegacyCRC(t *testing.T) {
	o, options := newSlot(2*SegmentSize + 1)
	o.v.CRC32 = checksum.UpdateLegacy(0, o.content)
	c := newCache(t, options)
	requireWhole(t, o, get(background, c, o))
	require.EqualValues(t, 1, o.fetches.Load())
	require.Equal(t, checksum.Both, c.legacyGroups.Variants("group1"))
	require.Zero(t, c.Stats().CRCErrors)
}

// TestSlotPartlyEvicted: a slot with a missing segment is fetched as a whole again. A slot that is
// larger than the memory is read from its fill.
func TestSlotPartlyEvicted(t *testing.T) {
	o, options := newSlot(3 * SegmentSize)
	c := newCache(t, options)
	requireWhole(t, o, get(background, c, o))
	idle(t, c)
	c.memory.Purge(tier.MatchAll)
	requireWhole(t, o, get(background, c, o))
	idle(t, c)
	for i := range int64(3) {
		s := cachetest.Segment(o.file, i, o.content)
		s.Version.ModTime++ // as if it were another version
		c.memory.Put(s)
		r := getRange(background, c, o, i*SegmentSize, SegmentSize)
		require.NoError(t, r.err)
		require.True(t, bytes.Equal(o.content[i*SegmentSize:][:SegmentSize], r.body))
		idle(t, c)
	}
	require.EqualValues(t, 5, o.fetches.Load())
	options.Memory = 10 << 20
	small := newCache(t, options)
	for range 3 {
		requireWhole(t, o, get(background, small, o))
		idle(t, small) // else the next request may read from the same fill
	}
	require.EqualValues(t, 5+3, o.fetches.Load(), "one for each request")
}

// TestSlotLargerThanShare: a slot that is larger than the share of its source in the room waits for
// the other fetches from this source, and then takes the whole share.
func TestSlotLargerThanShare(t *testing.T) {
	for unlisted, part := range map[bool]int64{false: listedShare, true: unlistedShare} {
		bubble(t, fmt.Sprintf("unlisted %t", unlisted), func(t *testing.T) {
			o, options := newSlot(minRoom/part + 1)
			options.Memory = minRoom / 2
			o.unlisted = unlisted
			c := newCache(t, options)
			share := c.leaderRoom.shareOf(o)
			require.True(t, share.tryAcquireBytes(1)) // as another fetch does
			time.AfterFunc(second, func() { share.releaseBytes(1) })
			began := time.Now()
			requireWhole(t, o, get(background, c, o))
			require.Equal(t, second, time.Since(began))
			require.EqualValues(t, 1, o.fetches.Load())
			synctest.Wait()
			require.True(t, share.tryAcquireBytes(minRoom/part), "all was given back")
			require.True(t, c.leaderRoom.all.tryAcquireBytes(minRoom), "all was given back")
		})
	}
}

// TestSlotLargerThanRoom: a slot that is larger than the room takes the whole room.
func TestSlotLargerThanRoom(t *testing.T) {
	o, options := newSlot(1)
	options.Memory = minRoom / 2
	c := newCache(t, options)
	f := c.newFill(SegmentKey{File: o.file, Index: Whole}, o, fillOptions{})
	v := Version{Size: minRoom + 1}
	require.NoError(t, c.reserve(f, c.leaderRoom, v, 0))
	require.False(t, c.leaderRoom.all.tryAcquireBytes(1))
	c.unreserve(f)
	require.True(t, c.leaderRoom.all.tryAcquireBytes(minRoom))
}

// TestSlotInFleet: a fleet fetches a slot once. Bytes of a peer are verified too.
func TestSlotInFleet(t *testing.T) {
	bubble(t, "fleet", func(t *testing.T) {
		o, options := newSlot(3*SegmentSize + 7)
		list := gateways(t, newFleet(), 3, options)
		for _, r := range manyClients(list, o, 9) {
			requireWhole(t, o, r)
		}
		synctest.Wait()
		require.EqualValues(t, 1, o.fetches.Load())
		for _, c := range list {
			requireWhole(t, o, get(background, c, o))
		}
		require.EqualValues(t, 1, o.fetches.Load())
	})
	bubble(t, "a peer with wrong bytes", func(t *testing.T) {
		o, options := newSlot(2 * SegmentSize)
		list := gateways(t, newFleet(), 2, options)
		for i := range int64(2) {
			s := cachetest.Segment(o.file, i, o.content)
			s.Chunks[3] = bytes.Repeat([]byte("?"), tier.ChunkSize)
			require.True(t, list[0].memory.Put(s))
		}
		for range 3 {
			r := get(background, list[1], o)
			require.NotContains(t, string(r.body), "????")
		}
	})
}
