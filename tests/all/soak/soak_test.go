package soak

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"fastdfs-gateway/internal/testing/redistest"
	"fastdfs-gateway/tests/fdfstest"
	"fastdfs-gateway/tests/lab"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
)

// world is the set of running processes: a gateway with a store, a fleet of two gateways without a
// store, the storages and Redis.
type world struct {
	t        *testing.T
	store    *storetest.Store
	cluster  *fdfstest.Cluster
	redis    *redistest.Server
	gateways []*node
	failures failures
	counts   counts
}

// node is a gateway and its name in the report.
type node struct {
	name string
	*lab.Gateway
}

// counts are the numbers of operations.
type counts struct {
	requests, cut, bytes                    atomic.Int64
	purges, reloads, kills, pauses, uploads atomic.Int64
}

func (c *counts) String() string {
	return fmt.Sprintf("%d requests, of which %d clients left early; %.1f GB of bodies compared; %d purges, "+
		"%d reloads, %d storage kills, %d pauses of Redis, %d uploads",
		c.requests.Load(), c.cut.Load(), float64(c.bytes.Load())/1e9, c.purges.Load(), c.reloads.Load(),
		c.kills.Load(), c.pauses.Load(), c.uploads.Load())
}

// maxFailures is the number of failures that are printed.
const maxFailures = 20

// failures collects wrong responses and failed operations.
type failures struct {
	mu   sync.Mutex // guards the fields below
	n    int
	list []string
}

func (f *failures) add(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.n++; len(f.list) < maxFailures {
		f.list = append(f.list, time.Now().UTC().Format(time.TimeOnly)+" "+fmt.Sprintf(format, args...))
	}
}

// Sizes of the tiers of a gateway. The files of the storages are larger together.
const (
	cacheMemory = "64MB"
	cacheDisk   = "96MB"
)

func start(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, store: storetest.New(t), redis: redistest.Start(t)}
	var err error
	w.cluster, err = fdfstest.Start(fdfstest.Options{Groups: []fdfstest.GroupSpec{{Name: remoteGroup, Count: 2}}})
	require.NoError(t, err)
	t.Cleanup(w.cluster.Close)
	g, err := lab.StartGateway(lab.GatewayOptions{Binary: binary, Dir: t.TempDir(),
		Config: w.store.Config("tracker_server = "+w.cluster.Trackers()[0], "connect_timeout = 2"),
		Cache:  []string{"memory_max = " + cacheMemory}})
	require.NoError(t, err)
	w.add("store", g)
	for _, disk := range []bool{false, true} {
		o := lab.GatewayOptions{Binary: binary, Dir: t.TempDir(), Trackers: w.cluster.Trackers(), Redis: w.redis.Addr(),
			Cache: []string{"memory_max = " + cacheMemory}}
		name := "fleet, memory"
		if disk {
			name = "fleet, disk"
			o.Cache = append(o.Cache, "disk_path = "+t.TempDir(), "disk_max = "+cacheDisk)
		}
		g, err := lab.StartGateway(o)
		require.NoError(t, err)
		w.add(name, g)
	}
	return w
}

// add adds a running gateway. At the end of the test its log must show no bug.
func (w *world) add(name string, g *lab.Gateway) {
	w.t.Cleanup(func() {
		g.Stop()
		if w.t.Failed() {
			w.t.Logf("end of the log of %s:\n%s", name, g.LogEnd())
		}
		require.NotContains(w.t, g.Log(), "BUG:")
	})
	w.gateways = append(w.gateways, &node{name, g})
}

// TestSoak: under mixed traffic and disturbances every response is right, and memory, descriptors
// and goroutines do not grow in the second half of the run.
func TestSoak(t *testing.T) {
	w := start(t)
	files := w.files()
	folder := *output
	if folder == "" {
		folder = t.TempDir()
	}
	ctx, cancel := context.WithTimeout(t.Context(), *duration)
	defer cancel()
	samples := newSampler(w.gateways)
	var running sync.WaitGroup
	for i := range clients {
		running.Go(func() { w.traffic(ctx, files, uint64(i)) })
	}
	running.Go(func() { w.disturb(ctx, files) })
	running.Go(func() { samples.run(ctx, *duration) })
	running.Wait()
	require.NoError(t, samples.err)
	require.NoError(t, os.WriteFile(filepath.Join(folder, "soak.csv"), samples.csv(), 0o600))
	t.Logf("%v: %v", *duration, &w.counts)
	require.Zero(t, w.failures.n, "wrong responses:\n%s", strings.Join(w.failures.list, "\n"))
	require.Positive(t, w.counts.requests.Load())
	if *duration >= time.Minute { // in a shorter run the caches are still being filled
		require.Empty(t, samples.growth())
	}
}
