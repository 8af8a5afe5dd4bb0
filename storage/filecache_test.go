package storage

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"fastdfs-gateway/internal/fdfs"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// newTestCache is a cache in front of l that is closed with the test; in the end no descriptor may be left.
func newTestCache(t testing.TB, s *testStore, o FileCacheOptions) *FileCache {
	t.Helper()
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
	inMemory = f.Bytes() != nil
	require.Equal(t, inMemory, f.Fd() < 0)
	require.NoError(t, f.Close())
	return content, inMemory
}

func contentOf(f *File) (string, error) {
	b, err := io.ReadAll(io.NewSectionReader(f, 0, f.Size()))
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
	require.ErrorIs(t, err, ErrNotFound)
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

// Every kind of file is given as a Local gives it, whichever time it is asked for; small ones come from memory from the second
// time on, where they may be there.
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
			for _, o := range []FileCacheOptions{{MaxBody: 1000}, {MaxBody: 1000, Valid: -1}, {MaxBody: -1}, noBodies, {MaxFiles: -1}, {MaxFiles: -1, Memory: -1}} {
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
					require.Equal(t, []bool{uncached.Linked(), uncached.Mutable(), uncached.Described()}, []bool{f.Linked(), f.Mutable(), f.Described()})
					if o.MaxBody == 1000 && o.Valid == 0 {
						require.Equal(t, test.memory && use > 0, f.Bytes() != nil, use)
					}
					if f.Bytes() == nil {
						require.Equal(t, uncached.Base(), f.Base())
					}
					require.NoError(t, f.Close())
				}
				require.NoError(t, uncached.Close())
			}
		})
	}
}

// A file that is kept needs no name on the disk any more: nothing is opened or looked at within Valid. After it, what is
// gone is gone, and what has taken its place is served.
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
		time.Sleep(10*time.Second - 1)
		requireRead(t, c, small, "small", true)
		requireRead(t, c, slave, "slave", true)
		requireRead(t, c, big, "a bigger file", false)
		requireRead(t, c, link, "a bigger file", false)
		time.Sleep(1)
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

// One stat after Valid is enough for a file that is as it was.
func TestFileCacheRevalidates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestStore(t)
		c := newTestCache(t, s, FileCacheOptions{MaxBody: 10})
		small, big := s.normal("small"), s.normal("a bigger file")
		for range 10 {
			read(t, c, small)
			read(t, c, big)
			time.Sleep(10 * time.Second)
		}
		stats := c.Stats()
		require.EqualValues(t, 2, stats.Misses)
		require.EqualValues(t, 18, stats.Hits)
	})
}

func TestFileCacheReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestStore(t)
		c := newTestCache(t, s, noBodies)
		slave, normal := s.slave("before"), s.normal("damaged")
		f, err := c.Open(slave)
		require.NoError(t, err)
		defer f.Close()
		require.NoError(t, os.WriteFile(s.disk(slave)+".new", []byte("after, longer"), 0o644))
		require.NoError(t, os.Rename(s.disk(slave)+".new", s.disk(slave)))
		requireRead(t, c, slave, "after, longer", false) // its inode lost its name, which fstat shows at once
		content, err := contentOf(f)
		require.NoError(t, err)
		require.Equal(t, "before", content, "who has it open goes on")

		read(t, c, normal)
		require.NoError(t, os.WriteFile(s.disk(normal)+".new", []byte("mended!"), 0o644))
		require.NoError(t, os.Rename(s.disk(normal)+".new", s.disk(normal)))
		requireRead(t, c, normal, "damaged", false)
		time.Sleep(10 * time.Second)
		requireRead(t, c, normal, "mended!", false)
	})
}

// A slot that was freed, or freed and filled again, is never served under the old id: not even within Valid.
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
		time.Sleep(10 * time.Second)
		requireGone(t, inMemory, kept)
	})
}

