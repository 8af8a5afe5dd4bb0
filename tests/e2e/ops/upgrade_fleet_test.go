package ops

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/tests/e2e"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// watchMember reads the record of a gateway in Redis until stop is called, which returns the number
// of reads, and the number of those in which the record was missing or changed.
func watchMember(t *testing.T, addr, name string) (stop func() (looks, missing int)) {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	ctx := context.Background()
	record, err := rdb.HGet(ctx, "fdfs:{0}:members", name).Result()
	require.NoError(t, err)
	ended := make(chan struct{})
	var watching sync.WaitGroup
	looks, missing := 0, 0
	watching.Go(func() {
		for {
			select {
			case <-ended:
				return
			default:
			}
			looks++
			now, err := rdb.HGet(ctx, "fdfs:{0}:members", name).Result()
			seen, errSeen := rdb.ZScore(ctx, "fdfs:{0}:gateways", name).Result()
			if err != nil || errSeen != nil || now != record || seen == 0 {
				missing++
			}
		}
	})
	return func() (int, int) {
		close(ended)
		watching.Wait()
		require.NoError(t, rdb.Close())
		return looks, missing
	}
}

// TestUpgradeInFleet: the new process takes over the membership in the fleet without a gap, and the
// disk tier, so nothing is downloaded again. A later purge reaches the old process, too, which may
// still receive requests on open connections. Each process finds the address to advertise itself.
func TestUpgradeInFleet(t *testing.T) {
	t.Parallel()
	f := e2e.StartFleet(t, e2e.FleetOptions{Gateways: 2, Disk: true, Storages: 1,
		Lines: []string{"[peer]", "advertise = auto"}})
	m := f.Gateways[0]
	id, content := f.Put(9 << 20)
	small, smallContent := f.Put(5000)
	f.Warm(id, content)
	f.Warm(small, smallContent)
	m.OnDisk(t, e2e.SegmentsOf(len(content))+e2e.SegmentsOf(len(smallContent)))
	u := m.Upgrades()

	idle := m.Keep()
	asked := func() e2e.Response {
		a := idle.Ask(e2e.Request(http.MethodGet, e2e.Path(small)))
		require.Equal(t, smallContent, a.Body)
		return a
	}
	require.False(t, asked().Close)
	download, _ := m.Download(e2e.Path(id), "Connection: close")

	f.ForgetCounts()
	stop := watchMember(t, f.Redis.Addr(), m.Name())
	u.Upgrade()
	f.Warm(id, content)
	f.Warm(small, smallContent)
	require.Zero(t, f.Cluster.Downloads(id).Downloads+f.Cluster.Downloads(small).Downloads)
	require.NotZero(t, m.Metric(`fdfs_gateway_cache_hits_total{tier="disk"}`))
	require.NotContains(t, u.Log(), "disk cannot be used")

	status, text := f.Gateways[1].AdminPost("/purge?id="+small.String(), "")
	require.Equal(t, http.StatusOK, status, text)
	require.True(t, asked().Close)
	require.Equal(t, 1, f.Cluster.Downloads(small).Downloads, "the old process had it in memory")
	body, err := io.ReadAll(download.Body)
	require.NoError(t, err)
	require.True(t, bytes.Equal(content, body))
	u.Logged(1, "msg=stopped")
	require.Zero(t, f.Cluster.Downloads(id).Downloads, "the old process has read what was on disk")

	_, state := f.Gateways[1].AdminGet("/status.json")
	require.Equal(t, 2, strings.Count(state, `": "live"`), state)
	looks, missing := stop()
	require.Zero(t, missing, "of %d looks", looks)
	require.Greater(t, looks, 10)
	f.Warm(small, smallContent)
	eventually.True(t, func() bool { return len(m.SegmentFiles(t)) == e2e.SegmentsOf(len(content))+1 },
		"the new process writes to the disk")
}
