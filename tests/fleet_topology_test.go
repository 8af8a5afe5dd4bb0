package tests

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"fastdfs-gateway/internal/testing/redistest"
	"fastdfs-gateway/tests/crowd"

	"github.com/stretchr/testify/require"
)

// TestFleetFailover: while the master of a Sentinel set, or the master of the fleet's slot in a
// Cluster, is killed and replaced under load, no client gets a wrong byte or an error, and purges
// reach all again afterwards.
func TestFleetFailover(t *testing.T) {
	t.Parallel()
	t.Run("sentinel", func(t *testing.T) {
		s := redistest.StartSentinel(t)
		failover(t, strings.Join(s.Addrs(), ", ")+"\nmode = sentinel\nmaster_name = "+s.MasterName, func() {
			s.KillMaster()
		})
	})
	t.Run("cluster", func(t *testing.T) {
		c := redistest.StartCluster(t)
		failover(t, strings.Join(c.Addrs(), ", ")+"\nmode = cluster", func() { c.KillMasterOf(fenceKey) })
	})
}

// failover kills a master while clients read files that are new and files that are not.
func failover(t *testing.T, redis string, kill func()) {
	t.Helper()
	f := startFleet(t, fleetOptions{gateways: 3, storages: 1, redisAt: redis})
	f.formed()
	f.recovers()
	warm, warmContent := f.put(100_000)
	f.warm(warm, warmContent)
	stop := make(chan struct{})
	var reports []crowd.Report // read when reading has ended
	var reading sync.WaitGroup
	reading.Go(func() {
		for {
			id, content := f.put(100_000)
			reports = append(reports, f.crowd(15, id, content), f.crowd(6, warm, warmContent))
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
	for reached == 0 || time.Now().Before(end) { // under load too
		purges++
		if status, text := f.gateways[purges%3].adminPost("/purge?prefix=group1",
			""); reachedAll(status == http.StatusOK, text) == nil {
			reached++
		}
		require.Less(t, time.Since(end), 2*testTimeout, "purges reach all again")
		time.Sleep(50 * time.Millisecond)
	}
	close(stop)
	reading.Wait()
	answers := 0
	for _, r := range reports {
		requireWhole(t, r)
		answers += len(r)
	}
	t.Logf("%d whole answers; %d of %d purges have reached all", answers, reached, purges)
	f.recovers()
}
