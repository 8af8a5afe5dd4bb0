package gateway

import (
	"errors"
	"maps"
	"strconv"
	"sync/atomic"
	"time"

	"fastdfs-gateway/antisteal"
	"fastdfs-gateway/internal/panics"
	"fastdfs-gateway/storage"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// Metrics counts what the gateway does, for Prometheus. Every name begins with fdfs_gateway_.
type Metrics struct {
	Registry *prometheus.Registry

	requests       *prometheus.CounterVec                         // by code, source
	counted        atomic.Pointer[map[outcome]prometheus.Counter] // those of requests that were used; never changed, only exchanged
	responseBytes  prometheus.Counter
	requestSeconds prometheus.Histogram
	ttfbSeconds    prometheus.Histogram
	connections    prometheus.Gauge
	refusedConns   *prometheus.CounterVec // by reason
	replacedConns  *prometheus.CounterVec // by reason
	openFiles      prometheus.Gauge
	sendfileBytes  prometheus.Counter
	aborted        *prometheus.CounterVec // by reason
	refusedTokens  *prometheus.CounterVec // by reason
	originFetches  *prometheus.CounterVec // by result
	originBytes    prometheus.Counter

	trunkMismatches atomic.Uint64 // trunk files of other hosts whose content was not that of their CRC32
}

// latencyBuckets reach from an answer out of memory to a large download over a slow line, in seconds.
var latencyBuckets = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}

// NewMetrics returns counters at zero in a registry of their own, with those of the Go runtime and the process.
func NewMetrics() *Metrics {
	m := &Metrics{Registry: prometheus.NewRegistry()}
	m.counted.Store(&map[outcome]prometheus.Counter{})
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: "fdfs_gateway_" + name, Help: help})
		m.Registry.MustRegister(c)
		return c
	}
	vector := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "fdfs_gateway_" + name, Help: help}, labels)
		m.Registry.MustRegister(c)
		return c
	}
	gauge := func(name, help string) prometheus.Gauge {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: "fdfs_gateway_" + name, Help: help})
		m.Registry.MustRegister(g)
		return g
	}
	histogram := func(name, help string) prometheus.Histogram {
		h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "fdfs_gateway_" + name, Help: help, Buckets: latencyBuckets})
		m.Registry.MustRegister(h)
		return h
	}
	m.requests = vector("requests_total", "Answered requests.", "code", "source")
	m.responseBytes = counter("response_bytes_total", "Bytes of bodies sent, without headers.")
	m.requestSeconds = histogram("request_seconds", "From a request's head to its answer's last byte.")
	m.ttfbSeconds = histogram("ttfb_seconds", "From a request's head to its answer's first byte.")
	m.connections = gauge("connections", "Open client connections.")
	m.refusedConns = vector("connections_refused_total", "Connections refused by a limit.", "reason")
	m.replacedConns = vector("connections_replaced_total", "Idle connections closed to make room for new ones.", "reason")
	m.openFiles = gauge("open_files", "Files of this host's disks that are being sent.")
	m.sendfileBytes = counter("sendfile_bytes_total", "Bytes of bodies sent by sendfile(2).")
	m.aborted = vector("aborted_total", "Answers that ended early: the client left, it read too slowly, or the file could not be read to its end.", "reason")
	m.refusedTokens = vector("token_refused_total", "Requests whose anti-steal token was refused.", "reason")
	m.originFetches = vector("origin_fetches_total", "Files asked for on other hosts.", "result")
	m.originBytes = counter("origin_bytes_total", "Bytes of files that came from other hosts.")
	for vector, values := range map[*prometheus.CounterVec][]string{ // at 0 from the start, so that the first event shows in rate()
		m.refusedConns: {overloaded.label, tooManyPerIP.label}, m.replacedConns: {overloaded.label, tooManyPerIP.label}, m.aborted: {"client", "slow", "file", "bug"},
		m.refusedTokens: {"missing", "malformed", "expired", "mismatch"}, m.originFetches: {"ok", "not_found", "timeout", "error"},
	} {
		for _, value := range values {
			vector.WithLabelValues(value)
		}
	}
	m.Watch(Counter("panics_total", "Panics that were contained: bugs.", nil, func() float64 { return float64(panics.Total()) }))
	m.Registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Figure is a number that is asked for when somebody looks at the metrics.
type Figure struct {
	name, help string // the name behind fdfs_gateway_
	labels     prometheus.Labels
	gauge      bool
	value      func() float64
}

// Counter is a figure that only rises. labels may be nil.
func Counter(name, help string, labels prometheus.Labels, value func() float64) Figure {
	return Figure{name, help, labels, false, value}
}

