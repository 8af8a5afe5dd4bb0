package status

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var start = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

// steady returns a sample of a gateway that serves 10 requests a second, one of which fails.
func steady(seconds int) Sample {
	n := uint64(seconds)
	return Sample{At: start.Add(time.Duration(seconds) * time.Second), Requests: 10 * n, Failed: n, Rejected: 2 * n,
		Hits: 6 * n, Fetched: 2 * n, Bytes: 1000 * n, Connections: int64(seconds), FirstByte: []uint64{5 * n, 9 * n,
			10 * n}}
}

func TestHistory(t *testing.T) {
	h := NewHistory([]float64{.001, .01})
	require.Empty(t, h.Traffic(steady(0)))

	h.Add(steady(0))
	early := h.Traffic(steady(2))
	require.Empty(t, early.Points, "too short to tell")
	require.InDelta(t, 10, early.Now.Requests, 1e-9)

	for i := 1; i <= 200; i++ {
		h.Add(steady(10 * i))
	}
	got := h.Traffic(steady(2007))
	require.Len(t, got.Points, 91, "of 15 minutes, and the step that has begun")
	require.Equal(t, steady(2007).At, got.Points[90].End)
	require.LessOrEqual(t, steady(2007).At.Sub(got.Points[0].End), Span)
	for _, p := range append(got.Points, got.Now, got.Minute) {
		require.InDelta(t, 10, p.Requests, 1e-9)
		require.InDelta(t, 1, p.Failed, 1e-9)
		require.InDelta(t, 2, p.Rejected, 1e-9)
		require.InDelta(t, 1000, p.Bytes, 1e-9)
		require.InDelta(t, .75, p.HitRatio, 1e-9)
		require.InDelta(t, .001, p.P50, 1e-9)
		require.InDelta(t, .01, p.P99, .0021)
	}
	require.Equal(t, 7*time.Second, got.Now.End.Sub(got.Now.Begin))
	require.Equal(t, 67*time.Second, got.Minute.End.Sub(got.Minute.Begin))
}

// TestHistoryWithoutTraffic: values without data are NaN, and a count that restarts at 0 makes no
// negative rate.
func TestHistoryWithoutTraffic(t *testing.T) {
	h := NewHistory([]float64{.001, .01})
	h.Add(steady(100))
	idle := steady(100)
	idle.At = idle.At.Add(Step)
	h.Add(idle)
	anew := Sample{At: idle.At.Add(Step)}
	for _, p := range h.Traffic(anew).Points {
		require.Zero(t, p.Requests)
		require.True(t, math.IsNaN(p.HitRatio))
		require.True(t, math.IsNaN(p.P50))
	}
}

// TestQuantile: quantiles are computed as by histogram_quantile of Prometheus.
func TestQuantile(t *testing.T) {
	h := NewHistory([]float64{1, 2, 4})
	for _, c := range []struct {
		counts []uint64
		q      float64
		want   float64
	}{
		{[]uint64{0, 100, 100, 100}, .5, 1.5},
		{[]uint64{100, 100, 100, 100}, .5, .5},
		{[]uint64{50, 50, 100, 100}, .75, 3},
		{[]uint64{0, 0, 0, 10}, .99, 4},
	} {
		require.InDelta(t, c.want, h.quantile(Sample{FirstByte: make([]uint64, 4)}, Sample{FirstByte: c.counts}, c.q),
			1e-9)
	}
}
