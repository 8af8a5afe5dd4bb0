package cache

import (
	"os"
	"strings"
	"testing"

	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/tests/e2e"

	"github.com/stretchr/testify/require"
)

// TestCacheSurvives: after kill -9 a gateway serves the segments on its disk without a download. It
// fetches damaged segments again, and serves no wrong byte.
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
		if i%2 == 0 { // without its end; the others are damaged in the middle
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

// TestCachePurgedWhileDown: a gateway does not serve content from its disk that was purged while
// the gateway was down.
func TestCachePurgedWhileDown(t *testing.T) {
	t.Parallel()
	f := e2e.StartFleet(t, e2e.FleetOptions{Gateways: 2, Disk: true})
	c := f.PutChanging()
	f.Warm(c.ID, c.Content)
	down := f.Gateways[1]
	down.OnDisk(t, 1)
	down.Kill()
	f.Change(c)
	eventually.True(t, func() bool { // if Redis is too slow to record the purge, no other gateway applies it
		status, text := f.Gateways[0].AdminPost("/purge?id="+c.ID.String(), "")
		return status == 200 || strings.Contains(text, down.Name())
	})
	down.Start(t)
	e2e.RequireWhole(t, f.Stampede(10, c.ID, c.Content))
}
