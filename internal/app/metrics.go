package app

import (
	"strconv"
	"time"

	"fastdfs-gateway/internal/cache"
	"fastdfs-gateway/internal/fleet"
	"fastdfs-gateway/internal/gateway"
	"fastdfs-gateway/internal/httpserver"
	"fastdfs-gateway/internal/origin"
	"fastdfs-gateway/internal/process/panics"
	"fastdfs-gateway/internal/variant"
	"fastdfs-gateway/storage/client"
	"fastdfs-gateway/storage/local"

	"github.com/prometheus/client_golang/prometheus"
)

// counts are the counters of the components of a gateway. A component that a reload has made begins
// with new counters.
type counts struct {
	storages  client.Stats // CRCErrors includes those of files and cache
	files     local.FileCacheStats
	cache     *cache.Stats   // nil = there is no cache
	images    *variant.Stats // nil = there is no [image]
	fleet     fleet.Stats    // zero without Redis
	lostLines map[string]uint64
	server    httpserver.Stats
	origin    origin.Stats
	expiries  map[string]time.Time // of certificates, by name
}

// counts reads every component once.
func (a *App) counts() counts {
	p := a.components.Load()
	n := counts{storages: p.upstreams.storages.Stats(), files: p.files.Stats()}
	n.storages.CRCErrors += n.files.CRCErrors
	if a.cache != nil {
		stats := a.cache.Stats()
		n.cache = &stats
		n.storages.CRCErrors += stats.CRCErrors
	}
	if p.maker != nil {
		stats := p.maker.Stats()
		n.images = &stats
	}
	if a.fleet != nil {
		n.fleet = a.fleet.Stats()
	}
	n.lostLines, n.origin = a.logs.lost(), a.fetched.Stats()
	n.expiries, n.server = a.expiries(), a.server.Stats()
	return n
}

// expiries returns the ends of the certificates, by their first names. Of several certificates with
// one name it returns the earliest end.
func (a *App) expiries() map[string]time.Time {
	ends := map[string]time.Time{}
	for _, c := range a.certificates.Set().Certificates() {
		if end, ok := ends[c.Name()]; !ok || c.Expires().Before(end) {
			ends[c.Name()] = c.Expires()
		}
	}
	return ends
}

// collector shows counts as metrics: one snapshot a scrape. A new metric needs a line in Collect,
// and a counter in its component.
type collector func() counts

var _ prometheus.Collector = collector(nil)

// Describe implements prometheus.Collector.
func (c collector) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, ch) }

// Collect implements prometheus.Collector. The registry calls it in a new goroutine, in which a
// panic would end the process.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	defer panics.Contain("counting for the metrics")
	n, p := c(), page(ch)
	counter(p, "panics_total", "Panics that were contained: bugs.", panics.Total())
	for log, lost := range n.lostLines {
		counter(p, "log_lines_lost_total", "Log lines that could not be written.", lost, "log", log)
	}

	for name, end := range n.expiries {
		gauge(p, "certificate_expiry_timestamp_seconds", "End of a certificate, in seconds since 1970.", end.Unix(),
			"name", name)
	}

	gauge(p, "connections", "Open client connections.", n.server.Connections)
	for reason, rejected := range n.server.Rejected {
		counter(p, "connections_refused_total", "Connections rejected by a limit, and those of trusted proxies "+
			"without a PROXY protocol header.", rejected, "reason", reason)
	}
	for reason, evicted := range n.server.Evicted {
		counter(p, "connections_replaced_total", "Idle connections closed to make room for new ones.", evicted,
			"reason", reason)
	}

	f := &n.files
	counter(p, "file_cache_hits_total",
		"Files of this host that were kept open or in memory when they were asked for.", f.Hits)
	counter(p, "file_cache_misses_total", "Files of this host that were looked for on disk.", f.Misses)
	gauge(p, "file_cache_files", "Files that are kept open.", f.Files)
	gauge(p, "file_cache_bodies", "Files that are kept in memory.", f.Bodies)
	gauge(p, "file_cache_bytes", "Memory that these take.", f.Bytes)
	gauge(p, "store_descriptors", "Descriptors of this host's files that are open, kept or in use.", f.Descriptors)

	o := &n.origin
	const fetches = "Files asked for on other hosts."
	counter(p, "origin_fetches_total", fetches, o.Fetched, "result", "ok")
	counter(p, "origin_fetches_total", fetches, o.NotFound, "result", "not_found")
	counter(p, "origin_fetches_total", fetches, o.Timeouts, "result", "timeout")
	counter(p, "origin_fetches_total", fetches, o.Failed, "result", "error")
	counter(p, "origin_bytes_total", "Bytes of files that came from other hosts.", o.Bytes)
	s := &n.storages
	counter(p, "crc_errors_total", "Files whose content was not that of their CRC32.", s.CRCErrors+o.TrunkMismatches)
	counter(p, "origin_resumes_total", "Downloads that went on at another storage after theirs broke.", s.Resumes)
	counter(p, "origin_hedges_total", "Second requests because the first storage was slow.", s.Hedges)
	counter(p, "origin_wrong_answers_total",
		"Replies of another length, size or version than asked for.", s.WrongReplies)

	if n.cache != nil {
		p.cache(n.cache)
	}
	if n.images != nil {
		p.images(n.images)
	}
	p.fleet(&n.fleet)
}

