package tests

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/tests/fdfstest"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// diskPath is the folder of a gateway's disk tier.
func (m *member) diskPath() string {
	_, path, _ := strings.Cut(m.o.Cache[0], "disk_path = ")
	return path
}

// segmentFiles lists the stored segments.
func (m *member) segmentFiles(t *testing.T) (list []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(m.diskPath(), func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && strings.HasSuffix(d.Name(), ".seg") {
			list = append(list, path)
		}
		if errors.Is(err, fs.ErrNotExist) { // one that was written, and has its own name now
			return nil
		}
		return err
	}))
	return list
}

// onDisk waits until so many segments are stored.
func (m *member) onDisk(t *testing.T, segments int) {
	t.Helper()
	eventually.True(t, func() bool { return len(m.segmentFiles(t)) == segments })
}

// TestCacheSurvives: after kill -9 a gateway serves from its disk what it had, without asking a
// storage for content, and what was torn meanwhile is fetched again: no wrong byte comes out.
func TestCacheSurvives(t *testing.T) {
	t.Parallel()
	const size = 6 << 20
	f := startFleet(t, fleetOptions{gateways: 1, disk: true, cache: []string{"memory_max = 16MB"}})
	m := f.gateways[0]
	id, content := f.put(size)
	small, smallContent := f.put(5000)
	f.warm(id, content)
	f.warm(small, smallContent)
	m.onDisk(t, 3)
	m.Kill()
	m.start(t)
	f.forgetCounts()
	requireWhole(t, f.crowd(50, id, content))
	requireWhole(t, f.crowd(50, small, smallContent))
	require.Zero(t, f.cluster.Downloads(id).Downloads+f.cluster.Downloads(small).Downloads, "it was on the disk")
	require.NotZero(t, m.metric(`fdfs_gateway_cache_hits_total{tier="disk"}`))

	m.Kill()
	files := m.segmentFiles(t)
	require.Len(t, files, 3)
	for i, path := range files {
		info, err := os.Stat(path)
		require.NoError(t, err)
		if i%2 == 0 { // torn at its end, or in its middle
			require.NoError(t, os.Truncate(path, info.Size()*2/3))
			continue
		}
		file, err := os.OpenFile(path, os.O_WRONLY, 0)
		require.NoError(t, err)
		_, err = file.WriteAt(make([]byte, 64), info.Size()/2)
		require.NoError(t, err)
		require.NoError(t, file.Close())
	}
	m.start(t)
	requireHonest(t, f.crowd(50, id, content))
	requireWhole(t, f.crowd(50, id, content))
	requireWhole(t, f.crowd(50, small, smallContent))
	require.NotZero(t, f.cluster.Downloads(id).Downloads, "what was torn came from a storage")
}

// TestCachePurgedWhileDown: what was purged while a gateway was down does not come back from its
// disk.
func TestCachePurgedWhileDown(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleetOptions{gateways: 2, disk: true})
	c := f.putChanging()
	f.warm(c.id, c.content)
	down := f.gateways[1]
	down.onDisk(t, 1)
	down.Kill()
	f.change(c)
	eventually.True(t, func() bool { // where Redis is too slow to take it, no other gateway applies it
		status, text := f.gateways[0].adminPost("/purge?id="+c.id.String(), "")
		return status == 200 || strings.Contains(text, down.name())
	})
	down.start(t)
	requireWhole(t, f.crowd(10, c.id, c.content))
}

// TestCacheBudgets: memory and disk stay within what they are given, and go on serving.
func TestCacheBudgets(t *testing.T) {
	t.Parallel()
	memory, disk, files := 8<<20, 20<<20, 60
	f := startFleet(t, fleetOptions{gateways: 1, noRedis: true, disk: true,
		cache: []string{"memory_max = 8MB", "disk_max = 20MB"}})
	m := f.gateways[0]
	type one struct {
		id      fdfs.FileID
		content []byte
	}
	var all []one
	for i := range files {
		id, content := f.put((i%5 + 1) * 200 << 10)
		all = append(all, one{id, content})
	}
	for range 2 {
		for _, x := range all {
			requireWhole(t, f.crowd(2, x.id, x.content))
			used := m.metric(`fdfs_gateway_cache_bytes{tier="memory"}`) +
				m.metric(`fdfs_gateway_cache_bytes{tier="records"}`)
			require.LessOrEqual(t, used, 1.05*float64(memory))
			require.LessOrEqual(t, m.metric(`fdfs_gateway_cache_bytes{tier="disk"}`), 1.05*float64(disk))
		}
	}
	require.NotZero(t, m.metric(`fdfs_gateway_cache_evictions_total{tier="memory"}`))
	eventually.True(t, func() bool { return m.metric(`fdfs_gateway_cache_evictions_total{tier="disk"}`) > 0 })
	f.fault(fdfstest.Faults{Hang: true})
	last := all[len(all)-1]
	requireWhole(t, f.crowd(2, last.id, last.content))
	f.fault()
}

// damage changes a byte in the middle of a file on its disk, and takes the file out of the page
// cache.
func damage(t *testing.T, path string) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	defer file.Close()
	info, err := file.Stat()
	require.NoError(t, err)
	var b [1]byte
	_, err = file.ReadAt(b[:], info.Size()/2)
	require.NoError(t, err)
	_, err = file.WriteAt([]byte{^b[0]}, info.Size()/2)
	require.NoError(t, err)
	require.NoError(t, file.Sync())
	require.NoError(t, unix.Fadvise(int(file.Fd()), 0, 0, unix.FADV_DONTNEED))
	if n, _ := unix.Preadv2(int(file.Fd()), [][]byte{b[:]}, 0, unix.RWF_NOWAIT); n > 0 {
		t.Skip("SKIPPED: the file system of the temporary folder evicts nothing")
	}
}

// TestCacheDamagedWhileUsed: what changes on the disk under a running gateway is noticed when it
// comes from the disk again: the clients get right bytes, which come from a storage, and what is
// stored then is used.
func TestCacheDamagedWhileUsed(t *testing.T) {
	t.Parallel() // some of the time goes by while nothing happens
	f := startFleet(t, fleetOptions{gateways: 1, noRedis: true, disk: true, cache: []string{"memory_max = 0"}})
	m := f.gateways[0]
	id, content := f.put(6 << 20)
	f.warm(id, content)
	m.onDisk(t, 2)
	f.settled()
	f.warm(id, content)
	require.NotZero(t, m.metric(`fdfs_gateway_cache_hits_total{tier="disk"}`))
	f.forgetCounts()
	time.Sleep(1100 * time.Millisecond) // the kernel is asked once a second what it has evicted
	for _, path := range m.segmentFiles(t) {
		damage(t, path)
	}
	requireWhole(t, f.crowd(20, id, content))
	require.NotZero(t, f.cluster.Downloads(id).Downloads, "it came from a storage")
	require.EqualValues(t, 2, m.metric("fdfs_gateway_cache_disk_damaged_total"))
	m.onDisk(t, 2)
	f.settled()
	f.forgetCounts()
	requireWhole(t, f.crowd(20, id, content))
	require.Zero(t, f.cluster.Downloads(id).Downloads, "it is on the disk again")
	require.EqualValues(t, 2, m.metric("fdfs_gateway_cache_disk_damaged_total"))
}
