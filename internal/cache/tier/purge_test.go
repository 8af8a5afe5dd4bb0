package tier

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// tiny returns segment 0 of a file of one byte.
func tiny(file string) *Segment {
	return &Segment{Key: Key{File: file}, Version: Version{Size: 1}, Chunks: [][]byte{{1}}}
}

func numberedFile(i int) string { return fmt.Sprintf("group1/M00/%02X/%02X/f%d", i%256, i/256%256, i) }

// fill adds segments of n files to the memory, or entries for them to the index of the disk.
func fill(m *Memory, d *Disk, n int) {
	for i := range n {
		m.Put(tiny(numberedFile(i)))
		d.mu.Lock()
		d.index.addEntry(&diskEntry{key: Key{File: numberedFile(i)}, bytes: 4096})
		d.mu.Unlock()
	}
}

// allocated returns the bytes that a call of f allocates.
func allocated(f func()) int64 {
	const runs = 10
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range runs {
		f()
	}
	runtime.ReadMemStats(&after)
	return int64(after.TotalAlloc-before.TotalAlloc) / runs
}

// TestPurgeOfAFileWalksNothing: the allocation of a purge of one file does not depend on the number
// of other entries. A walk would allocate a list of them.
func TestPurgeOfAFileWalksNothing(t *testing.T) {
	costs := func(n int) (memory, disk int64) {
		m := NewMemory(1 << 40)
		d := openDisk(t, DiskOptions{Max: 1 << 40})
		d.Purge(MatchAll)
		fill(m, d, n)
		memory = allocated(func() { m.Purge(MatchFile("group1/none")) })
		disk = allocated(func() { d.Purge(MatchFile("group1/none")) })
		require.Equal(t, n, d.Stats().Entries)
		require.Equal(t, n, m.Stats().Entries)
		t.Logf("beside %d entries: %d bytes in memory, %d on disk", n, memory, disk)
		return memory, disk
	}
	memory, disk := costs(1000)
	memoryMany, diskMany := costs(20_000)
	const noise = 64 << 10 // a list of pointers would be 160 KB
	require.Less(t, memoryMany, memory+noise)
	require.Less(t, diskMany, disk+noise)
}

// TestPurgeOfSegments: a purge of a file removes all of its segments from every tier, and nothing
// else.
func TestPurgeOfSegments(t *testing.T) {
	d, m := openDisk(t, DiskOptions{}), NewMemory(100<<20)
	path := d.o.Path
	both := func(match Match) int { return max(d.Purge(match), m.Purge(match)) }
	segment := func(file string, index int64) *Segment {
		return &Segment{Key: Key{File: file, Index: index}, Version: Version{Size: 4 * SegmentSize},
			Chunks: [][]byte{make([]byte, 100)}}
	}
	for _, indexes := range [][]int64{{0}, {2}, {0, 1}, {1, 3}, {3, 0, 2}} {
		for _, i := range indexes {
			for _, s := range []*Segment{segment("group1/a", i), segment("group1/b", i)} {
				require.True(t, m.Put(s))
				require.True(t, d.Put(s))
			}
		}
		d.Settle()
		require.Equal(t, len(indexes), both(MatchFile("group1/a")))
		require.Zero(t, both(MatchFile("group1/a")))
		d.Settle()
		for i := range int64(4) {
			require.NoFileExists(t, filepath.Join(path, d.path(Key{File: "group1/a", Index: i})))
		}
		for _, i := range indexes {
			_, there := m.Holds(Key{File: "group1/b", Index: i})
			require.True(t, there)
			require.FileExists(t, filepath.Join(path, d.path(Key{File: "group1/b", Index: i})))
		}
		require.Equal(t, len(indexes), both(MatchAll))
		d.Settle()
		require.Zero(t, len(m.all)+len(d.index.all)+len(d.index.unlinking)+len(d.pending))
	}
}

// during returns a disk with two segments in files. The disk calls do once, in the middle of the
// operation with the name what. Files that were in the folder before are removed.
func during(t *testing.T, path, what string) (d *Disk, do *atomic.Pointer[func()]) {
	t.Helper()
	do = new(atomic.Pointer[func()])
	d = openDisk(t, DiskOptions{Path: path, failure: func(op string) error {
		if op != what {
			return nil
		}
		if f := do.Swap(nil); f != nil {
			(*f)()
		}
		return nil
	}})
	d.Purge(MatchAll)
	for _, file := range []string{"group1/a", "group1/b"} {
		require.True(t, d.Put(tiny(file)))
		d.Settle()
	}
	return d, do
}

