package local

import (
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/fdfs/checksum"
	"fastdfs-gateway/internal/testing/contenttest"

	"github.com/stretchr/testify/require"
)

// newTestCache returns a cache in front of a Store. It is closed at the end of the test, and then
// no descriptor may be open.
func newTestCache(t testing.TB, s *testStore, o FileCacheOptions) *FileCache {
	t.Helper()
	_ = NoSlotCopies() // opens descriptors that stay open
	before := descriptors(t)
	l := s.local()
	c := NewFileCache(l, o)
	t.Cleanup(func() {
		require.NoError(t, c.Close())
		require.NoError(t, c.Close())
		require.NoError(t, l.Close())
		require.Equal(t, before, descriptors(t), "descriptors left open")
	})
	return c
}

// read opens id, reads all of it and closes it.
func read(t testing.TB, c *FileCache, id fdfs.FileID) (content string, inMemory bool) {
	t.Helper()
	f, err := c.Open(id)
	require.NoError(t, err, id)
	content, err = contentOf(f)
	require.NoError(t, err, id)
	inMemory = f.InMemory()
	require.Equal(t, inMemory, f.disk == nil)
	require.NoError(t, f.Close())
	return content, inMemory
}

func contentOf(f *File) (string, error) {
	b, err := contenttest.ReadAll(f, f.Size())
	return string(b), err
}

func requireRead(t testing.TB, c *FileCache, id fdfs.FileID, want string, inMemory bool) {
	t.Helper()
	content, memory := read(t, c, id)
	require.Equal(t, want, content)
	require.Equal(t, inMemory, memory, "in memory")
}

func requireGone(t testing.TB, c *FileCache, id fdfs.FileID) {
	t.Helper()
	f, err := c.Open(id)
	require.ErrorIs(t, err, fdfs.ErrNoFile)
	require.Nil(t, f)
}

func (s *testStore) appender(content string) fdfs.FileID {
	return s.write(s.id(fdfs.KindAppender, "", nil), content)
}

func (s *testStore) slave(content string) fdfs.FileID {
	id, err := fdfs.EncodeSlave(s.id(fdfs.KindNormal, "master", nil), "_150x150", "txt")
	require.NoError(s.t, err)
	s.write(id, content)
	s.age(id)
	return id
}

// age makes a file look as if it was written an hour ago.
func (s *testStore) age(id fdfs.FileID) {
	hourAgo := time.Now().Add(-time.Hour)
	require.NoError(s.t, os.Chtimes(s.disk(id), hourAgo, hourAgo))
}

var noBodies = FileCacheOptions{Memory: -1}

// TestFileCacheKinds: at each request the cache returns the same content, times and flags as the
// Store. From the second request on, small files that may be in memory are.
func TestFileCacheKinds(t *testing.T) {
	s := newTestStore(t)
	normal := s.normal("normal")
	big := s.normal(strings.Repeat("big", 1000))
	for name, test := range map[string]struct {
		id     fdfs.FileID
		want   string
		memory bool
	}{
		"normal":             {normal, "normal", true},
		"empty":              {s.normal(""), "", true},
		"big":                {big, strings.Repeat("big", 1000), false},
		"slave":              {s.slave("slave"), "slave", true},
		"appender":           {s.appender("appender"), "appender", false},
		"slot":               {s.slot(256, fdfs.SlotFile, "slot", nil), "slot", true},
		"link":               {s.link(s.disk(normal)), "normal", true},
		"link to a slave":    {s.link(s.disk(s.slave("slave 2"))), "slave 2", true},
		"link to a appender": {s.link(s.disk(s.appender("appender 2"))), "appender 2", false},
		"link in a slot":     {s.slot(512, fdfs.SlotLink, normal.Logic, nil), "normal", false},
	} {
		t.Run(name, func(t *testing.T) {
			for _, o := range []FileCacheOptions{{MaxBody: 1000}, {MaxBody: 1000, Valid: -1}, {MaxBody: -1}, noBodies,
				{MaxFiles: -1}, {MaxFiles: -1, Memory: -1}} {
				c := newTestCache(t, s, o)
				uncached, err := c.local.Open(test.id)
				require.NoError(t, err)
				for use := range 4 {
					f, err := c.Open(test.id)
					require.NoError(t, err)
					content, err := contentOf(f)
					require.NoError(t, err)
					require.Equal(t, test.want, content)
					require.Equal(t, uncached.ModTime(), f.ModTime())
					require.Equal(t, uncached.FileTime(), f.FileTime())
					require.Equal(t, uncached.Content(), f.Content())
					require.Equal(t, []bool{uncached.Linked(), uncached.Mutable()}, []bool{f.Linked(), f.Mutable()})
					if o.MaxBody == 1000 && o.Valid == 0 {
						require.Equal(t, test.memory && use > 0, f.InMemory(), use)
					}
					if !f.InMemory() {
						require.Equal(t, uncached.Base(), f.Base())
					}
					require.NoError(t, f.Close())
				}
				require.NoError(t, uncached.Close())
			}
		})
	}
}

