package gateway

import (
	"errors"
	"maps"
	"strconv"
	"sync/atomic"
	"time"

	"fastdfs-gateway/antisteal"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// The metrics of requests and connections. Listed label values start at 0, so that the first event
// shows in rate().
var (
	requestsTotal  = vector("requests_total", "Requests with a response.", []string{"code", "source"})
	responseBytes  = counter("response_bytes_total", "Bytes of bodies sent, without headers.")
	requestSeconds = histogram("request_seconds", "From a request's head to its response's last byte.")
	ttfbSeconds    = histogram("ttfb_seconds", "From a request's head to its response's first byte.")
	openConns      = gauge("connections", "Open client connections.")
	rejectedConns  = vector("connections_refused_total", "Connections rejected by a limit.",
		[]string{"reason"}, overloaded.label, tooManyPerIP.label)
	replacedConns = vector("connections_replaced_total", "Idle connections closed to make room for new ones.",
		[]string{"reason"}, overloaded.label, tooManyPerIP.label)
	openFiles     = gauge("open_files", "Files of this host's disks that are being sent.")
	sendfileBytes = counter("sendfile_bytes_total", "Bytes of bodies sent by sendfile(2).")
	abortedTotal  = vector("aborted_total",
		"Responses that ended early: the client left, it read too slowly, or the file could not be read to its end.",
		[]string{"reason"}, "client", "slow", "file", "bug")
	rejectedTokens = vector("token_refused_total", "Requests whose anti-steal token was rejected.",
		[]string{"reason"}, "missing", "malformed", "expired", "mismatch")
)

// MetricPrefix begins the name of every metric.
const MetricPrefix = "fdfs_gateway_"

// latencyBuckets reach from a response out of memory to a large download over a slow line, in
// seconds.
var latencyBuckets = []float64{
	.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300,
}

// metric is the definition of one metric: an index into the collectors of a Metrics.
type metric[C prometheus.Collector] struct{ index int }

// definitions make the collectors of a Metrics.
var definitions []func() prometheus.Collector

func define[C prometheus.Collector](collector func() C) metric[C] {
	definitions = append(definitions, func() prometheus.Collector { return collector() })
	return metric[C]{len(definitions) - 1}
}

// of returns the collector of the metric in m.
func (d metric[C]) of(m *Metrics) C { return m.collectors[d.index].(C) }

func counter(name, help string) metric[prometheus.Counter] {
	o := prometheus.CounterOpts{Name: MetricPrefix + name, Help: help}
	return define(func() prometheus.Counter { return prometheus.NewCounter(o) })
}

func gauge(name, help string) metric[prometheus.Gauge] {
	o := prometheus.GaugeOpts{Name: MetricPrefix + name, Help: help}
	return define(func() prometheus.Gauge { return prometheus.NewGauge(o) })
}

func histogram(name, help string) metric[prometheus.Histogram] {
	o := prometheus.HistogramOpts{Name: MetricPrefix + name, Help: help, Buckets: latencyBuckets}
	return define(func() prometheus.Histogram { return prometheus.NewHistogram(o) })
}

// vector defines counters by labels. values are known values of a single label.
func vector(name, help string, labels []string, values ...string) metric[*prometheus.CounterVec] {
	o := prometheus.CounterOpts{Name: MetricPrefix + name, Help: help}
	return define(func() *prometheus.CounterVec {
		v := prometheus.NewCounterVec(o, labels)
		for _, value := range values {
			v.WithLabelValues(value)
		}
		return v
	})
}

// Metrics counts requests and connections for Prometheus.
type Metrics struct {
	Registry   *prometheus.Registry
	collectors []prometheus.Collector // by the index of their metric

	byOutcome atomic.Pointer[map[outcome]prometheus.Counter] // of requestsTotal; replaced, never changed
}

// NewMetrics returns counters at zero in a new registry, with the collectors of the Go runtime and
// the process.
func NewMetrics() *Metrics {
	m := &Metrics{Registry: prometheus.NewRegistry()}
	m.byOutcome.Store(&map[outcome]prometheus.Counter{})
	for _, collector := range definitions {
		m.collectors = append(m.collectors, collector())
	}
	m.Registry.MustRegister(m.collectors...)
	m.Registry.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// responded counts a request whose response has ended.
func (m *Metrics) responded(r *request, bytes int64, firstByte time.Time) {
	m.count(outcome{r.ctx.Response.StatusCode(), r.source})
	responseBytes.of(m).Add(float64(bytes))
	seconds := time.Since(r.now).Seconds()
	requestSeconds.of(m).Observe(seconds)
	if !firstByte.IsZero() {
		seconds = firstByte.Sub(r.now).Seconds()
	}
	ttfbSeconds.of(m).Observe(seconds)
}

// outcome holds the labels of a request. A few dozen combinations occur.
type outcome struct {
	status int
	source string
}

// count counts a request. A map caches the counters in use, since finding one by its labels costs
// more than counting.
func (m *Metrics) count(o outcome) {
	known := m.byOutcome.Load()
	for (*known)[o] == nil {
		more := maps.Clone(*known)
		more[o] = requestsTotal.of(m).WithLabelValues(strconv.Itoa(o.status), o.source)
		m.byOutcome.CompareAndSwap(known, &more) // or another request was faster
		known = m.byOutcome.Load()
	}
	(*known)[o].Inc()
}

// tokenRejected counts a rejected token by the error of antisteal.
func (m *Metrics) tokenRejected(err error) {
	reason := "mismatch"
	switch {
	case errors.Is(err, antisteal.ErrMissing):
		reason = "missing"
	case errors.Is(err, antisteal.ErrMalformed):
		reason = "malformed"
	case errors.Is(err, antisteal.ErrExpired):
		reason = "expired"
	}
	rejectedTokens.of(m).WithLabelValues(reason).Inc()
}