// Gauge is a figure that goes up and down. labels may be nil.
func Gauge(name, help string, labels prometheus.Labels, value func() float64) Figure {
	return Figure{name, help, labels, true, value}
}

// Watch shows figures that others keep.
func (m *Metrics) Watch(figures ...Figure) {
	for _, f := range figures {
		name := "fdfs_gateway_" + f.name
		if f.gauge {
			m.Registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: f.help, ConstLabels: f.labels}, f.value))
		} else {
			m.Registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: f.help, ConstLabels: f.labels}, f.value))
		}
	}
}

// CountLostLines shows how many lines a log has lost.
func (m *Metrics) CountLostLines(log string, lost func() uint64) {
	m.Watch(Counter("log_lines_lost_total", "Log lines that could not be written.", prometheus.Labels{"log": log}, func() float64 { return float64(lost()) }))
}

// WatchStorages shows the counts of the client that fetches by the FastDFS protocol. They begin anew when a reload exchanges it.
func (m *Metrics) WatchStorages(stats func() storage.Stats) {
	m.Watch(
		Counter("crc_errors_total", "Files whose content was not that of their CRC32.", nil, func() float64 {
			return float64(stats().CRCErrors + m.trunkMismatches.Load())
		}),
		Counter("origin_resumes_total", "Downloads that went on at another storage after theirs broke.", nil, func() float64 { return float64(stats().Resumes) }),
		Counter("origin_hedges_total", "Second requests because the first storage was slow.", nil, func() float64 { return float64(stats().Hedges) }),
		Counter("origin_wrong_answers_total", "Answers of another length, size or version than asked for.", nil, func() float64 { return float64(stats().WrongAnswers) }),
	)
}

// WatchFiles shows the counts of the cache of this host's files. They begin anew when a reload exchanges it.
func (m *Metrics) WatchFiles(stats func() storage.FileCacheStats) {
	m.Watch(
		Counter("file_cache_hits_total", "Files of this host that were kept open or in memory when they were asked for.", nil, func() float64 { return float64(stats().Hits) }),
		Counter("file_cache_misses_total", "Files of this host that were looked for on disk.", nil, func() float64 { return float64(stats().Misses) }),
		Gauge("file_cache_files", "Files that are kept open.", nil, func() float64 { return float64(stats().Files) }),
		Gauge("file_cache_bodies", "Files that are kept in memory.", nil, func() float64 { return float64(stats().Bodies) }),
		Gauge("file_cache_bytes", "Memory that these take.", nil, func() float64 { return float64(stats().Bytes) }),
		Gauge("store_descriptors", "Descriptors of this host's files that are open, kept or in use.", nil, func() float64 { return float64(stats().Descriptors) }),
	)
}

// answered counts a request whose answer is out.
func (m *Metrics) answered(r *request, bytes int64, firstByte time.Time) {
	m.count(outcome{r.ctx.Response.StatusCode(), r.source})
	m.responseBytes.Add(float64(bytes))
	seconds := time.Since(r.now).Seconds()
	m.requestSeconds.Observe(seconds)
	if !firstByte.IsZero() {
		seconds = firstByte.Sub(r.now).Seconds()
	}
	m.ttfbSeconds.Observe(seconds)
}

// outcome are the labels of requests. There are a few dozen of them.
type outcome struct {
	status int
	source string
}

// count adds to requests. Finding a counter by its labels costs more than counting, so those in use are kept at hand.
func (m *Metrics) count(o outcome) {
	known := m.counted.Load()
	counter, ok := (*known)[o]
	if !ok {
		counter = m.requests.WithLabelValues(codeText(o.status), o.source)
		more := maps.Clone(*known)
		more[o] = counter
		m.counted.CompareAndSwap(known, &more) // if somebody was faster, the next request will do it
	}
	counter.Inc()
}

// malformed counts a request that never became one: it was refused for its framing or its slowness.
func (m *Metrics) malformed(status int) {
	m.count(outcome{status, sourceNone})
}

// tokenRefused counts a refusal by antisteal's reasons.
func (m *Metrics) tokenRefused(err error) {
	reason := "mismatch"
	switch {
	case errors.Is(err, antisteal.ErrMissing):
		reason = "missing"
	case errors.Is(err, antisteal.ErrMalformed):
		reason = "malformed"
	case errors.Is(err, antisteal.ErrExpired):
		reason = "expired"
	}
	m.refusedTokens.WithLabelValues(reason).Inc()
}

var codeTexts = func() (table [600]string) {
	for code := range table {
		table[code] = strconv.Itoa(code)
	}
	return table
}()

func codeText(status int) string { return codeTexts[status] }
