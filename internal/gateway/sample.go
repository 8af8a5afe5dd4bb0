package gateway

import (
	"time"

	"fastdfs-gateway/internal/admin/status"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// FirstByteBounds returns the bounds of Sample.FirstByte in seconds. The slice must not be changed.
func FirstByteBounds() []float64 { return latencyBuckets }

// Sample returns the counts of requests until now, summed over the labels, in about 40 us.
func (m *Metrics) Sample() status.Sample {
	s := status.Sample{At: time.Now(), Bytes: uint64(read(m.responseBytes).GetCounter().GetValue())}
	for o, counter := range *m.byOutcome.Load() {
		addOutcome(&s, o, uint64(read(counter).GetCounter().GetValue()))
	}
	firstByte := read(m.ttfbSeconds).GetHistogram()
	for _, bucket := range firstByte.GetBucket() {
		s.FirstByte = append(s.FirstByte, bucket.GetCumulativeCount())
	}
	s.FirstByte = append(s.FirstByte, firstByte.GetSampleCount())
	return s
}

func addOutcome(s *status.Sample, o outcome, n uint64) {
	s.Requests += n
	switch {
	case o.status >= 500:
		s.Failed += n
	case o.status >= 400:
		s.Rejected += n
	case o.source == sourceOrigin:
		s.Fetched += n
	case o.source != sourceNone && o.source != sourceRedirect:
		s.Hits += n
	}
}

// read returns the value of a metric.
func read(m prometheus.Metric) *dto.Metric {
	d := new(dto.Metric)
	_ = m.Write(d) // Write never fails for these kinds
	return d
}
