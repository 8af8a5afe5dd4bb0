package app

import (
	"context"
	"strconv"
	"time"

	"fastdfs-gateway/internal/cache"
	"fastdfs-gateway/internal/fleet"
	"fastdfs-gateway/internal/gateway"

	"github.com/prometheus/client_golang/prometheus"
)

// waits measures how long locks of other gateways were waited for.
type waits struct{ histogram prometheus.Histogram }

func newWaits() waits {
	return waits{prometheus.NewHistogram(prometheus.HistogramOpts{Name: "fdfs_gateway_lock_wait_seconds",
		Help:    "How long locks of other gateways were waited for.",
		Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}})}
}

// Observe notes one wait.
func (w waits) Observe(d time.Duration) { w.histogram.Observe(d.Seconds()) }

// watchCache shows the figures of the cache and the fleet.
func (i *App) watchCache() {
	i.metrics.Registry.MustRegister(i.waits.histogram)
	var figures []gateway.Figure
	if i.cache != nil {
		figures = cacheFigures(i.cache.Stats)
	}
	stats := func() fleet.Stats { return fleet.Stats{} } // without Redis nobody is asked, and nothing is up
	if i.fleet != nil {
		stats = i.fleet.Stats
	}
	i.metrics.Watch(append(figures, fleetFigures(stats)...)...)
}

// cacheFigures are those of the cache.
func cacheFigures(stats func() cache.Stats) []gateway.Figure {
	tier := func(name string) prometheus.Labels { return prometheus.Labels{"tier": name} }
	const bytes, evictions, hits = "Bytes in the cache, bookkeeping included.", "Segments that had to make room for others.", "Segments of answers that were in the cache."
	return []gateway.Figure{
		gateway.Gauge("cache_bytes", bytes, tier("memory"), func() float64 { return float64(stats().Memory.Bytes) }),
		gateway.Gauge("cache_bytes", bytes, tier("disk"), func() float64 { return float64(stats().Disk.Bytes) }),
		gateway.Gauge("cache_bytes", bytes, tier("records"), func() float64 { return float64(stats().RecordBytes) }),
		gateway.Counter("cache_evictions_total", evictions, tier("memory"), func() float64 { return float64(stats().Memory.Evicted) }),
		gateway.Counter("cache_evictions_total", evictions, tier("disk"), func() float64 { return float64(stats().Disk.Evicted) }),
		gateway.Counter("cache_hits_total", hits, tier("memory"), func() float64 { return float64(stats().MemoryHits) }),
		gateway.Counter("cache_hits_total", hits, tier("disk"), func() float64 { return float64(stats().DiskHits) }),
		gateway.Counter("cache_misses_total", "Segments of answers that were not in the cache, or just on their way.", nil, func() float64 { return float64(stats().Misses) }),
		gateway.Counter("cache_disk_failures_total", "Times that the disk of the cache failed and was left alone for a while.", nil, func() float64 { return float64(stats().Disk.Failed) }),
		gateway.Counter("cache_disk_skipped_total", "Segments that were not stored on disk, because it failed or was too slow.", nil, func() float64 { return float64(stats().Disk.Skipped) }),
		gateway.Counter("cache_disk_damaged_total", "Segments on disk that were not what was written.", nil, func() float64 { return float64(stats().Disk.Damaged) }),
		gateway.Gauge("cache_flights", "Segments that are being fetched.", nil, func() float64 { return float64(stats().Flights) }),
		gateway.Counter("stale_served_total", "Answers from expired entries.", nil, func() float64 { return float64(stats().StaleServed) }),
		gateway.Counter("peer_bytes_total", "Bytes from other gateways.", nil, func() float64 { return float64(stats().PeerBytes) }),
		gateway.Counter("peer_served_total", "Segments that other gateways have asked for and got.", nil, func() float64 { return float64(stats().PeerServed) }),
	}
}

// fleetFigures are those of the fleet.
func fleetFigures(stats func() fleet.Stats) []gateway.Figure {
	result := func(name string) prometheus.Labels { return prometheus.Labels{"result": name} }
	const acquire = "Locks that were asked for, to refresh an entry for the whole fleet."
	figures := []gateway.Figure{
		gateway.Counter("lock_acquire_total", acquire, result("ok"), func() float64 { return float64(stats().Acquired) }),
		gateway.Counter("lock_acquire_total", acquire, result("held"), func() float64 { return float64(stats().Held) }),
		gateway.Counter("lock_acquire_total", acquire, result("error"), func() float64 { return float64(stats().Failed) }),
		gateway.Counter("lock_lost_total", "Locks that were lost before they were given back.", nil, func() float64 { return float64(stats().Lost) }),
		gateway.Gauge("redis_up", "1 while Redis serves; 0 also where none is configured.", nil, func() float64 {
			if stats().Up {
				return 1
			}
			return 0
		}),
	}
	for _, how := range []string{"ok", "not_here", "changed", "broken", "unreachable", "refused"} {
		figures = append(figures, gateway.Counter("peer_fetches_total", "Segments read from other gateways, by how it went.", result(how),
			func() float64 { return float64(stats().PeerFetches[how]) }))
	}
	for _, code := range []int{200, 400, 404, 405, 409, 503} {
		figures = append(figures, gateway.Counter("peer_requests_total", "Requests of other gateways, by status.",
			prometheus.Labels{"code": strconv.Itoa(code)}, func() float64 { return float64(stats().PeerRequests[code]) }))
	}
	return figures
}

// cacheAdmin is what the admin listener does with the cache.
func (i *App) cacheAdmin() *gateway.CacheAdmin {
	return &gateway.CacheAdmin{
		Purge: i.purge,
		Prefetch: func(ctx context.Context, id string) (int64, string, error) {
			return i.server.Handler().Prefetch(ctx, id, time.Now())
		},
		Locks: func(ctx context.Context) any {
			if i.fleet == nil {
				return []fleet.LockInfo{}
			}
			return i.fleet.Locks(ctx)
		},
		Status: i.status,
	}
}

// status is what /status.json shows: objects of names and values.
func (i *App) status(ctx context.Context) any {
	sections := map[string]any{
		"gateway":  map[string]any{"version": i.version, "started": i.started.Format(time.RFC3339), "up_seconds": int64(time.Since(i.started).Seconds()), "configuration": i.path, "ready": readyText(i.ready())},
		"process":  i.confined.status(),
		"files":    i.fileStats(),
		"storages": i.storageStats(),
	}
	if i.cache != nil {
		sections["cache"] = i.cache.Stats()
	}
	if i.fleet != nil {
		sections["fleet"] = i.fleet.Stats()
		if list, err := i.fleet.Gateways(ctx); err == nil {
			names := map[string]string{}
			for _, g := range list {
				names[g.Name] = "away since " + g.LastSeen.Format(time.RFC3339)
				if g.Live {
					names[g.Name] = "live"
				}
			}
			sections["gateways"] = names
		}
	}
	return sections
}

func readyText(err error) string {
	if err != nil {
		return err.Error()
	}
	return "yes"
}
