package local

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/testing/eventually"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestFileCacheMaxFiles: of three hundred files that are read through a cache of a hundred, at most
// a hundred stay open.
func TestFileCacheMaxFiles(t *testing.T) {
	s := newTestStore(t)
	before := descriptors(t)
	c := newTestCache(t, s, FileCacheOptions{MaxFiles: 100, Memory: -1})
	opened := descriptors(t) - before // descriptors of the store paths
	ids := make([]fdfs.FileID, 300)
	for i := range ids {
		ids[i] = s.id(fdfs.KindNormal, "content", nil)
		require.NoError(t, os.WriteFile(s.disk(ids[i]), []byte("content"), 0o644))
	}
	for i, id := range ids {
		content, _ := read(t, c, id)
		require.Equal(t, "content", content)
		if i%100 == 99 {
			require.LessOrEqual(t, descriptors(t)-before-opened, 100)
		}
	}
	stats := c.Stats()
	require.Equal(t, 100, stats.Files)
	require.EqualValues(t, 100, stats.Descriptors)
	for _, id := range ids[len(ids)-100:] { // the last hundred files are cached
		read(t, c, id)
	}
	require.EqualValues(t, 100, c.Stats().Hits)
}

func TestFileCacheMemory(t *testing.T) {
	s := newTestStore(t)
	const memory, size = 1 << 20, 10_000
	c := newTestCache(t, s, FileCacheOptions{Memory: 2 * memory}) // the other half is for slots
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

// TestFileCacheManyOpens: concurrent requests of many clients for one file open it once, also if
// its slot turns out to be free.
func TestFileCacheManyOpens(t *testing.T) { synctest.Test(t, testFileCacheManyOpens) }

func testFileCacheManyOpens(t *testing.T) {
	s := newTestStore(t)
	c := newTestCache(t, s, noBodies)
	here, missing := s.normal("content"), s.slot(256, fdfs.SlotFree, "missing", nil)
	var opens atomic.Int64
	gate := make(chan struct{})
	open := c.local.opener
	c.local.opener = func(dirfd int, name string, how *unix.OpenHow) (int, error) {
		opens.Add(1)
		<-gate
		return open(dirfd, name, how)
	}
	const clients = 50
	var wg sync.WaitGroup
	for range clients {
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
			if _, err := c.Open(missing); err != errSlot {
				t.Error(err)
			}
		})
	}
	synctest.Wait()
	close(gate)
	wg.Wait()
	require.EqualValues(t, 3, opens.Load(), "each once, and the trunk file once more to stay open")
	require.EqualValues(t, 2, c.Stats().Descriptors)
}

// TestFileCachePanic: a panic while a file is opened does not block other requests for it.
func TestFileCachePanic(t *testing.T) { synctest.Test(t, testFileCachePanic) }

