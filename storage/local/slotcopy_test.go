package local

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"fastdfs-gateway/internal/content/arena"
	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/testing/contenttest"

	"github.com/stretchr/testify/require"
)

// largeSlot writes a slot of size bytes at an offset of the trunk file.
func (s *testStore) largeSlot(at uint32, size int) (fdfs.FileID, string) {
	content := strings.Repeat(fmt.Sprintf("%09d ", at), size/10+1)[:size]
	return s.slot(at, fdfs.SlotFile, content, nil), content
}

// TestSlotParts: reads of any part of a slot return its bytes, with a copy in memory or without.
func TestSlotParts(t *testing.T) {
	s := newTestStore(t)
	content := contenttest.Bytes(40*fdfs.SlotBlock + 123)
	id := s.slot(256, fdfs.SlotFile, string(content), nil)
	r := rand.New(rand.NewPCG(1, 1))
	for _, o := range []FileCacheOptions{{}, noBodies} {
		f, err := newTestCache(t, s, o).Open(id)
		require.NoError(t, err)
		require.Equal(t, o.Memory == 0, f.Copied())
		for range 200 {
			from := r.IntN(len(content))
			n := 1 + r.IntN(len(content)-from)
			if r.IntN(3) == 0 {
				from = from / fdfs.SlotBlock * fdfs.SlotBlock
			}
			p := make([]byte, min(n, 1+r.IntN(5*fdfs.SlotBlock)))
			chunk, err := f.At(int64(from), int64(n))
			require.NoError(t, err)
			read, err := chunk.Load(p)
			require.NoError(t, err)
			require.EqualValues(t, min(int64(len(p)), chunk.Length), read)
			require.True(t, bytes.Equal(content[from:from+read], p[:read]), "%d bytes at %d", n, from)
		}
		require.NoError(t, f.Close())
	}
}

// TestSlotWrittenWhileOpen: after a write to an open slot, a read returns the old bytes or an
// error. The test keeps the modification time, as two writes at the same moment do.
func TestSlotWrittenWhileOpen(t *testing.T) {
	for name, o := range map[string]FileCacheOptions{"copy": {}, "blocks": noBodies, "not kept": {MaxFiles: -1}} {
		t.Run(name, func(t *testing.T) {
			s := newTestStore(t)
			id, content := s.largeSlot(256, 300_000)
			c := newTestCache(t, s, o)
			f, err := c.Open(id)
			require.NoError(t, err)
			seen, err := f.disk.stat()
			require.NoError(t, err)
			s.writeAt(id, 256+24+200_000, []byte("secret"))
			mtime := time.Unix(seen.mtime.Unix())
			require.NoError(t, os.Chtimes(s.disk(id), mtime, mtime))
			got, err := contentOf(f)
			if name == "copy" {
				require.NoError(t, err)
				require.Equal(t, content, got)
			} else {
				require.ErrorIs(t, err, fdfs.ErrFileChanged)
				require.True(t, strings.HasPrefix(content, got))
				require.NoError(t, f.Check(0))
				require.ErrorIs(t, f.Check(200_003), fdfs.ErrFileChanged)
				g, err := c.Open(id)
				require.ErrorIs(t, err, ErrSlotContent, "%v", g)
			}
			require.NoError(t, f.Close())
		})
	}
}