// A trunk file that is exchanged as a whole is noticed after Valid, although the old one still has the slot.
func TestFileCacheTrunkFileReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestStore(t)
		c := newTestCache(t, s, noBodies)
		a, b := s.slot(256, fdfs.SlotFile, "slot a", nil), s.slot(512, fdfs.SlotFile, "slot b", nil)
		requireRead(t, c, a, "slot a", false)
		requireRead(t, c, b, "slot b", false)
		require.EqualValues(t, 1, c.Stats().Descriptors, "two slots, one descriptor")
		whole, err := os.ReadFile(s.disk(a))
		require.NoError(t, err)
		whole[512] = fdfs.SlotFree
		require.NoError(t, os.WriteFile(s.disk(a)+".new", whole, 0o644))
		require.NoError(t, os.Rename(s.disk(a)+".new", s.disk(a)))
		requireRead(t, c, b, "slot b", false)
		time.Sleep(10 * time.Second)
		requireGone(t, c, b)
		requireRead(t, c, a, "slot a", false)
		require.EqualValues(t, 1, c.Stats().Descriptors)
		third := s.slot(768, fdfs.SlotFile, "slot c", nil)
		requireRead(t, c, third, "slot c", false)
		require.EqualValues(t, 1, c.Stats().Descriptors)
	})
}

// What changes in place is looked at at each use: size and bytes are always of one version.
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

// A slave that is being written is not put in memory.
func TestFileCacheUnsettledSlave(t *testing.T) {
	s := newTestStore(t)
	c := newTestCache(t, s, FileCacheOptions{})
	id := s.slave("half")
	now := time.Now()
	require.NoError(t, os.Chtimes(s.disk(id), now, now))
	for range 3 {
		requireRead(t, c, id, "half", false)
	}
	s.writeAt(id, 4, []byte(" and half"))
	requireRead(t, c, id, "half and half", false)
	s.age(id)
	requireRead(t, c, id, "half and half", false)
	requireRead(t, c, id, "half and half", true)
}

// A user who finds a file shorter than it was says so, and the next one gets a right answer at once.
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

// Content that does not have the CRC32 of its id is not put in memory. It is served as before, and counted once.
func TestFileCacheCRC(t *testing.T) {
	s := newTestStore(t)
	c := newTestCache(t, s, FileCacheOptions{})
	id := s.write(s.id(fdfs.KindNormal, "right", nil), "wrong")
	slot := s.slot(256, fdfs.SlotFile, "right", nil)
	s.writeAt(slot, 256+24, []byte("wrong"))
	for range 5 {
		requireRead(t, c, id, "wrong", false)
		requireRead(t, c, slot, "wrong", false)
	}
	require.EqualValues(t, 2, c.Stats().CRCErrors)
	require.Zero(t, c.Stats().Bodies)
}

// Ten thousand files through a cache of a hundred: no more than these stay open.
func TestFileCacheMaxFiles(t *testing.T) {
	s := newTestStore(t)
	before := descriptors(t)
	c := newTestCache(t, s, FileCacheOptions{MaxFiles: 100, Memory: -1})
	opened := descriptors(t) - before // the store paths
	ids := make([]fdfs.FileID, 10_000)
	for i := range ids {
		ids[i] = s.id(fdfs.KindNormal, "content", nil)
		require.NoError(t, os.WriteFile(s.disk(ids[i]), []byte("content"), 0o644))
	}
	for i, id := range ids {
		content, _ := read(t, c, id)
		require.Equal(t, "content", content)
		if i%1000 == 999 {
			require.LessOrEqual(t, descriptors(t)-before-opened, 100)
		}
	}
	stats := c.Stats()
	require.Equal(t, 100, stats.Files)
	require.EqualValues(t, 100, stats.Descriptors)
	for _, id := range ids[len(ids)-100:] { // the last ones are those that are kept
		read(t, c, id)
	}
	require.EqualValues(t, 100, c.Stats().Hits)
}

func TestFileCacheMemory(t *testing.T) {
	s := newTestStore(t)
	const memory, size = 1 << 20, 10_000
	c := newTestCache(t, s, FileCacheOptions{Memory: memory})
	for i := range 200 {
		content := strings.Repeat(fmt.Sprintf("%09d ", i), size/10)
		id := s.normal(content)
		requireRead(t, c, id, content, false)
		requireRead(t, c, id, content, true)
		require.LessOrEqual(t, c.Stats().Bytes, int64(memory))
	}
	stats := c.Stats()
	require.Greater(t, stats.Bytes, int64(memory-2*size))
	require.Equal(t, memory/(size+bookkeeping), stats.Bodies)
	require.Zero(t, stats.Descriptors, "what is in memory holds no descriptor")
}