// TestOpensBesidePurges: a segment whose file is being opened during a purge of others is found. A
// segment that is purged itself is not found.
func TestOpensBesidePurges(t *testing.T) {
	s, path := tiny("group1/a"), emptyFolder(t)
	for name, test := range map[string]struct {
		match Match
		found bool
	}{
		"other file": {MatchFile("group1/b"), true}, "no file": {MatchFile("group1/c"), true},
		"other folder": {MatchFolder("group2"), true}, "the file": {MatchFile("group1/a"), false},
		"its folder": {MatchFolder("group1"), false}, "all": {MatchAll, false},
	} {
		t.Run(name, func(t *testing.T) {
			d, do := during(t, path, "open")
			purge := func() { d.Purge(test.match) }
			do.Store(&purge)
			view, found := d.Get(s.Key, s.Version, true)
			require.Equal(t, test.found, found)
			if found {
				view.Release()
			}
			require.Nil(t, do.Load())
			_, there := d.Holds(s.Key)
			require.Equal(t, test.found, there)
		})
		t.Run(name+", promoted", func(t *testing.T) {
			d, do := during(t, path, "read")
			m := NewMemory(1 << 20)
			purge := func() { d.Purge(test.match); m.Purge(test.match) }
			do.Store(&purge)
			view, found := d.Get(s.Key, s.Version, true)
			require.True(t, found)
			view, found = m.Promote(view)
			require.True(t, found, "it began before")
			view.Release()
			require.Nil(t, do.Load())
			_, there := m.Holds(s.Key)
			require.Equal(t, test.found, there)
		})
	}
}

// TestPurgesReadNamesOnce: thousands of purges on a disk that is not listed yet, as after a
// restart, read the names in each folder once for all of them, and do not walk for each.
func TestPurgesReadNamesOnce(t *testing.T) {
	path := emptyFolder(t)
	d := openDisk(t, DiskOptions{Path: path})
	for i := range 300 {
		require.True(t, d.Put(tiny(numberedFile(i))))
	}
	d.Settle()
	require.NoError(t, d.Close())
	var lists, syncs, removes atomic.Int64
	d = openDisk(t, DiskOptions{Path: path, failure: func(op string) error {
		switch op {
		case "list":
			lists.Add(1)
		case "sync":
			syncs.Add(1)
		case "remove":
			removes.Add(1)
		}
		return nil
	}})
	for i := range 5000 {
		d.Purge(MatchFile(numberedFile(100 + i)))
	}
	require.Zero(t, syncs.Load())
	require.NoError(t, d.Sync())
	require.EqualValues(t, 200, removes.Load())
	require.LessOrEqual(t, lists.Load(), int64(2*folders), "by Sync, and by the listing at start")
	require.LessOrEqual(t, syncs.Load(), int64(folders))
	for i := range 300 {
		s := tiny(numberedFile(i))
		view, found := d.Get(s.Key, s.Version, true)
		require.Equal(t, i < 100, found, i)
		if found {
			view.Release()
		}
	}
	require.NoError(t, d.Close())
	d = openDisk(t, DiskOptions{Path: path})
	d.Purge(MatchFolder("group1/M00")) // before they are listed
	_, found := d.Holds(Key{File: numberedFile(0)})
	require.False(t, found)
}