// TestSlotCopiesAreBounded: the memory of all copies is limited, including copies in use by
// responses. A slot that is requested again and again replaces another copy, but not one in use.
func TestSlotCopiesAreBounded(t *testing.T) {
	if err := NoSlotCopies(); err != nil {
		t.Skip(err)
	}
	s := newTestStore(t)
	const size, budget = 100_000, 1 << 20
	c := newTestCache(t, s, FileCacheOptions{Memory: 2 * budget})
	room := int(budget / arena.Cost(size))
	var ids []fdfs.FileID
	for i := range 3 * room {
		id, _ := s.largeSlot(uint32(i+1)<<17, size)
		ids = append(ids, id)
	}
	copied := func(id fdfs.FileID) bool {
		f, err := c.Open(id)
		require.NoError(t, err)
		b, err := contenttest.ReadAll(f, size)
		require.NoError(t, err)
		require.Equal(t, id.CRC32, crc32.ChecksumIEEE(b))
		defer f.Close()
		require.LessOrEqual(t, c.Stats().Bytes, int64(budget))
		return f.Copied()
	}
	for i, id := range ids {
		require.Equal(t, i < room, copied(id), "the first use copies while there is room")
	}
	require.Equal(t, room, c.Stats().Bodies)
	held, err := c.Open(ids[0])
	require.NoError(t, err)
	last := ids[len(ids)-1]
	uses := 1
	for !copied(last) {
		uses++
		require.LessOrEqual(t, uses, admitEach+1)
	}
	chunk, err := held.At(0, size)
	require.NoError(t, err)
	require.True(t, chunk.Resident, "a response sends it")
	require.NoError(t, held.Close())
	huge, _ := s.largeSlot(1<<26, budget/largestCopy+1)
	f, err := c.Open(huge)
	require.NoError(t, err)
	require.False(t, f.Copied())
	require.NoError(t, f.Close())
	require.Positive(t, c.Purge("group1"))
	require.Zero(t, c.Stats().Bytes)
	require.Zero(t, c.Stats().Bodies)
}

// TestSlotCopiesOfDroppedFiles: if purged files hold all memory, because slow clients use their
// copies, another slot is served at once without a copy.
func TestSlotCopiesOfDroppedFiles(t *testing.T) {
	if err := NoSlotCopies(); err != nil {
		t.Skip(err)
	}
	s := newTestStore(t)
	const size, budget = 200_000, 1 << 20
	room := int(budget / arena.Cost(size))
	c := newTestCache(t, s, FileCacheOptions{Memory: 2 * budget})
	var held []*File
	for i := range room {
		id, _ := s.largeSlot(uint32(i+1)<<18, size)
		f, err := c.Open(id)
		require.NoError(t, err)
		require.True(t, f.Copied())
		held = append(held, f)
	}
	require.Equal(t, room, c.Purge(""))
	id, _ := s.largeSlot(uint32(room+1)<<18, size)
	served := make(chan error, 1)
	go func() {
		var err error
		for range 2 * admitEach { // each eighth request may evict copies
			f, openErr := c.Open(id)
			if err = openErr; err != nil {
				break
			}
			err = errors.Join(err, f.Close())
		}
		served <- err
	}()
	select {
	case err := <-served:
		require.NoError(t, err)
	case <-time.After(10 * time.Second):
		t.Error("a request waits for the responses of others")
	}
	for _, f := range held { // also after a failure: it ends the search for room
		require.NoError(t, f.Close())
	}
	require.NotZero(t, c.Purge(""))
	require.Zero(t, c.Stats().Bytes)
}

// TestSlotCopyOutlivesPurge: a response keeps its copy when the file is purged.
func TestSlotCopyOutlivesPurge(t *testing.T) {
	s := newTestStore(t)
	id, content := s.largeSlot(256, 300_000)
	c := newTestCache(t, s, FileCacheOptions{})
	f, err := c.Open(id)
	require.NoError(t, err)
	require.Equal(t, 1, c.Purge(""))
	s.writeAt(id, 256, make([]byte, 10_000))
	requireGone(t, c, id)
	if f.Copied() {
		got, err := contentOf(f)
		require.NoError(t, err)
		require.Equal(t, content, got)
	}
	require.NoError(t, f.Close())
	require.Zero(t, c.Stats().Bytes)
}

// TestVersionIsComparedAfterReading: if an appender or slave file changes after it was opened, a
// read to its end fails with fdfs.ErrFileChanged.
func TestVersionIsComparedAfterReading(t *testing.T) {
	s := newTestStore(t)
	l := s.local()
	defer l.Close()
	content := strings.Repeat("one version ", 5000)
	for _, id := range []fdfs.FileID{s.appender(content), s.slave(content)} {
		f, err := l.Open(id)
		require.NoError(t, err)
		got, err := contentOf(f)
		require.NoError(t, err)
		require.Equal(t, content, got)
		s.writeAt(id, int64(len(content))-5, []byte("other"))
		got, err = contentOf(f)
		require.ErrorIs(t, err, fdfs.ErrFileChanged)
		require.True(t, strings.HasPrefix(content, got))
		require.NoError(t, f.Close())
	}
}
