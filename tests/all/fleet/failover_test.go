package fleet

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"fastdfs-gateway/internal/testing/redistest"
	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/stampede"

	"github.com/stretchr/testify/require"
)

// TestFleetFailover: while the master of a Sentinel set, or the master of the fleet's slot in a
// Cluster, is killed and replaced under load, no client gets a wrong byte or an error. Afterwards
// purges reach all gateways again. The gateways find their addresses by connections to these
// servers (advertise = auto).
func TestFleetFailover(t *testing.T) {
	t.Parallel()
	t.Run("sentinel", func(t *testing.T) {
		s := redistest.StartSentinel(t)
		failover(t, strings.Join(s.Addrs(), ", ")+"\nmode = sentinel\nmaster_name = "+redistest.MasterName, func() {
			s.KillMaster()
		})
	})
	t.Run("cluster", func(t *testing.T) {
		c := redistest.StartCluster(t)
		failover(t, strings.Join(c.Addrs(), ", ")+"\nmode = cluster", func() { c.KillMasterOf(fenceKey) })
	})
}

// failover kills a master while clients read cold and warm files.
func failover(t *testing.T, redis string, kill func()) {
	t.Helper()
	f := e2e.StartFleet(t, e2e.FleetOptions{Gateways: 3, Storages: 1, RedisAt: redis,
		Lines: []string{"[peer]", "advertise = auto"}})
	f.Formed()
	recovers(f)
	warm, warmContent := f.Put(100_000)
	f.Warm(warm, warmContent)
	stop := make(chan struct{})
	var reports []stampede.Report // to be read after the goroutine has ended
	var reading sync.WaitGroup
	reading.Go(func() {
		for {
			id, content := f.Put(100_000)
			reports = append(reports, f.Stampede(15, id, content), f.Stampede(6, warm, warmContent))
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	})
	kill()
	end := time.Now().Add(time.Second)
	purges, reached := 0, 0
	for reached == 0 || time.Now().Before(end) { // some purges must come under load
		purges++
		if status, text := f.Gateways[purges%3].AdminPost("/purge?prefix=group1",
			""); e2e.ReachedAll(status == http.StatusOK, text) == nil {
			reached++
		}
		require.Less(t, time.Since(end), 2*e2e.Timeout, "purges reach all again")
		time.Sleep(50 * time.Millisecond)
	}
	close(stop)
	reading.Wait()
	responses := 0
	for _, r := range reports {
		e2e.RequireWhole(t, r)
		responses += len(r)
	}
	t.Logf("%d whole responses; %d of %d purges have reached all", responses, reached, purges)
	recovers(f)
}