func testFileCachePanic(t *testing.T) {
	s := newTestStore(t)
	c := newTestCache(t, s, noBodies)
	id := s.normal("content")
	g := c.local
	open := g.opener
	entered := make(chan struct{})
	gate := make(chan struct{})
	g.opener = func(int, string, *unix.OpenHow) (int, error) {
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
	synctest.Wait()
	close(gate)
	wg.Wait()
	g.opener = open
	requireRead(t, c, id, "content", false)
}

// TestFileCacheDescriptorsRunOut: when descriptors run out, the cache closes some of its files.
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

// highest returns the highest descriptor in use, provided that all lower ones are in use too.
func highest(t *testing.T) int {
	t.Helper()
	fd, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	require.NoError(t, unix.Close(fd))
	return fd - 1
}

func TestFileCachePurge(t *testing.T) {
	s := newTestStore(t)
	a := s.id(fdfs.KindNormal, "a", nil)
	b := s.id(fdfs.KindNormal, "b", func(f *fdfs.Fields) { f.Low = 2 })
	other := s.id(fdfs.KindNormal, "c", func(f *fdfs.Fields) { f.Group = "group2" })
	for _, test := range []struct {
		prefix string
		want   int
	}{
		{"", 3}, {"/", 3}, {"group1", 2}, {"group1/", 2}, {"group", 0}, {"group11", 0}, {"group2", 1},
		{"group1/M00", 2}, {"group1/M0", 0},
		{"group1/M00/0A", 2}, {"group1/M00/0A/01", 1}, {"group1/M00/0A/01/", 1}, {"group1/M00/0A/0", 0},
		{"group1/M01", 0},
		{a.String(), 1}, {a.String() + "/", 1}, {a.String()[:len(a.String())-1], 0}, {a.String() + "x", 0},
		{a.Logic, 0},
	} {
		for _, o := range []FileCacheOptions{noBodies, {}} {
			o.Valid = time.Hour // the cache does not notice removed files
			c := newTestCache(t, s, o)
			for id, content := range map[fdfs.FileID]string{a: "a", b: "b", other: "c"} {
				s.write(id, content)
				read(t, c, id)
				read(t, c, id)
				require.NoError(t, os.Remove(s.disk(id)))
			}
			require.Equal(t, test.want, c.Purge(test.prefix), test.prefix)
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

// TestFileCachePurgeOfOneFile: the purge of one file does not visit the shards of others.
func TestFileCachePurgeOfOneFile(t *testing.T) {
	s := newTestStore(t)
	c := newTestCache(t, s, FileCacheOptions{})
	id := s.normal("content")
	read(t, c, id)
	own := c.shard(fileKey{id.Group, id.Logic})
	for i := range c.shards {
		if other := &c.shards[i]; other != own {
			other.mu.Lock()
			defer other.mu.Unlock()
		}
	}
	purged := make(chan int, 1)
	go func() { purged <- c.Purge(id.String()) }()
	select {
	case n := <-purged:
		require.Equal(t, 1, n)
	case <-time.After(10 * time.Second):
		t.Fatal("the purge waits for another shard")
	}
}

// TestFileCachePurgeWhileOpening: a file that is being opened during a purge is not cached.
func TestFileCachePurgeWhileOpening(t *testing.T) {
	s := newTestStore(t)
	c := newTestCache(t, s, noBodies)
	id := s.normal("content")
	g := c.local
	open := g.opener
	g.opener = func(dirfd int, name string, how *unix.OpenHow) (int, error) {
		c.Purge("group2") // any prefix: the purge compares it only with cached files
		return open(dirfd, name, how)
	}
	requireRead(t, c, id, "content", false)
	require.Zero(t, c.Stats().Files)
	g.opener = open
	requireRead(t, c, id, "content", false)
	require.Equal(t, 1, c.Stats().Files)
}

// TestFileCacheSweep: unused files are closed, so that the disk can free the space of deleted ones.
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

// filesAndSlots makes 24 files and 16 slots, two for each place of the trunk file. ids are those of
// the files, and then of the slots.
func filesAndSlots(s *testStore) (ids, slots []fdfs.FileID, want map[fdfs.FileID]string) {
	want = make(map[fdfs.FileID]string)
	for i := range 24 {
		content := fmt.Sprintf("content %d %s", i, strings.Repeat("x", 4*i))
		ids = append(ids, s.normal(content))
		want[ids[i]] = content
	}
	for i := range 16 { // two ids for each place
		content := fmt.Sprintf("slot %d %s", i, strings.Repeat("y", 6*i))
		id := s.slot(uint32(i/2)*256, fdfs.SlotFile, content, nil)
		slots, want[id] = append(slots, id), content
	}
	return append(ids, slots...), slots, want
}

// repeat calls f with 0, 1, 2 ... until stop is closed.
func repeat(stop <-chan struct{}, f func(n int)) {
	for n := 0; ; n++ {
		select {
		case <-stop:
			return
		default:
			f(n)
		}
	}
}

// writeSlot writes a slot of a trunk file in place. It frees the slot first, as a storage does.
func writeSlot(file *os.File, id fdfs.FileID, content string) {
	_, _ = file.WriteAt(make([]byte, 24), int64(id.Trunk.Offset))
	_, _ = file.WriteAt([]byte(content), int64(id.Trunk.Offset)+24)
	_, _ = file.WriteAt(id.SlotHeader().AppendTo(nil), int64(id.Trunk.Offset))
}

// TestFileCacheConcurrently: files are replaced, slots are reused, and the cache is far too small
// and is purged, all at the same time. No reader gets bytes of another id, and no descriptor stays
// open.
func TestFileCacheConcurrently(t *testing.T) {
	s := newTestStore(t)
	c := newTestCache(t, s, FileCacheOptions{MaxFiles: 8, Memory: 8 * 1300, MaxBody: 64, Valid: time.Millisecond})
	ids, slots, want := filesAndSlots(s)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	loop := func(f func(n int)) { wg.Go(func() { repeat(stop, f) }) }
	var served, servedSlots atomic.Int64
	var changes [8]atomic.Int64 // of the slots; bytes that are read during a change may be any, see Open
	for k := range 6 {
		loop(func(n int) {
			id := ids[(n*7+k*5)%len(ids)]
			place := &changes[id.Trunk.Offset/256]
			before := place.Load()
			f, err := c.Open(id)
			if err != nil {
				return
			}
			defer f.Close()
			content, err := contentOf(f)
			if id.Kind == fdfs.KindTrunk && !f.InMemory() {
				if before%2 == 1 || place.Load() != before {
					return
				}
				servedSlots.Add(1)
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
		changes[id.Trunk.Offset/256].Add(1)
		defer changes[id.Trunk.Offset/256].Add(1)
		writeSlot(file, id, want[id])
	})
	loop(func(int) {
		c.Purge("group1/M00/0A/01")
		c.shards[0].evictSome()
		time.Sleep(time.Millisecond)
	})
	eventually.True(t, func() bool { return served.Load() >= 1500 && servedSlots.Load() >= 100 })
	close(stop)
	wg.Wait()
}

// TestFileCacheKeepsItsOwnStrings: the cache does not refer to the string of the requested id,
// whose memory is reused after the request.
func TestFileCacheKeepsItsOwnStrings(t *testing.T) {
	s := newTestStore(t)
	for _, o := range []FileCacheOptions{{}, noBodies} {
		c := newTestCache(t, s, o)
		for _, id := range []fdfs.FileID{s.normal("normal"), s.slave("slave"),
			s.slot(256, fdfs.SlotFile, "slot", nil)} {
			text := []byte(id.String())
			borrowed, err := fdfs.Parse(unsafe.String(&text[0], len(text)))
			require.NoError(t, err)
			want, _ := read(t, c, borrowed)
			for range 3 {
				for i := range text {
					text[i] = 'x'
				}
				requireRead(t, c, id, want, o.Memory == 0)
				f, err := c.Open(id)
				require.NoError(t, err)
				require.Equal(t, id, f.Content())
				require.True(t, c.unchanged(f))
				require.NoError(t, f.Close())
			}
		}
		require.EqualValues(t, 3, c.Stats().Misses)
	}
}