// TestFileCacheDeleted: within Valid a cached file is served without a look at the disk. After
// Valid, a removed file is missing, and a new file of this name is served.
func TestFileCacheDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestStore(t)
		c := newTestCache(t, s, FileCacheOptions{MaxBody: 10})
		small, big, slave := s.normal("small"), s.normal("a bigger file"), s.slave("slave")
		link := s.link(s.disk(big))
		for range 2 {
			requireRead(t, c, link, "a bigger file", false)
			read(t, c, small)
			read(t, c, slave)
			read(t, c, big)
		}
		for _, id := range []fdfs.FileID{small, big, slave, link} {
			require.NoError(t, os.Remove(s.disk(id)))
		}
		time.Sleep(time.Second - 1)
		requireRead(t, c, small, "small", true)
		requireRead(t, c, slave, "slave", true)
		requireRead(t, c, big, "a bigger file", false)
		requireRead(t, c, link, "a bigger file", false)
		time.Sleep(time.Nanosecond)
		for _, id := range []fdfs.FileID{small, big, slave, link} {
			requireGone(t, c, id)
		}
		stats := c.Stats()
		require.Zero(t, stats.Files+stats.Bodies)
		require.Zero(t, stats.Bytes)
		require.Zero(t, stats.Descriptors)
		s.write(small, "small")
		requireRead(t, c, small, "small", false)
	})
}

// TestFileCacheRevalidates: after Valid, an unchanged file is neither opened nor read again.
func TestFileCacheRevalidates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestStore(t)
		c := newTestCache(t, s, FileCacheOptions{MaxBody: 10})
		small, big, slot := s.normal("small"), s.normal("a bigger file"), s.slot(256, fdfs.SlotFile, "slot", nil)
		for range 10 {
			read(t, c, small)
			read(t, c, big)
			read(t, c, slot)
			time.Sleep(time.Second)
		}
		requireRead(t, c, slot, "slot", true)
		stats := c.Stats()
		require.EqualValues(t, 3, stats.Misses)
		require.EqualValues(t, 28, stats.Hits)
	})
}

func TestFileCacheReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestStore(t)
		c := newTestCache(t, s, noBodies)
		slave, normal := s.slave("before"), s.normal("corrupt")
		f, err := c.Open(slave)
		require.NoError(t, err)
		defer f.Close()
		require.NoError(t, os.WriteFile(s.disk(slave)+".new", []byte("after, longer"), 0o644))
		require.NoError(t, os.Rename(s.disk(slave)+".new", s.disk(slave)))
		requireRead(t, c, slave, "after, longer", false) // fstat shows at once that the inode has lost its name
		content, err := contentOf(f)
		require.NoError(t, err)
		require.Equal(t, "before", content, "who has it open goes on")

		read(t, c, normal)
		require.NoError(t, os.WriteFile(s.disk(normal)+".new", []byte("mended!"), 0o644))
		require.NoError(t, os.Rename(s.disk(normal)+".new", s.disk(normal)))
		requireRead(t, c, normal, "corrupt", false)
		time.Sleep(time.Second)
		requireRead(t, c, normal, "mended!", false)
	})
}

