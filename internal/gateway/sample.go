package gateway

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Totals are what a Metrics has counted until now, in sums over the labels.
type Totals struct {
	Requests    uint64 // answered
	Failed      uint64 // of these: with a status of 500 and above
	Refused     uint64 // of these: with a status from 400 to 499
	Hits        uint64 // of these: files from this host, its cache or another gateway, status below 400
	Fetched     uint64 // of these: files from another host, status below 400
	Bytes       uint64 // of bodies
	Connections int64  // open now
	// FirstByte counts answers by the seconds to their first byte: up to each of FirstByteBounds,
	// those below included, and in the end all.
	FirstByte []uint64
}

// FirstByteBounds returns the bounds of Totals.FirstByte, in seconds. The list must not be changed.
func FirstByteBounds() []float64 { return latencyBuckets }

// Totals reads the counts. It takes some 40 us: it is for a look every few seconds.
func (m *Metrics) Totals() Totals {
	var t Totals
	each(requestsTotal.of(m), func(d *dto.Metric) {
		n := uint64(d.GetCounter().GetValue())
		var status int
		var source string
		for _, label := range d.GetLabel() {
			if label.GetName() == "code" {
				status, _ = strconv.Atoi(label.GetValue())
			} else {
				source = label.GetValue()
			}
		}
		t.add(status, source, n)
	})
	each(responseBytes.of(m), func(d *dto.Metric) { t.Bytes = uint64(d.GetCounter().GetValue()) })
	each(openConns.of(m), func(d *dto.Metric) { t.Connections = int64(d.GetGauge().GetValue()) })
	each(ttfbSeconds.of(m), func(d *dto.Metric) {
		for _, bucket := range d.GetHistogram().GetBucket() {
			t.FirstByte = append(t.FirstByte, bucket.GetCumulativeCount())
		}
		t.FirstByte = append(t.FirstByte, d.GetHistogram().GetSampleCount())
	})
	return t
}

func (t *Totals) add(status int, source string, n uint64) {
	t.Requests += n
	switch {
	case status >= 500:
		t.Failed += n
		return
	case status >= 400:
		t.Refused += n
		return
	}
	switch source {
	case sourceLocal, sourceMemory, sourceDisk, sourcePeer:
		t.Hits += n
	case sourceOrigin:
		t.Fetched += n
	}
}

// each calls f with every metric of a collector.
func each(c prometheus.Collector, f func(*dto.Metric)) {
	metrics := make(chan prometheus.Metric)
	go func() {
		defer close(metrics)
		c.Collect(metrics)
	}()
	for metric := range metrics {
		var d dto.Metric
		if metric.Write(&d) == nil { // it never fails for these kinds
			f(&d)
		}
	}
}
