package cache

import (
	"fmt"
	"slices"
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

// TestCacheStaleIfError: after the time of stale_while_revalidate, an expired file is served while
// the storages fail, but only within the time of stale_if_error.
func TestCacheStaleIfError(t *testing.T) {
	t.Parallel()
	for allowed, status := range map[string]int{"1h": 200, "0": 502} {
		t.Run(allowed, func(t *testing.T) {
			f := e2e.StartFleet(t, e2e.FleetOptions{Gateways: 1,
				Cache: []string{"ttl = 1s", "stale_while_revalidate = 0", "stale_if_error = " + allowed}})
			id, content := f.Put(1000)
			f.Warm(id, content)
			time.Sleep(1200 * time.Millisecond)
			for _, s := range f.Cluster.Storages() {
				s.Kill()
			}
			resp := f.Gateways[0].Get(e2e.Path(id))
			require.Equal(t, status, resp.StatusCode)
			if status == 200 {
				require.Equal(t, "STALE", resp.Header.Get("X-Cache"))
				require.Equal(t, content, resp.Body)
			}
		})
	}
}

// TestCacheSaysWhere: X-Cache and the metrics distinguish a file that the gateway has fetched, has
// got from another gateway, or had in its cache. That holds with either gateway as the owner, and
// for small files too, whose fill may end before the handler looks at it.
func TestCacheSaysWhere(t *testing.T) {
	t.Parallel()
	f := e2e.StartFleet(t, e2e.FleetOptions{Gateways: 2, Storages: 1})
	for _, size := range []int{100, 100 << 10, 5 << 20} {
		for _, owner := range f.Gateways {
			require.NoError(t, f.Punctually(func() error { return saysWhere(f, size, owner) }), "%d bytes", size)
		}
	}
}

// saysWhere requests a new file of an owner twice from each of two gateways. Its error means an
// unexpected X-Cache.
func saysWhere(f *e2e.Fleet, size int, owner *e2e.Member) error {
	id, _ := f.PutOwnedBy(size, owner)
	sources, want := map[string]float64{"origin": 1, "peer": 1, "memory": 2}, []string{"MISS", "HIT", "PEER", "HIT"}
	if owner != f.Gateways[0] {
		sources, want = map[string]float64{"origin": 0, "peer": 1, "memory": 3}, []string{"PEER", "HIT", "HIT", "HIT"}
	}
	count := func(source string) float64 {
		return f.Metric(`fdfs_gateway_requests_total{code="200",source="` + source + `"}`)
	}
	all := func() (sum float64) {
		for source := range sources {
			sum += count(source)
		}
		return sum
	}
	before, asked := map[string]float64{}, all()
	for source := range sources {
		before[source] = count(source)
	}
	var said []string
	for _, m := range []*e2e.Member{f.Gateways[0], f.Gateways[0], f.Gateways[1], f.Gateways[1]} {
		got := m.Get(e2e.Path(id))
		if got.StatusCode == 200 {
			asked++
		}
		said = append(said, got.Header.Get("X-Cache"))
		f.Settled()
	}
	eventually.True(f.T, func() bool { return all() == asked }, "a response is counted when it is out")
	if !slices.Equal(said, want) {
		return fmt.Errorf("X-Cache was %q, want %q", said, want)
	}
	for source, n := range sources {
		require.Equal(f.T, before[source]+n, count(source), source)
	}
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
