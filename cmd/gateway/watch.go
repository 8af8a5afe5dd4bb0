package main

import (
	"context"
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

// figure is a number of the cache or the fleet under its name in the metrics, behind "fdfs_gateway_".
type figure struct {
	name, help string
	labels     prometheus.Labels
	gauge      bool // it goes up and down
	value      func() float64
}

// watchCache shows the figures of the cache and the fleet.
func (i *instance) watchCache() {
	i.metrics.Registry.MustRegister(i.waits.histogram)
	var figures []figure
	if i.cache != nil {
		figures = cacheFigures(i.cache.Stats)
	}
	stats := func() fleet.Stats { return fleet.Stats{} } // without Redis nobody is asked, and nothing is up
	if i.fleet != nil {
		stats = i.fleet.Stats
	}
	for _, f := range append(figures, fleetFigures(stats)...) {
		name := "fdfs_gateway_" + f.name
		if f.gauge {
			i.metrics.Registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: f.help, ConstLabels: f.labels}, f.value))
		} else {
			i.metrics.Registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: f.help, ConstLabels: f.labels}, f.value))
		}
	}
}

// cacheFigures are those of the cache.
func cacheFigures(stats func() cache.Stats) []figure {
	tier := func(name string) prometheus.Labels { return prometheus.Labels{"tier": name} }
	const bytes, evictions, hits = "Bytes in the cache, bookkeeping included.", "Segments that had to make room for others.", "Segments of answers that were in the cache."
	return []figure{
		{"cache_bytes", bytes, tier("memory"), true, func() float64 { return float64(stats().Memory.Bytes) }},
		{"cache_bytes", bytes, tier("disk"), true, func() float64 { return float64(stats().Disk.Bytes) }},
		{"cache_bytes", bytes, tier("records"), true, func() float64 { return float64(stats().RecordBytes) }},
		{"cache_evictions_total", evictions, tier("memory"), false, func() float64 { return float64(stats().Memory.Evicted) }},
		{"cache_evictions_total", evictions, tier("disk"), false, func() float64 { return float64(stats().Disk.Evicted) }},
		{"cache_hits_total", hits, tier("memory"), false, func() float64 { return float64(stats().MemoryHits) }},
		{"cache_hits_total", hits, tier("disk"), false, func() float64 { return float64(stats().DiskHits) }},
		{"cache_misses_total", "Segments of answers that were not in the cache, or just on their way.", nil, false, func() float64 { return float64(stats().Misses) }},
		{"cache_disk_failures_total", "Times that the disk of the cache failed and was left alone for a while.", nil, false, func() float64 { return float64(stats().Disk.Failed) }},
		{"cache_disk_skipped_total", "Segments that were not stored on disk, because it failed or was too slow.", nil, false, func() float64 { return float64(stats().Disk.Skipped) }},
		{"cache_disk_damaged_total", "Segments on disk that were not what was written.", nil, false, func() float64 { return float64(stats().Disk.Damaged) }},
		{"cache_flights", "Segments that are being fetched.", nil, true, func() float64 { return float64(stats().Flights) }},
		{"stale_served_total", "Answers from expired entries.", nil, false, func() float64 { return float64(stats().StaleServed) }},
		{"peer_bytes_total", "Bytes from other gateways.", nil, false, func() float64 { return float64(stats().PeerBytes) }},
		{"peer_served_total", "Segments that other gateways have asked for and got.", nil, false, func() float64 { return float64(stats().PeerServed) }},
	}
}

// fleetFigures are those of the fleet.
func fleetFigures(stats func() fleet.Stats) []figure {
	result := func(name string) prometheus.Labels { return prometheus.Labels{"result": name} }
	const acquire = "Locks that were asked for, to refresh an entry for the whole fleet."
	figures := []figure{
		{"lock_acquire_total", acquire, result("ok"), false, func() float64 { return float64(stats().Acquired) }},
		{"lock_acquire_total", acquire, result("held"), false, func() float64 { return float64(stats().Held) }},
		{"lock_acquire_total", acquire, result("error"), false, func() float64 { return float64(stats().Failed) }},
		{"lock_lost_total", "Locks that were lost before they were given back.", nil, false, func() float64 { return float64(stats().Lost) }},
		{"redis_up", "1 while Redis serves; 0 also where none is configured.", nil, true, func() float64 {
			if stats().Up {
				return 1
			}
			return 0
		}},
	}
	for _, how := range []string{"ok", "not_here", "changed", "broken", "unreachable", "refused"} {
		figures = append(figures, figure{"peer_fetches_total", "Segments read from other gateways, by how it went.", result(how), false,
			func() float64 { return float64(stats().PeerFetches[how]) }})
	}
	return figures
}

// cacheAdmin is what the admin listener does with the cache.
func (i *instance) cacheAdmin() *gateway.CacheAdmin {
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
func (i *instance) status(ctx context.Context) any {
	sections := map[string]any{
		"gateway":  map[string]any{"version": version, "started": i.started.Format(time.RFC3339), "up_seconds": int64(time.Since(i.started).Seconds()), "configuration": i.path, "ready": readyText(i.ready())},
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
