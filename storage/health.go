package storage

import (
	"slices"
	"sync"
	"time"

	"fastdfs-gateway/internal/backoff"
)

// State says how a storage has answered lately.
type State uint8

// The states of a storage. One that is not healthy is asked after those that are, and probed in the background.
const (
	// Healthy: the last answer was complete, or nothing is known.
	Healthy State = iota
	// Suspect: one or two failures in a row, or three second requests in a row that were faster.
	Suspect
	// Dead: at least three failures in a row.
	Dead
)

// String gives "healthy", "suspect" or "dead".
func (s State) String() string {
	switch s {
	case Healthy:
		return "healthy"
	case Suspect:
		return "suspect"
	case Dead:
		return "dead"
	}
	return "unknown"
}

const (
	deadAfter   = 3   // failures in a row
	slowAfter   = 3   // hedges in a row that were lost
	smoothing   = 0.2 // weight of the newest latency in the mean
	historySize = 128 // answers whose latency is kept
	historyMin  = 20  // answers before a percentile means anything
)

// health is what is known about one server. It is safe for concurrent use.
//
// A failure makes it suspect, and three in a row dead. Only a complete answer, or a probe that is answered, makes it healthy again:
// a server that begins answers and never ends one stays unhealthy, and after a download that failed only a download counts. Probes come after 1 s, then 2 s, 4 s ... 1 min, each a quarter more or
// less. Only a complete answer sets that back, so one that answers probes and nothing else comes back less and less often.
type health struct {
	t timing // does not change

	mu      sync.Mutex // guards what follows
	errors  int        // failures in a row
	halting bool       // one of them was a download's: short answers do not make up for it
	lost    int        // hedges in a row that were lost
	backoff backoff.State
	mean    time.Duration
	count   int                        // latencies ever seen
	ring    [historySize]time.Duration // the newest ones
}

func (h *health) state() State {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.stateLocked()
}

func (h *health) stateLocked() State {
	switch {
	case h.errors >= deadAfter:
		return Dead
	case h.errors > 0 || h.lost >= slowAfter:
		return Suspect
	}
	return Healthy
}

// answered notes that an answer has begun, and how long that took.
func (h *health) answered(latency time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lost = 0
	h.observe(latency)
}

// outrun notes that another server was faster; the latency is only how long this one was waited for.
func (h *health) outrun(latency time.Duration, now time.Time) (before State) {
	h.mu.Lock()
	defer h.mu.Unlock()
	before = h.stateLocked()
	h.lost++
	h.observe(latency) // else a server that has become slow would look as fast as ever
	h.planProbe(before, now)
	return before
}

func (h *health) observe(latency time.Duration) {
	if h.count == 0 {
		h.mean = latency
	}
	h.mean += time.Duration(smoothing * float64(latency-h.mean))
	h.ring[h.count%historySize] = latency
	h.count++
}

// completed notes a complete answer. A short one does not make up for a download that failed: some servers say what they have
// and then cannot read it.
func (h *health) completed(download bool) (before State) {
	h.mu.Lock()
	defer h.mu.Unlock()
	before = h.stateLocked()
	if !download && h.halting {
		return before
	}
	h.errors, h.lost, h.halting = 0, 0, false
	h.backoff.Reset()
	return before
}

// failed notes a failure.
func (h *health) failed(now time.Time, download bool) (before State) {
	h.mu.Lock()
	defer h.mu.Unlock()
	before = h.stateLocked()
	h.errors++
	h.halting = h.halting || download
	h.planProbe(before, now)
	return before
}

// planProbe begins a back-off, after which the server is probed, when it has just become unhealthy.
// h.mu is held.
func (h *health) planProbe(before State, now time.Time) {
	if before == Healthy && h.stateLocked() != Healthy {
		h.backoff.Fail(h.t.backoff, now)
	}
}

// startProbe reports whether a probe is due. The caller then makes it and calls probed.
func (h *health) startProbe(now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.backoff.Probe(now)
}

// probed notes the result of a probe.
func (h *health) probed(err error, now time.Time) (before State) {
	h.mu.Lock()
	defer h.mu.Unlock()
	before = h.stateLocked()
	if err != nil {
		h.errors++
		h.backoff.Fail(h.t.backoff, now)
		return before
	}
	h.errors, h.lost = 0, 0
	h.backoff.Revive(now)
	return before
}

// p95 is the time to the first byte that 19 of 20 answers stay below; false while there are too few.
func (h *health) p95() (time.Duration, bool) {
	h.mu.Lock()
	n := min(h.count, historySize)
	ring := h.ring
	h.mu.Unlock()
	if n < historyMin {
		return 0, false
	}
	slices.Sort(ring[:n])
	return ring[(n*95+99)/100-1], true
}
