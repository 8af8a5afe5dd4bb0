package status

import (
	"math"
	"slices"
	"sync"
	"time"
)

// Step is the interval of the samples, and Span the length of the history.
const (
	Step = 10 * time.Second
	Span = 15 * time.Minute
)

// samples is the number of samples in Span. The first one is the base of the first rate.
const samples = int(Span/Step) + 1

// Sample holds counts since the start. It does not change after Add.
type Sample struct {
	At          time.Time
	Requests    uint64 // with a response
	Failed      uint64 // of these: responses with a status of 500 and above
	Rejected    uint64 // of these: responses with a status from 400 to 499
	Fetched     uint64 // of these: downloads from a storage
	Hits        uint64 // of these: other downloads, also from another gateway
	Bytes       uint64 // of bodies
	Connections int64  // open now
	// FirstByte counts responses by the time to their first byte, cumulatively for each bound. The
	// last count is the number of all responses.
	FirstByte []uint64
}

// Point holds the rates of one step. Unknown values are NaN, such as the hit ratio without
// downloads.
type Point struct {
	Begin, End  time.Time
	Requests    float64 // a second
	Failed      float64 // a second
	Rejected    float64 // a second
	Bytes       float64 // a second
	HitRatio    float64 // 0 to 1
	P50, P99    float64 // seconds to the first byte
	Connections float64
}

// Traffic is the history at one moment.
type Traffic struct {
	Points []Point // the oldest first
	// Now holds the rates of the last 5 to 15 seconds; its Begin is zero before the first sample.
	Now Point
	// Minute holds the rates of the last minute.
	Minute Point
}

// History keeps the samples of Span. It is safe for concurrent use.
type History struct {
	bounds []float64 // of Sample.FirstByte, in seconds

	mu   sync.Mutex // guards list
	list []Sample   // the oldest first
}

// NewHistory returns an empty history. bounds are the bounds of Sample.FirstByte, in seconds.
func NewHistory(bounds []float64) *History { return &History{bounds: bounds} }

// Add adds a sample, and removes the oldest if the history is full.
func (h *History) Add(s Sample) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.list) == samples {
		h.list = slices.Delete(h.list, 0, 1)
	}
	h.list = append(h.list, s)
}

// nowMin is the shortest time that Traffic.Now covers: the rates of a shorter one are only noise.
const nowMin = 5 * time.Second

// Traffic returns the points of Span before the sample now, which ends the last point.
func (h *History) Traffic(now Sample) Traffic {
	h.mu.Lock()
	list := slices.Clone(h.list)
	h.mu.Unlock()
	var t Traffic
	for i, s := range list {
		if i > 0 && now.At.Sub(s.At) < Span {
			t.Points = append(t.Points, h.point(list[i-1], s))
		}
	}
	if len(list) == 0 {
		return t
	}
	if last := list[len(list)-1]; now.At.Sub(last.At) >= nowMin {
		t.Points = append(t.Points, h.point(last, now))
	}
	t.Now = h.point(before(list, now.At.Add(-nowMin)), now)
	t.Minute = h.point(before(list, now.At.Add(-time.Minute)), now)
	return t
}

// before returns the newest sample that is not newer than a time, or the first one.
func before(list []Sample, at time.Time) Sample {
	found := list[0]
	for _, s := range list {
		if s.At.After(at) {
			break
		}
		found = s
	}
	return found
}

// point returns the rates between two samples.
func (h *History) point(from, to Sample) Point {
	p := Point{Begin: from.At, End: to.At, Connections: float64(to.Connections)}
	seconds := to.At.Sub(from.At).Seconds()
	rate := func(from, to uint64) float64 {
		if seconds <= 0 {
			return 0
		}
		return float64(since(from, to)) / seconds
	}
	p.Requests, p.Bytes = rate(from.Requests, to.Requests), rate(from.Bytes, to.Bytes)
	p.Failed, p.Rejected = rate(from.Failed, to.Failed), rate(from.Rejected, to.Rejected)
	hits, fetched := float64(since(from.Hits, to.Hits)), float64(since(from.Fetched, to.Fetched))
	p.HitRatio = hits / (hits + fetched) // NaN without downloads
	p.P50, p.P99 = h.quantile(from, to, .5), h.quantile(from, to, .99)
	return p
}

// since returns the growth of a count; 0 if the count was reset.
func since(from, to uint64) uint64 {
	if to < from {
		return 0
	}
	return to - from
}

// quantile estimates a quantile of the times to the first byte between two samples, in seconds, by
// interpolation in its bucket, like histogram_quantile of Prometheus.
func (h *History) quantile(from, to Sample, q float64) float64 {
	if len(from.FirstByte) != len(h.bounds)+1 || len(to.FirstByte) != len(h.bounds)+1 {
		return math.NaN()
	}
	count := func(i int) float64 { return float64(since(from.FirstByte[i], to.FirstByte[i])) }
	all := count(len(h.bounds))
	if all == 0 {
		return math.NaN()
	}
	below, low := 0.0, 0.0
	for i, bound := range h.bounds {
		if upTo := count(i); upTo >= q*all {
			return low + (bound-low)*(q*all-below)/(upTo-below)
		}
		below, low = count(i), bound
	}
	return low // above the last bound
}