// openDisk opens a disk until the end of the test, in a new folder if the options name none.
func openDisk(t *testing.T, o DiskOptions) *Disk {
	t.Helper()
	if o.Path == "" {
		o.Path = emptyFolder(t)
	}
	d, err := OpenDisk(o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// failureOf returns a DiskOptions.failure that fails one operation while failing is set.
func failureOf(broken string, failing *atomic.Bool) func(op string) error {
	return func(op string) error {
		if op == broken && failing.Load() {
			return errors.New("input/output error")
		}
		return nil
	}
}

// TestPurgeOfWhatCouldNotBeRemoved: a purge removes the file of an evicted segment that the
// eviction could not remove, since the disk failed. Otherwise the next process would find it.
func TestPurgeOfWhatCouldNotBeRemoved(t *testing.T) {
	var failing atomic.Bool
	d := openDisk(t, DiskOptions{failure: failureOf("remove", &failing)})
	s := tiny("group1/a")
	name := filepath.Join(d.o.Path, d.path(s.Key))
	require.True(t, d.Put(s))
	d.Settle()
	failing.Store(true)
	d.SetMax(1)
	require.Zero(t, d.Stats().Entries)
	d.Settle()
	require.FileExists(t, name)
	failing.Store(false)
	require.Zero(t, d.Purge(MatchFile(s.File)))
	d.Settle()
	require.NoFileExists(t, name)
}

// TestPurgeOnFailingDisk: Sync does not confirm a purge of files that the disk keeps, since it
// rejects removals or cannot be read, until they are gone. So no later process finds them.
func TestPurgeOnFailingDisk(t *testing.T) {
	for _, test := range []struct {
		broken   string
		released bool // before the disk works again
	}{{"remove", false}, {"list", false}, {"remove", true}, {"list", true}} {
		broken, released := test.broken, test.released
		t.Run(fmt.Sprintf("%s, released %t", broken, released), func(t *testing.T) {
			var failing atomic.Bool
			o := DiskOptions{Path: emptyFolder(t), failure: failureOf(broken, &failing)}
			d := openDisk(t, o)
			purged, other := tiny("group1/a"), tiny("group1/b")
			require.NotEqual(t, folderOf(purged.File), folderOf(other.File))
			require.True(t, d.Put(purged))
			require.True(t, d.Put(other))
			d.Settle()
			if broken == "list" { // a new process has not read the names yet
				require.NoError(t, d.Close())
				failing.Store(true)
				d = openDisk(t, o)
			}
			failing.Store(true)
			d.Purge(MatchFile(purged.File))
			_, found := d.Get(purged.Key, purged.Version, true)
			require.False(t, found)
			require.Error(t, d.Sync())
			require.Error(t, d.Sync(), "also when it is asked again")
			require.FileExists(t, filepath.Join(o.Path, d.path(purged.Key)))
			if released {
				require.NoError(t, d.Release())
				failing.Store(false)
				require.Error(t, d.Sync(), "the next process has to purge it")
				return
			}
			failing.Store(false)
			require.NoError(t, d.Sync())
			require.NoFileExists(t, filepath.Join(o.Path, d.path(purged.Key)))
			require.FileExists(t, filepath.Join(o.Path, d.path(other.Key)))
			require.NoError(t, d.keptError())
		})
	}
}

// TestPurgedAndStoredAgain: Sync does not remove a file that has replaced one that a purge could
// not remove.
func TestPurgedAndStoredAgain(t *testing.T) {
	var failing atomic.Bool
	d := openDisk(t, DiskOptions{Retry: time.Nanosecond, failure: failureOf("remove", &failing)})
	s := tiny("group1/a")
	require.True(t, d.Put(s))
	d.Settle()
	failing.Store(true)
	require.Equal(t, 1, d.Purge(MatchFile(s.File)))
	require.Error(t, d.Sync())
	require.True(t, d.Put(s))
	d.Settle()
	require.NoError(t, d.Sync())
	view, found := d.Get(s.Key, s.Version, true)
	require.True(t, found)
	view.Release()
}

// countingLocker counts the calls of Lock.
type countingLocker struct {
	sync.Mutex
	locks int
}

func (c *countingLocker) Lock() {
	c.Mutex.Lock()
	c.locks++
}

// TestWalkInSteps: a walk over an index releases the mutex between its steps, so that other
// goroutines can change the map.
func TestWalkInSteps(t *testing.T) {
	var mu countingLocker
	m := Files[int]{}
	for i := range 10 * walkStep {
		m.Set(Key{File: numberedFile(i)}, &i)
	}
	seen := map[int]int{}
	m.Visit(&mu, MatchAll, func(key Key, i *int) {
		require.False(t, mu.TryLock(), "it has the mutex")
		if seen[*i]++; *i%2 == 0 {
			m.Remove(key)
		}
	})
	require.Len(t, seen, 10*walkStep)
	require.Greater(t, mu.locks, 10)
	require.Len(t, m, 5*walkStep)
}

// TestNamesOfFile: a purge of a file selects its variants and its names with a source, and a purge
// of one of those only that. None of them walks over other files.
func TestNamesOfFile(t *testing.T) {
	const file = "group1/M00/00/00/name"
	names := []string{file, file + "@0a000001", file + "/v1-w200", file + "@0a000001/v1-w200"}
	others := []string{file + "2", file + "2/v1-w200", "group1/M00/00/01/name"}
	for n, match := range []Match{MatchFile(file), Match(names[1]), Match(names[2]), MatchFolder("group1/M00/00/00")} {
		index := Files[int]{}
		for _, name := range slices.Concat(names, others) {
			index.Set(Key{File: name}, new(int))
			index.Set(Key{File: name, Index: 1}, new(int))
		}
		var mu sync.Mutex
		index.Visit(&mu, match, func(key Key, _ *int) { index.Remove(key) })
		for i, name := range names {
			selected := n == 0 || n == 3 || i == n
			require.Equal(t, !selected, index.Get(Key{File: name}) != nil, "%s: %s", match, name)
			require.Equal(t, !selected, index.Get(Key{File: name, Index: 1}) != nil, "%s: %s", match, name)
		}
		for i, name := range others {
			require.Equal(t, n < 3 || i == 2, index.Get(Key{File: name}) != nil, "%s: %s", match, name)
		}
	}
}
