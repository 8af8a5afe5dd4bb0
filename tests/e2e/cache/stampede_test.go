package cache

import (
	"fmt"
	"testing"
	"time"

	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/fdfstest"

	"github.com/stretchr/testify/require"
)

// TestCacheStampede: many concurrent requests for a cold file cost the storages one download of
// each segment, with any number of gateways.
func TestCacheStampede(t *testing.T) {
	t.Parallel()
	const clients = 100
	for _, gateways := range []int{1, 3} {
		f := e2e.StartFleet(t, e2e.FleetOptions{Gateways: gateways, Storages: 1, Cache: []string{"memory_max = 512MB"}})
		for _, size := range []int{4 << 10, 6 << 20} {
			t.Run(fmt.Sprintf("%d gateways, %d bytes", gateways, size), func(t *testing.T) {
				require.NoError(t, f.Punctually(func() error { return readCold(t, f, clients, size) }))
			})
		}
	}
}

// readCold requests a cold file with many clients, and again when every gateway has it. Its error
// means that the cold file has cost too much.
func readCold(t *testing.T, f *e2e.Fleet, clients, size int) error {
	id, content := f.Put(size)
	f.Slow(200*time.Millisecond, 500*time.Millisecond, size)
	f.ForgetCounts()
	locks := f.Metric(`fdfs_gateway_lock_acquire_total{result="ok"}`)
	e2e.RequireWhole(t, f.Stampede(clients, id, content))
	n := f.Cluster.Downloads(id)
	taken := f.Metric(`fdfs_gateway_lock_acquire_total{result="ok"}`) - locks
	switch {
	case n.Downloads != e2e.SegmentsOf(size):
		return fmt.Errorf("%d downloads of %d segments", n.Downloads, e2e.SegmentsOf(size))
	case float64(n.Bytes) > 1.05*float64(size):
		return fmt.Errorf("%d bytes were fetched of %d", n.Bytes, size)
	case f.Questions() > 0:
		return fmt.Errorf("%d questions, where a download says all that there is to know", f.Questions())
	case taken > float64(3*len(f.Gateways)*e2e.SegmentsOf(size)):
		return fmt.Errorf("%v locks, where all waiters of a process should cost one call", taken)
	}
	f.Settled()
	f.Fault(fdfstest.Faults{Hang: true})
	r := f.Stampede(clients, id, content)
	e2e.RequireWhole(t, r)
	require.NotContains(t, e2e.XCaches(r), "MISS", "everybody has it now")
	f.Fault()
	return nil
}

// TestCacheSaysWhereAlone: without a fleet, the first response of a small file is a MISS and the
// second one a HIT, though its fill ends at once.
func TestCacheSaysWhereAlone(t *testing.T) {
	t.Parallel()
	f := e2e.StartFleet(t, e2e.FleetOptions{Gateways: 1, NoRedis: true})
	for range 20 {
		id, _ := f.Put(100)
		require.Equal(t, "MISS", f.Gateways[0].Get(e2e.Path(id)).Header.Get("X-Cache"))
		f.Settled()
		require.Equal(t, "HIT", f.Gateways[0].Get(e2e.Path(id)).Header.Get("X-Cache"))
	}
	require.Equal(t, 20.0, f.Metric("fdfs_gateway_cache_misses_total"))
	eventually.True(t, func() bool { return f.Metric(`fdfs_gateway_cache_hits_total{tier="memory"}`) == 20 })
}

// TestCacheMarked: a request that another server has redirected here, with the mark of the loop
// guard, is for the files of this host. It is never served from the cache.
func TestCacheMarked(t *testing.T) {
	t.Parallel()
	f := e2e.StartFleet(t, e2e.FleetOptions{Gateways: 1})
	id, content := f.Put(1000)
	f.Warm(id, content)
	require.Equal(t, 404, f.Gateways[0].Get(e2e.Path(id)+"?redirect=1").StatusCode)
	require.Equal(t, 200, f.Gateways[0].Get(e2e.Path(id)).StatusCode)
}