// TestFileCacheSlotReused: a slot on disk that was freed, or freed and reused, is not served under
// the old id, not even within Valid; a slot in memory not after Valid.
func TestFileCacheSlotReused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestStore(t)
		c := newTestCache(t, s, noBodies)
		old := s.slot(256, fdfs.SlotFile, "old content", nil)
		freed := s.slot(512, fdfs.SlotFile, "freed content", nil)
		requireRead(t, c, old, "old content", false)
		requireRead(t, c, freed, "freed content", false)
		s.writeAt(freed, 512, []byte{fdfs.SlotFree})
		requireGone(t, c, freed)
		next := s.slot(256, fdfs.SlotFile, "next content", nil)
		requireGone(t, c, old)
		requireRead(t, c, next, "next content", false)
		linked := s.slot(256, fdfs.SlotLink, s.normal("target").Logic, nil)
		requireGone(t, c, next)
		requireRead(t, c, linked, "target", false)

		inMemory := newTestCache(t, s, FileCacheOptions{})
		kept := s.slot(768, fdfs.SlotFile, "kept", nil)
		read(t, inMemory, kept)
		requireRead(t, inMemory, kept, "kept", true)
		s.slot(768, fdfs.SlotFile, "reused", nil)
		requireRead(t, inMemory, kept, "kept", true)
		time.Sleep(time.Second)
		requireGone(t, inMemory, kept)

		moved := s.slot(1024, fdfs.SlotFile, "moved", nil)
		read(t, inMemory, moved)
		requireRead(t, inMemory, moved, "moved", true)
		require.NoError(t, os.Rename(s.disk(moved), s.disk(moved)+".old"))
		time.Sleep(time.Second)
		requireGone(t, inMemory, moved)
	})
}

// TestFileCacheTrunkFileReplaced: the replacement of a whole trunk file is noticed after Valid,
// even if the old file still contains the slot.
func TestFileCacheTrunkFileReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestStore(t)
		c := newTestCache(t, s, noBodies)
		a, b := s.slot(256, fdfs.SlotFile, "slot a", nil), s.slot(512, fdfs.SlotFile, "slot b", nil)
		requireRead(t, c, a, "slot a", false)
		requireRead(t, c, b, "slot b", false)
		whole, err := os.ReadFile(s.disk(a))
		require.NoError(t, err)
		whole[512] = fdfs.SlotFree
		require.NoError(t, os.WriteFile(s.disk(a)+".new", whole, 0o644))
		require.NoError(t, os.Rename(s.disk(a)+".new", s.disk(a)))
		requireRead(t, c, b, "slot b", false)
		time.Sleep(time.Second)
		requireGone(t, c, b)
		requireRead(t, c, a, "slot a", false)
		third := s.slot(768, fdfs.SlotFile, "slot c", nil)
		requireRead(t, c, third, "slot c", false)
		require.EqualValues(t, 3, c.Stats().Descriptors, "a, the third, the trunk file; that of the old one is closed")
	})
}

// TestFileCacheAppenderGrows: an appender file is checked at each use, and its size and content are
// always of one version.
func TestFileCacheAppenderGrows(t *testing.T) {
	s := newTestStore(t)
	c := newTestCache(t, s, FileCacheOptions{})
	id := s.appender("a")
	for n := range 20 {
		want := strings.Repeat("a", n+1)
		requireRead(t, c, id, want, false)
		f, err := c.Open(id)
		require.NoError(t, err)
		require.EqualValues(t, n+1, f.Size())
		s.writeAt(id, int64(n+1), []byte("a"))
		require.EqualValues(t, n+1, f.Size())
		require.NoError(t, f.Close())
	}
	require.NoError(t, os.Truncate(s.disk(id), 3))
	requireRead(t, c, id, "aaa", false)
	s.writeAt(id, 0, []byte("bbb")) // same size
	requireRead(t, c, id, "bbb", false)
	require.NoError(t, os.Remove(s.disk(id)))
	requireGone(t, c, id)
}

// TestFileCacheUnsettledSlave: a slave file that was modified recently is not kept in memory.
func TestFileCacheUnsettledSlave(t *testing.T) {
	s := newTestStore(t)
	c := newTestCache(t, s, FileCacheOptions{})
	id := s.slave("half")
	later := time.Now().Add(time.Hour) // the file counts as modified recently for the whole test
	require.NoError(t, os.Chtimes(s.disk(id), later, later))
	for range 3 {
		requireRead(t, c, id, "half", false)
	}
	s.writeAt(id, 4, []byte(" and half"))
	requireRead(t, c, id, "half and half", false)
	s.age(id)
	requireRead(t, c, id, "half and half", false)
	requireRead(t, c, id, "half and half", true)
}

// TestFileCacheSuspect: after a caller that reads a truncated file has called Suspect, the next
// request gets the right result.
func TestFileCacheSuspect(t *testing.T) {
	s := newTestStore(t)
	c := newTestCache(t, s, noBodies)
	id := s.normal("content")
	f, err := c.Open(id)
	require.NoError(t, err)
	require.NoError(t, os.Truncate(s.disk(id), 3))
	_, err = contentOf(f)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	f.Suspect()
	require.NoError(t, f.Close())
	requireGone(t, c, id)
}