// Counted while the openings of a crowd are held up: there is one.
func TestFileCacheCrowd(t *testing.T) {
	s := newTestStore(t)
	c := newTestCache(t, s, noBodies)
	here, missing := s.normal("content"), s.id(fdfs.KindNormal, "missing", nil)
	var opens atomic.Int64
	gate := make(chan struct{})
	for _, g := range c.local.list {
		open := g.opener
		g.opener = func(dirfd int, name string, flags uint64) (int, error) {
			opens.Add(1)
			<-gate
			return open(dirfd, name, flags)
		}
	}
	const crowd = 50
	var wg sync.WaitGroup
	for range crowd {
		wg.Go(func() {
			if f, err := c.Open(here); err != nil {
				t.Error(err)
			} else if content, err := contentOf(f); err != nil || content != "content" {
				t.Error(content, err)
			} else if err = f.Close(); err != nil {
				t.Error(err)
			}
		})
		wg.Go(func() {
			if _, err := c.Open(missing); err != ErrNotFound {
				t.Error(err)
			}
		})
	}
	waiting := func() (n int64) {
		for i := range c.shards {
			s := &c.shards[i]
			s.mu.Lock()
			for _, f := range s.flights {
				n += f.waiting
			}
			s.mu.Unlock()
		}
		return n
	}
	require.Eventually(t, func() bool { return waiting() == 2*(crowd-1) }, 30*time.Second, time.Millisecond)
	close(gate)
	wg.Wait()
	require.EqualValues(t, 2, opens.Load())
	require.EqualValues(t, 1, c.Stats().Descriptors)
}

// An opening that panics, which is a bug, keeps nobody waiting.
func TestFileCachePanic(t *testing.T) {
	s := newTestStore(t)
	c := newTestCache(t, s, noBodies)
	id := s.normal("content")
	g := c.local.groups["group1"]
	open := g.opener
	entered := make(chan struct{})
	gate := make(chan struct{})
	g.opener = func(int, string, uint64) (int, error) {
		close(entered)
		<-gate
		panic("test")
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		defer func() { _ = recover() }()
		_, _ = c.Open(id)
	})
	<-entered
	wg.Go(func() {
		_, err := c.Open(id)
		if err != errBroken {
			t.Error(err)
		}
	})
	require.Eventually(t, func() bool {
		sh := c.shard(fileKey{id.Group, id.Logic})
		sh.mu.Lock()
		defer sh.mu.Unlock()
		for _, f := range sh.flights {
			return f.waiting == 1
		}
		return false
	}, 30*time.Second, time.Millisecond)
	close(gate)
	wg.Wait()
	g.opener = open
	requireRead(t, c, id, "content", false)
}

// When descriptors run out, some of those that are kept are given up.
func TestFileCacheDescriptorsRunOut(t *testing.T) {
	s := newTestStore(t)
	c := newTestCache(t, s, noBodies)
	for i := range 40 {
		read(t, c, s.normal(fmt.Sprint("kept ", i)))
	}
	one := s.normal("one more")
	var old unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &old))
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(highest(t) + 1), Max: old.Max}))
	f, err := c.Open(one)
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &old))
	require.NoError(t, err)
	require.NoError(t, f.Close())
	require.Less(t, c.Stats().Files, 41)
	require.GreaterOrEqual(t, c.Stats().Files, 20)
}

// highest is the highest descriptor in use when all below it are in use too.
func highest(t *testing.T) int {
	t.Helper()
	fd, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	require.NoError(t, unix.Close(fd))
	return fd - 1
}

