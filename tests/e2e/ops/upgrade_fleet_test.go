package ops

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/fdfstest"

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
	u := &upgraded{t, m.PID(), m.Log}

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
	u.upgrade()
	f.Warm(id, content)
	f.Warm(small, smallContent)
	require.Zero(t, f.Cluster.Downloads(id).Downloads+f.Cluster.Downloads(small).Downloads)
	require.NotZero(t, m.Metric(`fdfs_gateway_cache_hits_total{tier="disk"}`))
	require.NotContains(t, u.log(), "disk cannot be used")

	status, text := f.Gateways[1].AdminPost("/purge?id="+small.String(), "")
	require.Equal(t, http.StatusOK, status, text)
	require.True(t, asked().Close)
	require.Equal(t, 1, f.Cluster.Downloads(small).Downloads, "the old process had it in memory")
	body, err := io.ReadAll(download.Body)
	require.NoError(t, err)
	require.True(t, bytes.Equal(content, body))
	u.logged(1, "msg=stopped")
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

// TestUpgradeForgets: without a fleet, a process that was replaced frees most of its cache, and a
// later purge reaches it, too.
func TestUpgradeForgets(t *testing.T) {
	t.Parallel()
	f := e2e.StartFleet(t, e2e.FleetOptions{Gateways: 1, NoRedis: true, Storages: 1})
	m := f.Gateways[0]
	id, content := f.Put(5000)
	f.Warm(id, content)
	for range 24 {
		f.Warm(f.Put(e2e.Segment))
	}
	first := m.PID()
	memory := func() int { return e2e.MemoryOf(t, first, "VmRSS") }
	require.Greater(t, memory(), 24*e2e.Segment>>10)
	u := &upgraded{t, first, m.Log}
	c := m.Keep()
	ask := func() e2e.Response {
		a := c.Ask(e2e.Request(http.MethodGet, e2e.Path(id)))
		require.Equal(t, content, a.Body)
		require.Equal(t, 1, f.Cluster.Downloads(id).Downloads)
		return a
	}
	ask()
	u.upgrade()
	eventually.True(t, func() bool { return memory() < 24*e2e.Segment>>10 }, "the old process keeps little")
	u.upgrade()
	f.ForgetCounts()
	status, _ := m.AdminPost("/purge?all=1", "")
	require.Equal(t, http.StatusOK, status)
	require.True(t, ask().Close)
}

// TestUpgradeLetsCommandsEnd: a process that was replaced serves a command that has reached it to
// the end.
func TestUpgradeLetsCommandsEnd(t *testing.T) {
	t.Parallel()
	f := e2e.StartFleet(t, e2e.FleetOptions{Gateways: 1, NoRedis: true, Storages: 1})
	m := f.Gateways[0]
	cached, content := f.Put(1000)
	f.Warm(cached, content)
	f.Settled()
	hangs, _ := f.Put(1000)
	f.Fault(fdfstest.Faults{Hang: true})
	cmd := exec.Command(e2e.Binary, "prefetch", "-admin", m.AdminAddr, cached.String(), hangs.String())
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewReader(out)
	line, err := lines.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, cached.String()+" cached 1000\n", line)
	u := &upgraded{t, m.PID(), m.Log}
	u.upgrade()
	require.NotContains(t, u.log(), "msg=stopped")
	f.Fault()
	rest, err := io.ReadAll(lines)
	require.NoError(t, err)
	require.NoError(t, cmd.Wait())
	require.Equal(t, hangs.String()+" fetched 1000\ndone: 2 files, 0 failed\n", string(rest))
	u.logged(1, "msg=stopped")
}
