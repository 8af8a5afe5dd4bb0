package tier_test

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"fastdfs-gateway/internal/cache/tier"
	"fastdfs-gateway/internal/testing/cachetest"
	"fastdfs-gateway/internal/testing/eventually"
)

// openDisk opens a tier. The test closes it at its end, unless it is closed before.
func openDisk(t *testing.T, o tier.DiskOptions) *tier.Disk {
	t.Helper()
	d, err := tier.OpenDisk(o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// listed waits until the files of earlier processes are listed.
func listed(t *testing.T, d *tier.Disk) *tier.Disk {
	t.Helper()
	eventually.True(t, d.Listed)
	return d
}

// written waits until n segments are on disk.
func written(t *testing.T, d *tier.Disk, n int) {
	t.Helper()
	eventually.True(t, func() bool { return d.Stats().Entries == n }, "%d segments", n)
}

// emptied opens a disk in a folder of an earlier one, and removes its segments. A new folder takes
// longer than most tests, since 256 folders are made in it.
func emptied(t *testing.T, path string) *tier.Disk {
	t.Helper()
	d := listed(t, openDisk(t, tier.DiskOptions{Path: path}))
	d.Purge(tier.MatchAll)
	d.Settle()
	require.Empty(t, files(t, path))
	return d
}

func TestDisk(t *testing.T) {
	path := tier.EmptyFolder(t)
	cachetest.Run(t, func(t *testing.T) cachetest.Tier { return emptied(t, path) })
}

// settling is a disk whose Put waits for the write, so that Get reads from a file.
type settling struct{ *tier.Disk }

func (s settling) Put(segment *tier.Segment) bool {
	ok := s.Disk.Put(segment)
	s.Settle()
	return ok
}

func TestDiskFromFiles(t *testing.T) {
	path := tier.EmptyFolder(t)
	cachetest.Run(t, func(t *testing.T) cachetest.Tier { return settling{emptied(t, path)} })
}

// files lists the files below a folder except the marker.
func files(t *testing.T, path string) (list []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(path, func(p string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() && e.Name() != "fastdfs-gateway-cache" {
			list = append(list, p)
		}
		return err
	}))
	return list
}

// TestRestart: the next process finds the stored segments, before and after it has listed them.
func TestRestart(t *testing.T) {
	path := tier.EmptyFolder(t)
	content := cachetest.Content("a", 2*tier.SegmentSize+5)
	d := openDisk(t, tier.DiskOptions{Path: path})
	for i := range int64(3) {
		require.True(t, d.Put(cachetest.Segment("a", i, content)))
	}
	written(t, d, 3)
	before := d.Stats().Bytes
	_, err := tier.OpenDisk(tier.DiskOptions{Path: path})
	require.ErrorContains(t, err, "another process uses it")
	require.NoError(t, d.Close())
	require.NoError(t, os.WriteFile(filepath.Join(path, "00", "foreign"), []byte("x"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(path, "segment.new"), []byte("x"), 0o600))

	for range 2 {
		d = openDisk(t, tier.DiskOptions{Path: path})
		for i := range int64(3) { // the listing may not have ended yet
			s := cachetest.Segment("a", i, content)
			view, ok := d.Get(s.Key, s.Version, true)
			require.True(t, ok)
			got, err := cachetest.Read(view, 0, s.Length(), tier.SegmentSize)
			view.Release()
			require.NoError(t, err)
			require.True(t, bytes.Equal(content[i*tier.SegmentSize:][:s.Length()], got))
		}
		listed(t, d)
		require.Equal(t, 3, d.Stats().Entries)
		require.Equal(t, before, d.Stats().Bytes)
		require.NoError(t, d.Close())
	}
	require.Len(t, files(t, path), 4, "what was left behind is gone, what is foreign is not")
	require.FileExists(t, filepath.Join(path, "00", "foreign"))
}

// TestTimesFromTheFuture: a segment that was used while the clock of the host was years ahead is
// evicted in its turn.
func TestTimesFromTheFuture(t *testing.T) {
	path, now := tier.EmptyFolder(t), time.Now()
	d := openDisk(t, tier.DiskOptions{Path: path})
	var names []string
	for i, age := range []time.Duration{2 * time.Hour, -10 * 365 * 24 * time.Hour, time.Hour, -time.Minute} {
		require.True(t, d.Put(small(i, 100)))
		d.Settle()
		for _, name := range files(t, path) {
			if !slices.Contains(names, name) {
				names = append(names, name)
				require.NoError(t, os.Chtimes(name, now.Add(-age), now.Add(-age)))
			}
		}
	}
	bytes := d.Stats().Bytes
	require.NoError(t, d.Close())
	d = listed(t, openDisk(t, tier.DiskOptions{Path: path}))
	for n, gone := range []int{1, 0, 2} {
		d.SetMax(bytes * int64(3-n) / 4)
		d.Settle()
		require.NoFileExists(t, names[gone])
		require.Len(t, files(t, path), 3-n)
	}
}

// TestCorruption: whichever part of a stored file is changed, no wrong byte is read, and the file
// is removed.
func TestCorruption(t *testing.T) {
	path := tier.EmptyFolder(t)
	content := cachetest.Content("group1/M00/00/00/a", 2*tier.ChunkSize+100)
	s := cachetest.Segment("group1/M00/00/00/a", 0, content)
	d := openDisk(t, tier.DiskOptions{Path: path})
	require.True(t, d.Put(s))
	written(t, d, 1)
	require.NoError(t, d.Close())
	name := files(t, path)[0]
	good, err := os.ReadFile(name)
	require.NoError(t, err)
	corrupted := map[string][]byte{"empty": {}, "cut": good[:len(good)-1], "longer": append(bytes.Clone(good), 0),
		"head only": good[:50], "zeros": make([]byte, len(good))}
	for _, i := range []int{0, 20, 40, len(good) / 2, len(good) - 1} {
		b := bytes.Clone(good)
		b[i] ^= 1
		corrupted[fmt.Sprintf("byte %d, before it is opened", i)] = b
	}
	find := func(d *tier.Disk, what string) {
		before := d.Stats().Corrupt
		view, ok := d.Get(s.Key, s.Version, true)
		if ok {
			got, err := cachetest.Read(view, 0, s.Length(), tier.SegmentSize)
			view.Release()
			require.ErrorIs(t, err, tier.ErrCorrupt, what)
			require.True(t, bytes.HasPrefix(content, got), what)
		}
		_, ok = d.Get(s.Key, s.Version, true)
		require.False(t, ok, what)
		require.Equal(t, before+1, d.Stats().Corrupt, what)
		d.Settle()
		require.NoFileExists(t, name, what)
	}
	for what, b := range corrupted {
		require.NoError(t, os.WriteFile(name, b, 0o600))
		d := openDisk(t, tier.DiskOptions{Path: path})
		find(d, what)
		require.NoError(t, d.Close())
	}
	d = openDisk(t, tier.DiskOptions{Path: path})
	changed := bytes.Clone(good)
	for i := 0; i < len(good); i += 1 + i/13 { // with one open disk: to open one for each takes longer than all else
		require.True(t, d.Put(s))
		d.Settle()
		changed[i] ^= 1
		require.NoError(t, os.WriteFile(name, changed, 0o600))
		changed[i] ^= 1
		find(d, fmt.Sprintf("byte %d", i))
	}
}

// TestNamesOfNoFile: a segment with a name that cannot be a file id is neither stored nor found.
func TestNamesOfNoFile(t *testing.T) {
	path := tier.EmptyFolder(t)
	d := openDisk(t, tier.DiskOptions{Path: path})
	for _, name := range []string{"a+b", "a%2fb", "a%", "a b", "\x00", "a#0", "\xff\xfe", strings.Repeat("a", 201)} {
		s := cachetest.Segment(name, 0, cachetest.Content(name, 100))
		require.False(t, d.Put(s), "%q", name)
		_, ok := d.Get(s.Key, s.Version, true)
		require.False(t, ok, "%q", name)
	}
	d.Settle()
	require.Empty(t, files(t, path))
}

// TestForeignContent: the file of one segment under the name of another one is corrupt, and is
// removed.
func TestForeignContent(t *testing.T) {
	path := tier.EmptyFolder(t)
	one, other := small(1, 1000), small(2, 1000)
	d := openDisk(t, tier.DiskOptions{Path: path})
	require.True(t, d.Put(one))
	d.Settle()
	name := files(t, path)[0]
	b, err := os.ReadFile(name)
	require.NoError(t, err)
	require.Equal(t, 1, d.Purge(tier.MatchAll))
	require.True(t, d.Put(other))
	d.Settle()
	name = files(t, path)[0]
	require.NoError(t, os.WriteFile(name, b, 0o600))
	_, ok := d.Get(other.Key, other.Version, true)
	require.False(t, ok)
	require.EqualValues(t, 1, d.Stats().Corrupt)
	d.Settle()
	require.NoFileExists(t, name)
}

// TestDiskBudget: the oldest entries are evicted. Entries count with the blocks that they take in
// the file system, also after a restart.
func TestDiskBudget(t *testing.T) {
	path := tier.EmptyFolder(t)
	const budget = 1 << 20
	d := listed(t, openDisk(t, tier.DiskOptions{Path: path, Max: budget}))
	for i := range 400 {
		require.True(t, d.Put(small(i, 5000))) // 8 KiB each
		d.Settle()
		require.LessOrEqual(t, d.Stats().Bytes, int64(budget))
		if i >= 10 { // number 10 stays the most recently used one
			view, ok := d.Get(small(10, 5000).Key, small(10, 5000).Version, true)
			require.True(t, ok, i)
			view.Release()
		}
	}
	require.Equal(t, budget/8192, d.Stats().Entries)
	require.Len(t, files(t, path), budget/8192)
	require.NoError(t, d.Close())
	d = listed(t, openDisk(t, tier.DiskOptions{Path: path, Max: budget / 2}))
	require.Equal(t, budget/2/8192, d.Stats().Entries, "the new budget is kept")
	eventually.True(t, func() bool { return len(files(t, path)) == budget/2/8192 })
	d.SetMax(budget / 4)
	require.Equal(t, budget/4/8192, d.Stats().Entries)
	d.Settle()
	require.Len(t, files(t, path), budget/4/8192)
}

// TestTemporaryFileIsLeft: a temporary file that could not be removed does not prevent the next
// segment from being stored, nor make a shorter one longer.
func TestTemporaryFileIsLeft(t *testing.T) {
	path := tier.EmptyFolder(t)
	d := openDisk(t, tier.DiskOptions{Path: path, Retry: time.Hour})
	require.NoError(t, os.WriteFile(filepath.Join(path, "segment.new"), make([]byte, 64<<10), 0o600))
	require.True(t, d.Put(small(1, 10<<10)))
	d.Settle()
	require.Zero(t, d.Stats().Failed)
	stored := files(t, path)
	require.Len(t, stored, 1)
	info, err := os.Stat(stored[0])
	require.NoError(t, err)
	require.Less(t, info.Size(), int64(16<<10))
	require.NoError(t, d.Close())
}

// TestFullDisk: a full file system disables writes. A few of the oldest entries are evicted, so
// that the next attempt finds room. The other entries are served.
func TestFullDisk(t *testing.T) {
	path := t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", path).CombinedOutput(); err != nil {
		t.Skipf("cannot mount a small file system: %v: %s", err, out)
	}
	defer func() { require.NoError(t, exec.Command("umount", "-l", path).Run()) }()
	d := openDisk(t, tier.DiskOptions{Path: path, Retry: time.Hour})
	const before, each = 64, 10 << 10 // 12 KiB each on disk, with their headers
	for i := range before {
		require.True(t, d.Put(small(i, each)))
	}
	written(t, d, before)
	_ = os.WriteFile(filepath.Join(path, "filler"), make([]byte, 4<<20), 0o600) // as much as fits
	next := before
	for ; !d.Stats().Disabled; next++ { // the first ones may use blocks that the filler has left
		require.True(t, d.Put(small(next, each)))
		d.Settle()
	}
	require.EqualValues(t, 1, d.Stats().Failed)
	require.False(t, d.Put(small(next, each)), "it is disabled")
	evicted := int(d.Stats().Evicted)
	require.InDelta(t, 3, evicted, 1, "a part, and the size of the segment that found no room")
	for i := range before {
		s := small(i, each)
		view, ok := d.Get(s.Key, s.Version, true)
		require.Equal(t, i >= evicted, ok, "entry %d", i)
		if ok {
			view.Release()
		}
	}
	d.Pass()
	stored := d.Stats().Entries
	require.True(t, d.Put(small(next, each)))
	written(t, d, stored+1)
	require.False(t, d.Stats().Disabled)
	require.NoError(t, d.Close())
}

// writerEnv names the folder that a helper process writes to until it is killed.
const writerEnv = "CACHE_TEST_WRITER"

// The helper process writes killedFiles files of several sizes in turn, with a budget of killedMax
// bytes, which is half of their total size.
const (
	killedFiles = 40
	killedMax   = 5 << 20
)

func killedContent(i int) (string, []byte) {
	name := fmt.Sprintf("group1/M00/00/%02X/killed", i)
	return name, cachetest.Content(name, int64(1+i*i*500))
}

func writeForEver(path string) {
	d, err := tier.OpenDisk(tier.DiskOptions{Path: path, Max: killedMax})
	if err != nil {
		panic(err)
	}
	var segments []*tier.Segment
	for i := range killedFiles {
		name, content := killedContent(i)
		segments = append(segments, cachetest.Segment(name, 0, content))
	}
	fmt.Println("ready")
	for {
		for i, s := range segments {
			d.Put(s)
			if i%7 == 3 {
				d.Purge(tier.MatchFile(segments[i-2].File))
			}
		}
		d.Settle()
	}
}

// TestKilled: after a process is killed while it writes, again and again, the next one reads no
// wrong byte.
func TestKilled(t *testing.T) {
	path := tier.EmptyFolder(t)
	found := 0
	for round := range 4 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), writerEnv+"="+path)
		cmd.Stderr = os.Stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // ends with this process
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		t.Cleanup(func() { _ = cmd.Process.Kill() }) // the process may have ended
		_, err = io.ReadFull(out, make([]byte, len("ready")))
		require.NoError(t, err)
		eventually.True(t, func() bool {
			stored, err := filepath.Glob(filepath.Join(path, "*", "*.seg"))
			return err == nil && len(stored) > 2
		})
		time.Sleep(time.Duration(round*14) * time.Millisecond)
		require.NoError(t, cmd.Process.Kill())
		_ = cmd.Wait() // the error is that of a killed process
		d := listed(t, openDisk(t, tier.DiskOptions{Path: path}))
		// Two files may have been about to be removed and no longer counted: an evicted one and a
		// purged one.
		require.LessOrEqual(t, d.Stats().Bytes, int64(killedMax+2*killedFiles*killedFiles*500))
		for i := range killedFiles {
			name, content := killedContent(i)
			s := cachetest.Segment(name, 0, content)
			view, ok := d.Get(s.Key, s.Version, true)
			if !ok {
				continue
			}
			got, err := cachetest.Read(view, 0, s.Length(), tier.SegmentSize)
			view.Release()
			require.NoError(t, err)
			require.True(t, bytes.Equal(content, got), name)
			found++
		}
		require.Zero(t, d.Stats().Corrupt, "a name stands for a whole file")
		require.NoError(t, d.Close())
	}
	t.Logf("%d segments found after 4 deaths", found)
	require.Greater(t, found, 4)
}

// TestReady: segments of an earlier process are misses until Ready is closed.
func TestReady(t *testing.T) {
	path := tier.EmptyFolder(t)
	s := cachetest.Segment("a", 0, cachetest.Content("a", 1000))
	d := openDisk(t, tier.DiskOptions{Path: path})
	require.True(t, d.Put(s))
	d.Settle()
	require.NoError(t, d.Close())
	ready := make(chan struct{})
	d = openDisk(t, tier.DiskOptions{Path: path, Ready: ready})
	_, held := d.Holds(s.Key)
	require.False(t, held)
	_, found := d.Get(s.Key, s.Version, true)
	require.False(t, found)
	close(ready)
	_, held = d.Holds(s.Key)
	require.True(t, held)
	view, found := d.Get(s.Key, s.Version, true)
	require.True(t, found)
	view.Release()
}