func TestFileCacheForget(t *testing.T) {
	s := newTestStore(t)
	a := s.id(fdfs.KindNormal, "a", nil)
	b := s.id(fdfs.KindNormal, "b", func(f *fdfs.Fields) { f.Low = 2 })
	other := s.id(fdfs.KindNormal, "c", func(f *fdfs.Fields) { f.Group = "group2" })
	for _, test := range []struct {
		prefix string
		want   int
	}{
		{"", 3}, {"/", 3}, {"group1", 2}, {"group1/", 2}, {"group", 0}, {"group11", 0}, {"group2", 1}, {"group1/M00", 2}, {"group1/M0", 0},
		{"group1/M00/0A", 2}, {"group1/M00/0A/01", 1}, {"group1/M00/0A/01/", 1}, {"group1/M00/0A/0", 0}, {"group1/M01", 0},
		{a.String(), 1}, {a.String() + "/", 1}, {a.String()[:len(a.String())-1], 0}, {a.String() + "x", 0}, {a.Logic, 0},
	} {
		for _, o := range []FileCacheOptions{noBodies, {}} {
			c := newTestCache(t, s, o)
			for id, content := range map[fdfs.FileID]string{a: "a", b: "b", other: "c"} {
				s.write(id, content)
				read(t, c, id)
				read(t, c, id)
				require.NoError(t, os.Remove(s.disk(id)))
			}
			require.Equal(t, test.want, c.Forget(test.prefix), test.prefix)
			left := 0
			for _, id := range []fdfs.FileID{a, b, other} {
				if f, err := c.Open(id); err == nil {
					left++
					require.NoError(t, f.Close())
				}
			}
			require.Equal(t, 3-test.want, left, test.prefix)
		}
	}
}

// A file that was being opened when it was to be forgotten is not kept.
func TestFileCacheForgetWhileOpening(t *testing.T) {
	s := newTestStore(t)
	c := newTestCache(t, s, noBodies)
	id := s.normal("content")
	g := c.local.groups["group1"]
	open := g.opener
	g.opener = func(dirfd int, name string, flags uint64) (int, error) {
		c.Forget("group2") // any: what lies below is found by what is kept only
		return open(dirfd, name, flags)
	}
	requireRead(t, c, id, "content", false)
	require.Zero(t, c.Stats().Files)
	g.opener = open
	requireRead(t, c, id, "content", false)
	require.Equal(t, 1, c.Stats().Files)
}

// What nobody asks for is closed, so that a deleted file gives its space back.
func TestFileCacheSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestStore(t)
		c := newTestCache(t, s, noBodies)
		idle, busy := s.normal("idle"), s.normal("busy")
		read(t, c, idle)
		for range 8 {
			read(t, c, busy)
			time.Sleep(4 * time.Second)
		}
		require.EqualValues(t, 1, c.Stats().Descriptors)
		read(t, c, busy)
		require.EqualValues(t, 2, c.Stats().Misses)
		time.Sleep(time.Minute)
		require.Zero(t, c.Stats().Descriptors)
	})
}

func TestFileCacheClosed(t *testing.T) {
	s := newTestStore(t)
	c := newTestCache(t, s, FileCacheOptions{})
	id := s.normal("content")
	f, err := c.Open(id)
	require.NoError(t, err)
	require.NoError(t, c.Close())
	content, err := contentOf(f)
	require.NoError(t, err)
	require.Equal(t, "content", content, "a file that was open stays so")
	require.NoError(t, f.Close())
	for range 3 {
		requireRead(t, c, id, "content", false)
	}
	require.Zero(t, c.Stats().Descriptors)
}

func TestFileCacheMemo(t *testing.T) {
	s := newTestStore(t)
	c := newTestCache(t, s, FileCacheOptions{})
	id := s.normal("content")
	for n := range 3 {
		f, err := c.Open(id)
		require.NoError(t, err)
		if n == 0 {
			require.Nil(t, f.Memo())
			f.SetMemo("kept")
		}
		require.Equal(t, "kept", f.Memo())
		require.NoError(t, f.Close())
	}
}