// TestFileCacheCRC: content without the CRC32 of its id is not served once that is known, and is
// counted once. For a slot it is known before the first response, for a plain file when the content
// is read into memory. Repaired content is served.
func TestFileCacheCRC(t *testing.T) {
	for name, o := range map[string]FileCacheOptions{
		"kept": {}, "on disk": noBodies, "in memory only": {MaxFiles: -1}, "not kept": {MaxFiles: -1, Memory: -1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newTestStore(t)
				c := newTestCache(t, s, o)
				kept, bodies := o.MaxFiles == 0, o.Memory == 0
				id := s.write(s.id(fdfs.KindNormal, "right", nil), "wrong")
				large := strings.Repeat("right", (2 * fdfs.SlotBlock))
				slot, legacy := s.slot(256, fdfs.SlotFile, large, nil),
					s.slot(1<<20, fdfs.SlotFile, large, func(f *fdfs.Fields) {
						f.CRC32 = checksum.UpdateLegacy(0, []byte(large))
					})
				s.writeAt(slot, 256+24+3*(2*fdfs.SlotBlock), []byte("wrong"))
				const uses = 5
				for use := range uses {
					switch wrong := kept && use > 0 || !kept; {
					case bodies && wrong:
						requireGone(t, c, id)
					default:
						requireRead(t, c, id, "wrong", false)
					}
					_, err := c.Open(slot)
					require.ErrorIs(t, err, ErrSlotContent)
					requireRead(t, c, legacy, large, false)
				}
				want := 1
				if !kept {
					want = uses
				}
				if bodies {
					want *= 2
				}
				require.EqualValues(t, want, c.Stats().CRCErrors)
				copies := 0 // copies of the legacy slot
				if kept && bodies {
					copies = 1
				}
				require.Equal(t, copies, c.Stats().Bodies)
				s.write(id, "right")
				s.writeAt(slot, 256+24, []byte(large))
				time.Sleep(time.Second)
				read(t, c, id)
				requireRead(t, c, id, "right", bodies)
				requireRead(t, c, slot, large, false)
			})
		})
	}
}

// TestFileCacheChecksSlotOnce: a slot is read and checked once for all concurrent requests, and
// again only after a write to the trunk file, which may have corrupted or repaired it.
func TestFileCacheChecksSlotOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestStore(t)
		c := newTestCache(t, s, noBodies)
		large := strings.Repeat("right", (2 * fdfs.SlotBlock))
		slot := s.slot(256, fdfs.SlotFile, large, nil)
		reads := c.local.groups["group1"][0].largeReads
		for range cap(reads) { // all other checks wait
			reads <- struct{}{}
		}
		var users sync.WaitGroup
		for range 20 {
			users.Go(func() { requireRead(t, c, slot, large, false) })
		}
		synctest.Wait()
		<-reads // one place: a second check would wait for ever
		users.Wait()
		reads <- struct{}{}
		for range 5 {
			time.Sleep(time.Second)
			requireRead(t, c, slot, large, false)
		}
		<-reads
		s.writeAt(slot, 256+24+3*(2*fdfs.SlotBlock), []byte("wrong"))
		later := time.Now().Add(time.Hour)
		require.NoError(t, os.Chtimes(s.disk(slot), later, later))
		time.Sleep(time.Second)
		_, err := c.Open(slot)
		require.ErrorIs(t, err, ErrSlotContent)
		for range cap(reads) - 1 {
			<-reads
		}
	})
}

// TestFileCacheChangesWhileRead: content that changes while it is read is not kept in memory, even
// if all of it can be read.
func TestFileCacheChangesWhileRead(t *testing.T) {
	s := newTestStore(t)
	c := newTestCache(t, s, noBodies)
	slave, slot := s.slave("slave"), s.slot(256, fdfs.SlotFile, "slot", nil)
	for _, id := range []fdfs.FileID{slave, slot} {
		f, err := c.Open(id)
		require.NoError(t, err)
		kept := f.inMemory(c)
		require.NotNil(t, kept)
		require.NoError(t, kept.Close())
		if id == slot {
			s.writeAt(slot, 256, []byte{fdfs.SlotFree})
		} else {
			s.writeAt(slave, 0, []byte("other"))
		}
		require.Nil(t, f.inMemory(c), id)
		require.NoError(t, f.Close())
	}
}
