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
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// MetricPrefix begins the name of every metric.
const MetricPrefix = "fdfs_gateway_"

// latencyBuckets reach from a response out of memory to a large download over a slow line, in
// seconds.
var latencyBuckets = []float64{
	.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300,
}

// Metrics counts requests for Prometheus.
type Metrics struct {
	Registry *prometheus.Registry

	requestsTotal  *prometheus.CounterVec // by code and source
	responseBytes  prometheus.Counter
	requestSeconds prometheus.Histogram
	ttfbSeconds    prometheus.Histogram
	openFiles      prometheus.Gauge
	sendfileBytes  prometheus.Counter
	abortedTotal   *prometheus.CounterVec // by reason
	rejectedTokens *prometheus.CounterVec // by reason
	rejectedAccess *prometheus.CounterVec // by reason

	byOutcome atomic.Pointer[map[outcome]prometheus.Counter] // of requestsTotal; replaced, never changed
}

// NewMetrics returns counters at zero in a new registry, with the collectors of the Go runtime and
// the process.
func NewMetrics() *Metrics {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	auto := promauto.With(registry)
	counter := func(name, help string) prometheus.Counter {
		return auto.NewCounter(prometheus.CounterOpts{Name: MetricPrefix + name, Help: help})
	}
	gauge := func(name, help string) prometheus.Gauge {
		return auto.NewGauge(prometheus.GaugeOpts{Name: MetricPrefix + name, Help: help})
	}
	histogram := func(name, help string) prometheus.Histogram {
		return auto.NewHistogram(prometheus.HistogramOpts{Name: MetricPrefix + name, Help: help,
			Buckets: latencyBuckets})
	}
	// The known reasons start at 0, so that the first event shows in rate().
	byReason := func(name, help string, reasons ...string) *prometheus.CounterVec {
		v := auto.NewCounterVec(prometheus.CounterOpts{Name: MetricPrefix + name, Help: help}, []string{"reason"})
		for _, reason := range reasons {
			v.WithLabelValues(reason)
		}
		return v
	}
	m := &Metrics{
		Registry: registry,
		requestsTotal: auto.NewCounterVec(prometheus.CounterOpts{Name: MetricPrefix + "requests_total",
			Help: "Requests with a response."}, []string{"code", "source"}),
		responseBytes:  counter("response_bytes_total", "Bytes of bodies sent, without headers."),
		requestSeconds: histogram("request_seconds", "From a request's head to its response's last byte."),
		ttfbSeconds:    histogram("ttfb_seconds", "From a request's head to its response's first byte."),
		openFiles:      gauge("open_files", "Files of this host's disks that are being sent."),
		sendfileBytes:  counter("sendfile_bytes_total", "Bytes of bodies sent by sendfile(2)."),
		abortedTotal: byReason("aborted_total", "Responses that ended early: the client left, it read too slowly, "+
			"or the file could not be read to its end.", "client", "slow", "file", "bug"),
		rejectedTokens: byReason("token_refused_total", "Requests whose anti-steal token was rejected.",
			"missing", "malformed", "expired", "mismatch"),
		rejectedAccess: byReason("access_refused_total", "Requests rejected by [access]: by the client's address, "+
			"its rate, or the referer.", deniedByAddress, deniedByRate, deniedByReferer),
	}
	m.byOutcome.Store(&map[outcome]prometheus.Counter{})
	return m
}

// responded counts a request whose response has ended.
func (m *Metrics) responded(r *request, bytes int64, firstByte time.Time) {
	m.count(outcome{r.ctx.Response.StatusCode(), r.source})
	m.responseBytes.Add(float64(bytes))
	seconds := time.Since(r.now).Seconds()
	m.requestSeconds.Observe(seconds)
	if !firstByte.IsZero() {
		seconds = firstByte.Sub(r.now).Seconds()
	}
	m.ttfbSeconds.Observe(seconds)
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
		more[o] = m.requestsTotal.WithLabelValues(strconv.Itoa(o.status), o.source)
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
	m.rejectedTokens.WithLabelValues(reason).Inc()
}