// A request for a file that is kept allocates nothing.
func TestFileCacheAllocations(t *testing.T) {
	s := newTestStore(t)
	c := newTestCache(t, s, FileCacheOptions{MaxBody: 100})
	for name, id := range map[string]fdfs.FileID{
		"memory": s.normal("small"), "disk": s.normal(strings.Repeat("big", 100)), "slot": s.slot(256, fdfs.SlotFile, strings.Repeat("big", 100), nil), "appender": s.appender("x"),
	} {
		read(t, c, id)
		read(t, c, id)
		allocs := testing.AllocsPerRun(100, func() {
			f, err := c.Open(id)
			if err != nil {
				t.Fatal(err)
			}
			_ = f.Close()
		})
		require.True(t, allocs == 0 || raceDetector && name == "slot", "%s: %v", name, allocs)
	}
}

// Everything at once: files come and go in place, slots are reused, the cache is far too small, and is told to forget. Nobody ever
// gets other bytes than those of the id that was asked for, and no descriptor is left.
func TestFileCacheConcurrently(t *testing.T) {
	s := newTestStore(t)
	c := newTestCache(t, s, FileCacheOptions{MaxFiles: 8, Memory: 8 * 1300, MaxBody: 64, Valid: time.Millisecond})
	want := make(map[fdfs.FileID]string)
	var ids, slots []fdfs.FileID
	for i := range 24 {
		content := fmt.Sprintf("content %d %s", i, strings.Repeat("x", 4*i))
		ids = append(ids, s.normal(content))
		want[ids[i]] = content
	}
	for i := range 16 { // by twos in one place
		content := fmt.Sprintf("slot %d %s", i, strings.Repeat("y", 6*i))
		id := s.slot(uint32(i/2)*256, fdfs.SlotFile, content, nil)
		slots, want[id] = append(slots, id), content
	}
	ids = append(ids, slots...)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	loop := func(f func(n int)) {
		wg.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
					f(n)
				}
			}
		})
	}
	var served atomic.Int64
	for k := range 6 {
		loop(func(n int) {
			id := ids[(n*7+k*5)%len(ids)]
			f, err := c.Open(id)
			if err != nil {
				return
			}
			defer f.Close()
			content, err := contentOf(f)
			if id.Kind == fdfs.KindTrunk && f.Bytes() == nil && !f.untouched() {
				return // freed while it was read: Open says that nobody can exclude that
			}
			if err != nil || content != want[id] {
				t.Errorf("%s: got %q, %v", id, content, err)
			}
			served.Add(1)
		})
	}
	loop(func(n int) {
		id := ids[n%24]
		_ = os.Remove(s.disk(id))
		_ = os.WriteFile(s.disk(id)+".new", []byte(want[id]), 0o644)
		_ = os.Rename(s.disk(id)+".new", s.disk(id))
	})
	file, err := os.OpenFile(s.disk(slots[0]), os.O_WRONLY, 0)
	require.NoError(t, err)
	defer file.Close()
	loop(func(n int) {
		id := slots[n%len(slots)]
		header := id.SlotHeader()
		_, _ = file.WriteAt(make([]byte, 24), int64(id.Trunk.Offset)) // freed first, as the storage does
		_, _ = file.WriteAt([]byte(want[id]), int64(id.Trunk.Offset)+24)
		_, _ = file.WriteAt(header.AppendTo(nil), int64(id.Trunk.Offset))
	})
	loop(func(int) {
		c.Forget("group1/M00/0A/01")
		c.shards[0].shed()
		time.Sleep(time.Millisecond)
	})
	time.Sleep(500 * time.Millisecond)
	close(stop)
	wg.Wait()
	require.Positive(t, served.Load())
}

func BenchmarkFileCache(b *testing.B) {
	s := newTestStore(b)
	c := newTestCache(b, s, FileCacheOptions{MaxBody: 100})
	missing := s.id(fdfs.KindNormal, "missing", nil)
	for name, id := range map[string]fdfs.FileID{
		"memory": s.normal("small"), "disk": s.normal(strings.Repeat("big", 100)), "slot": s.slot(256, fdfs.SlotFile, strings.Repeat("big", 100), nil),
	} {
		read(b, c, id)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				f, err := c.Open(id)
				if err != nil {
					b.Fatal(err)
				}
				_ = f.Close()
			}
		})
	}
	b.Run("missing", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _ = c.Open(missing)
		}
	})
}