// images shows the counts of the maker of variants.
func (p page) images(n *variant.Stats) {
	counter(p, "variants_made_total", "Variants of pictures that were made.", n.Made)
	counter(p, "variants_failed_total", "Variants that could not be made of their files.", n.Failed)
	counter(p, "variants_rejected_total", "Requests for variants for which the queue was full.", n.Rejected)
	const bytes = "Bytes of files of which variants were made, and of these."
	counter(p, "variants_bytes_total", bytes, n.BytesIn, "direction", "in")
	counter(p, "variants_bytes_total", bytes, n.BytesOut, "direction", "out")
	p.addMetric(prometheus.CounterValue, "variants_seconds_total", "Time to make variants.", n.Seconds, nil)
	gauge(p, "variants_waiting", "Variants that are being made, or wait for it.", n.Waiting)
}

// cache shows the counts of the cache of files of other hosts.
func (p page) cache(n *cache.Stats) {
	const bytes = "Bytes in the cache, bookkeeping included."
	gauge(p, "cache_bytes", bytes, n.Memory.Bytes, "tier", "memory")
	gauge(p, "cache_bytes", bytes, n.Disk.Bytes, "tier", "disk")
	gauge(p, "cache_bytes", bytes, n.RecordBytes, "tier", "records")
	const evictions = "Segments that had to make room for others."
	counter(p, "cache_evictions_total", evictions, n.Memory.Evicted, "tier", "memory")
	counter(p, "cache_evictions_total", evictions, n.Disk.Evicted, "tier", "disk")
	const hits = "Segments of responses that were in the cache."
	counter(p, "cache_hits_total", hits, n.MemoryHits, "tier", "memory")
	counter(p, "cache_hits_total", hits, n.DiskHits, "tier", "disk")
	counter(p, "cache_misses_total",
		"Segments of responses that were missing or still being fetched.", n.Misses)
	counter(p, "cache_disk_failures_total",
		"Times that the disk of the cache failed or hung, and was not used for a while.", n.Disk.Failed)
	counter(p, "cache_disk_skipped_total",
		"Segments that were not stored on disk, because it failed or was too slow.", n.Disk.Skipped)
	counter(p, "cache_disk_damaged_total", "Segments on disk that were not what was written.", n.Disk.Corrupt)
	gauge(p, "cache_flights", "Segments that are being fetched.", n.Fills)
	counter(p, "stale_served_total", "Responses from expired entries.", n.StaleServed)
	counter(p, "peer_bytes_total", "Bytes from other gateways.", n.PeerBytes)
	counter(p, "peer_served_total", "Segments sent to other gateways.", n.PeerServed)
}

// fleet shows the counts of the fleet.
func (p page) fleet(n *fleet.Stats) {
	const acquire = "Locks that were asked for, to refresh an entry for the whole fleet."
	counter(p, "lock_acquire_total", acquire, n.Acquired, "result", "ok")
	counter(p, "lock_acquire_total", acquire, n.Held, "result", "held")
	counter(p, "lock_acquire_total", acquire, n.Failed, "result", "error")
	counter(p, "lock_lost_total", "Locks that were lost before they were given back.", n.Lost)
	up := 0
	if n.Up {
		up = 1
	}
	gauge(p, "redis_up", "1 while Redis serves; 0 also where none is configured.", up)
	for _, result := range []string{"ok", "not_here", "not_found", "changed", "broken", "unreachable", "refused"} {
		counter(p, "peer_fetches_total",
			"Segments read from other gateways, by result.", n.PeerFetches[result], "result", result)
	}
	for _, code := range []int{200, 400, 404, 409, 421, 503} {
		counter(p, "peer_requests_total",
			"Requests of other gateways, by status.", n.PeerRequests[code], "code", strconv.Itoa(code))
	}
}

// newLockWait returns the histogram of the times of waits for leases of other gateways.
func newLockWait() prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    gateway.MetricPrefix + "lock_wait_seconds",
		Help:    "How long locks of other gateways were waited for.",
		Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
	})
}

// page receives the metrics of one scrape.
type page chan<- prometheus.Metric

// number is the type of a count.
type number interface {
	int | int64 | uint64
}

// counter shows a count that only rises. labels are names, each followed by its value.
func counter[N number](p page, name, help string, value N, labels ...string) {
	p.addMetric(prometheus.CounterValue, name, help, float64(value), labels)
}

// gauge shows a value that rises and falls.
func gauge[N number](p page, name, help string, value N, labels ...string) {
	p.addMetric(prometheus.GaugeValue, name, help, float64(value), labels)
}

func (p page) addMetric(kind prometheus.ValueType, name, help string, value float64, labels []string) {
	var names, values []string
	for n := 0; n+1 < len(labels); n += 2 {
		names, values = append(names, labels[n]), append(values, labels[n+1])
	}
	desc := prometheus.NewDesc(gateway.MetricPrefix+name, help, names, nil)
	p <- prometheus.MustNewConstMetric(desc, kind, value, values...)
}
