package gateway

import (
	"testing"

	"fastdfs-gateway/internal/admin/status"

	"github.com/stretchr/testify/require"
)

// TestSample: a sample contains the sums of the metrics.
func TestSample(t *testing.T) {
	m := NewMetrics()
	first := m.Sample()
	require.Equal(t, status.Sample{At: first.At, FirstByte: make([]uint64, len(latencyBuckets)+1)}, first)
	for _, o := range []outcome{{200, sourceMemory}, {206, sourceOrigin}, {200, sourceOrigin}, {404, sourceNone},
		{502, sourceOrigin}, {302, sourceRedirect}, {200, sourceLocal}, {200, sourceLocal}} {
		m.count(o)
	}
	m.responseBytes.Add(1000)
	m.ttfbSeconds.Observe(.0003)
	m.ttfbSeconds.Observe(1000)
	got := m.Sample()
	require.Len(t, got.FirstByte, len(FirstByteBounds())+1)
	require.Equal(t, []uint64{0, 0, 1, 1}, got.FirstByte[:4])
	require.Equal(t, []uint64{1, 2}, got.FirstByte[len(latencyBuckets)-1:])
	got.FirstByte = nil
	require.Equal(t, status.Sample{At: got.At, Requests: 8, Failed: 1, Rejected: 1, Hits: 3, Fetched: 2, Bytes: 1000},
		got)
}
