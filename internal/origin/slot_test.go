package origin

import (
	"bytes"
	"context"
	"testing"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/testing/contenttest"
	"fastdfs-gateway/storage/client"
	"fastdfs-gateway/storage/local"

	"github.com/stretchr/testify/require"
)

// aSlot returns a Protocol for storages that have one slot, and a request for it without a cache.
func aSlot(t *testing.T, size int) (o *oneFile, open func() (*File, error)) {
	o = &oneFile{bytes: contenttest.Bytes(size)}
	id, a := fileID(t, o.bytes, packed), NewResolver(Options{Protocol: o})
	return o, func() (f *File, err error) {
		f = fileOf(a, id, client.Server{Host: "10.0.0.1"})
		f.whole, err = f.fetcher.stat(context.Background())
		return f, err
	}
}

// TestSlotWithoutCache: each range of a slot is right, in memory or chunk by chunk. No range is
// served if the storage sends other bytes. The slot is verified as a whole once.
func TestSlotWithoutCache(t *testing.T) {
	for _, size := range []int{1, slotChunk - 1, slotChunk, slotChunk + 1, maxHeldSlot, maxHeldSlot + 1, 3<<20 + 77} {
		o, open := aSlot(t, size)
		f, err := open()
		require.NoError(t, err)
		for _, part := range [][2]int{{0, size}, {size - 1, 1}, {size / 2, size / 3}, {size / 3, size - size/3},
			{0, 1}} {
			if part[1] == 0 {
				continue
			}
			_, err := f.Open(int64(part[0]), int64(part[1]))
			require.NoError(t, err)
			b, err := contenttest.ReadAll(partOf{f, int64(part[0])}, int64(part[1]))
			require.NoError(t, err)
			require.True(t, bytes.Equal(o.bytes[part[0]:][:part[1]], b), "%d bytes: %v", size, part)
		}
		f.Close()
		require.Zero(t, o.open.Load())
		require.True(t, f.a == nil)
		good := bytes.Clone(o.bytes)
		o.bytes[size-1] ^= 1
		for range 2 {
			f, err = open()
			require.NoError(t, err)
			_, err = f.Open(int64(size)-1, 1)
			require.ErrorIs(t, err, ErrNotFound, "%d bytes", size)
			f.Close()
		}
		copy(o.bytes, good)
		f, err = open()
		require.NoError(t, err)
		_, err = f.Open(0, int64(size))
		require.NoError(t, err, "what has matched once is known")
		f.Close()
	}
}

// TestForgedSlotWithoutCache: a slot that never had the CRC32 is downloaded once, and not again for
// a while.
func TestForgedSlotWithoutCache(t *testing.T) {
	o, open := aSlot(t, 500_000)
	o.bytes[3] ^= 1
	for range 3 {
		f, err := open()
		require.NoError(t, err)
		_, err = f.Open(0, 100)
		require.ErrorIs(t, err, ErrNotFound)
		require.EqualValues(t, 1, f.a.o.Counters.Stats().TrunkMismatches)
		require.True(t, f.a.slots.room.TryAcquire(maxSlotMemory))
		f.a.slots.room.Release(maxSlotMemory)
		f.Close()
	}
	require.Zero(t, o.open.Load())
}

// TestSlotMemory: slots of slow clients take a bounded amount of memory. A slot without room in it
// is downloaded once more, and compared meanwhile.
func TestSlotMemory(t *testing.T) {
	_, open := aSlot(t, maxHeldSlot)
	var slow []*File
	for range 3 {
		f, err := open()
		require.NoError(t, err)
		_, err = f.Open(0, maxHeldSlot)
		require.NoError(t, err)
		slow = append(slow, f)
		f.a.slots.known.Purge() // so the next one reads the slot again
	}
	slots := slow[0].a.slots
	require.False(t, slots.room.TryAcquire(maxSlotMemory-3*maxHeldSlot+1))
	require.True(t, slots.room.TryAcquire(maxSlotMemory-3*maxHeldSlot))
	f, err := open()
	require.NoError(t, err)
	_, err = f.Open(0, maxHeldSlot)
	require.NoError(t, err)
	require.Nil(t, f.stream.(*slotStream).held)
	for _, f := range append(slow, f) {
		f.Close()
	}
	slots.room.Release(maxSlotMemory - 3*maxHeldSlot)
	require.True(t, slots.room.TryAcquire(maxSlotMemory))
}

// TestSlotMemoryWhileSent: a slot in memory counts until its file is closed or another range is
// opened, since its bytes may still be sent to a client.
func TestSlotMemoryWhileSent(t *testing.T) {
	for _, length := range []int64{maxHeldSlot, 1} {
		o, open := aSlot(t, maxHeldSlot)
		f, err := open()
		require.NoError(t, err)
		_, err = f.Open(0, length)
		require.NoError(t, err)
		room := f.a.slots.room
		chunk, err := f.At(0, length)
		require.NoError(t, err)
		require.Equal(t, o.bytes[:length], chunk.Bytes)
		require.False(t, room.TryAcquire(maxSlotMemory-maxHeldSlot+1), "the client has yet to take the bytes")
		_, err = f.Open(0, 1)
		require.NoError(t, err)
		require.True(t, room.TryAcquire(maxSlotMemory), "its sums are known, so it is not read again")
		room.Release(maxSlotMemory)
		f.a.slots.known.Purge()
		_, err = f.Open(0, length)
		require.NoError(t, err)
		_, err = f.At(0, length)
		require.NoError(t, err)
		f.Close()
		require.True(t, room.TryAcquire(maxSlotMemory))
		require.Zero(t, o.open.Load())
	}
}

// TestLargeSlotIsNotFetched: an id with a larger size than the largest slot counts as not found.
func TestLargeSlotIsNotFetched(t *testing.T) {
	a := NewResolver(Options{Sources: NewSources(SourcesOptions{}), MaxSlot: func() int64 { return 1 << 20 }})
	id := fdfs.FileID{Group: "group1", Kind: fdfs.KindTrunk, Source: fdfs.Source{10, 0, 0, 1}, Size: 1 << 20}
	c := a.newFetcher(&Request{ID: id, Now: time.Now()}, local.ErrNoGroup, true).decided()
	require.Empty(t, c.servers)
	require.ErrorIs(t, c.err, ErrNotFound)
	require.Contains(t, c.why, "slot_max_size")
}
