package client

import (
	"time"

	"fastdfs-gateway/internal/fdfs/backoff"
)

// State is the health of a storage by its latest replies.
type State uint8

// The states of a storage. A storage that is not healthy gets requests after the healthy ones, and
// is probed in the background.
const (
	// Healthy: the last reply was complete, or there was no request to the storage yet.
	Healthy State = iota
	// Suspect: one or two failures in a row, or three lost hedges in a row.
	Suspect
	// Dead: three or more failures in a row.
	Dead
)

// String returns "healthy", "suspect" or "dead".
func (s State) String() string {
	return [...]string{"healthy", "suspect", "dead", "unknown"}[min(s, Dead+1)]
}

const (
	deadAfter   = 3   // failures in a row
	slowAfter   = 3   // lost hedges in a row
	historySize = 128 // latencies that are kept
	historyMin  = 20  // latencies that a percentile needs
)

// health is the health of one server. Client.mu guards it.
//
// A failure makes the server suspect, three in a row make it dead. A complete reply or a successful
// probe makes it healthy again; after a failed download, only a complete download or a probe does.
// A reply that only began ends a series of lost hedges, but no series of failures. Probes come
// after a back-off. Only a complete reply resets the back-off, so the probes of a server that
// replies to probes and nothing else become less and less frequent.
type health struct {
	policy backoff.Policy // constant

	errors         int  // failures in a row
	downloadFailed bool // one of the failures was a download
	hasReplied     bool // before that, the requests to an unlisted server are bounded
	lostHedges     int  // lost hedges in a row: another server replied to a hedged request first
	backoff        backoff.State
	record         backoff.Record             // its replies include lost hedges
	ring           [historySize]time.Duration // the newest latencies
}

func (h *health) state() State {
	switch {
	case h.errors >= deadAfter:
		return Dead
	case h.errors > 0 || h.lostHedges >= slowAfter:
		return Suspect
	}
	return Healthy
}

// replied records the latency of a reply that has begun.
func (h *health) replied(latency time.Duration) {
	h.lostHedges, h.hasReplied = 0, true
	h.observe(latency)
}

// lostHedge records that another server replied first after this latency, which is a lower bound.
func (h *health) lostHedge(latency time.Duration, now time.Time) {
	h.observe(latency) // without it a server that became slow would keep its old mean
	before := h.state()
	h.lostHedges++
	h.planProbe(before, now)
}

func (h *health) observe(latency time.Duration) {
	h.ring[h.record.Replies%historySize] = latency
	h.record.Replied(latency)
}

// completed records a complete reply. A short reply does not clear a failed download: some
// servers reply to a stat and then cannot read the file.
func (h *health) completed(download bool) {
	if download || !h.downloadFailed {
		h.errors, h.lostHedges, h.downloadFailed = 0, 0, false
		h.backoff.Reset()
	}
}

// failed records a failure.
func (h *health) failed(err error, now time.Time, download bool) {
	before := h.state()
	h.errors++
	h.downloadFailed = h.downloadFailed || download
	h.record.Failed(err, now)
	h.planProbe(before, now)
}

// planProbe begins a back-off, after which the server is probed, if the server was healthy before
// and is not any more.
func (h *health) planProbe(before State, now time.Time) {
	if before == Healthy && h.state() != Healthy {
		h.backoff.Fail(h.policy, now)
	}
}

// probed records the result of a probe.
func (h *health) probed(err error, now time.Time) {
	if err != nil {
		h.errors++
		h.record.Failed(err, now)
		h.backoff.Fail(h.policy, now)
		return
	}
	h.errors, h.lostHedges = 0, 0
	h.backoff.Revive(now)
}

// p95 returns the 95th percentile of the latencies; false if there are too few. It is computed for
// each request, so the few largest latencies are selected in place of sorting all.
func (h *health) p95() (time.Duration, bool) {
	n := min(h.record.Replies, historySize)
	if n < historyMin {
		return 0, false
	}
	rank := n - (n*95+99)/100 + 1 // of the percentile, from the largest on
	var largest [historySize/20 + 1]time.Duration
	held := 0
	for _, latency := range h.ring[:n] {
		if held == rank && latency <= largest[rank-1] {
			continue
		}
		i := min(held, rank-1)
		for ; i > 0 && largest[i-1] < latency; i-- {
			largest[i] = largest[i-1]
		}
		largest[i] = latency
		held = min(held+1, rank)
	}
	return largest[rank-1], true
}
