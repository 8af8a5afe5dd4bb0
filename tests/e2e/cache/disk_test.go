package cache

import (
	"os"
	"strings"
	"testing"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/fdfstest"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestCacheSurvives: after kill -9 a gateway serves from its disk what it had, without asking a
// storage for content, and what was torn meanwhile is fetched again: no wrong byte comes out.
func TestCacheSurvives(t *testing.T) {
	t.Parallel()
	const size = 6 << 20
	f := e2e.StartFleet(t, e2e.FleetOptions{Gateways: 1, Disk: true, Cache: []string{"memory_max = 16MB"}})
	m := f.Gateways[0]
	id, content := f.Put(size)
	small, smallContent := f.Put(5000)
	f.Warm(id, content)
	f.Warm(small, smallContent)
	m.OnDisk(t, 3)
	m.Kill()
	m.Start(t)
	f.ForgetCounts()
	e2e.RequireWhole(t, f.Stampede(50, id, content))
	e2e.RequireWhole(t, f.Stampede(50, small, smallContent))
	require.Zero(t, f.Cluster.Downloads(id).Downloads+f.Cluster.Downloads(small).Downloads, "it was on the disk")
	require.NotZero(t, m.Metric(`fdfs_gateway_cache_hits_total{tier="disk"}`))

	m.Kill()
	files := m.SegmentFiles(t)
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
	m.Start(t)
	e2e.RequireHonest(t, f.Stampede(50, id, content))
	e2e.RequireWhole(t, f.Stampede(50, id, content))
	e2e.RequireWhole(t, f.Stampede(50, small, smallContent))
	require.NotZero(t, f.Cluster.Downloads(id).Downloads, "what was torn came from a storage")
}

// TestCachePurgedWhileDown: what was purged while a gateway was down does not come back from its
// disk.
func TestCachePurgedWhileDown(t *testing.T) {
	t.Parallel()
	f := e2e.StartFleet(t, e2e.FleetOptions{Gateways: 2, Disk: true})
	c := f.PutChanging()
	f.Warm(c.ID, c.Content)
	down := f.Gateways[1]
	down.OnDisk(t, 1)
	down.Kill()
	f.Change(c)
	eventually.True(t, func() bool { // where Redis is too slow to take it, no other gateway applies it
		status, text := f.Gateways[0].AdminPost("/purge?id="+c.ID.String(), "")
		return status == 200 || strings.Contains(text, down.Name())
	})
	down.Start(t)
	e2e.RequireWhole(t, f.Stampede(10, c.ID, c.Content))
}

// TestCacheBudgets: memory and disk stay within what they are given, and go on serving.
func TestCacheBudgets(t *testing.T) {
	t.Parallel()
	memory, disk, files := 8<<20, 20<<20, 60
	f := e2e.StartFleet(t, e2e.FleetOptions{Gateways: 1, NoRedis: true, Disk: true,
		Cache: []string{"memory_max = 8MB", "disk_max = 20MB"}})
	m := f.Gateways[0]
	type one struct {
		id      fdfs.FileID
		content []byte
	}
	var all []one
	for i := range files {
		id, content := f.Put((i%5 + 1) * 200 << 10)
		all = append(all, one{id, content})
	}
	for range 2 {
		for _, x := range all {
			e2e.RequireWhole(t, f.Stampede(2, x.id, x.content))
			used := m.Metric(`fdfs_gateway_cache_bytes{tier="memory"}`) +
				m.Metric(`fdfs_gateway_cache_bytes{tier="records"}`)
			require.LessOrEqual(t, used, 1.05*float64(memory))
			require.LessOrEqual(t, m.Metric(`fdfs_gateway_cache_bytes{tier="disk"}`), 1.05*float64(disk))
		}
	}
	require.NotZero(t, m.Metric(`fdfs_gateway_cache_evictions_total{tier="memory"}`))
	eventually.True(t, func() bool { return m.Metric(`fdfs_gateway_cache_evictions_total{tier="disk"}`) > 0 })
	f.Fault(fdfstest.Faults{Hang: true})
	last := all[len(all)-1]
	e2e.RequireWhole(t, f.Stampede(2, last.id, last.content))
	f.Fault()
}

// corrupt changes a byte in the middle of a file on its disk, and takes the file out of the page
// cache.
func corrupt(t *testing.T, path string) {
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

// TestCacheCorruptedWhileUsed: what changes on the disk under a running gateway is noticed when it
// comes from the disk again: the clients get right bytes, which come from a storage, and what is
// stored then is used.
func TestCacheCorruptedWhileUsed(t *testing.T) {
	t.Parallel() // some of the time goes by while nothing happens
	f := e2e.StartFleet(t, e2e.FleetOptions{Gateways: 1, NoRedis: true, Disk: true, Cache: []string{"memory_max = 0"}})
	m := f.Gateways[0]
	id, content := f.Put(6 << 20)
	f.Warm(id, content)
	m.OnDisk(t, 2)
	f.Settled()
	f.Warm(id, content)
	require.NotZero(t, m.Metric(`fdfs_gateway_cache_hits_total{tier="disk"}`))
	f.ForgetCounts()
	time.Sleep(1100 * time.Millisecond) // the kernel is asked once a second what it has evicted
	for _, path := range m.SegmentFiles(t) {
		corrupt(t, path)
	}
	e2e.RequireWhole(t, f.Stampede(20, id, content))
	require.NotZero(t, f.Cluster.Downloads(id).Downloads, "it came from a storage")
	require.EqualValues(t, 2, m.Metric("fdfs_gateway_cache_disk_damaged_total"))
	m.OnDisk(t, 2)
	f.Settled()
	f.ForgetCounts()
	e2e.RequireWhole(t, f.Stampede(20, id, content))
	require.Zero(t, f.Cluster.Downloads(id).Downloads, "it is on the disk again")
	require.EqualValues(t, 2, m.Metric("fdfs_gateway_cache_disk_damaged_total"))
}
