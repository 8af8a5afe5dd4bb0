package client

import (
	"cmp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"fastdfs-gateway/internal/fdfs/backoff"
)

// Stats are counters of a Client since it was created.
type Stats struct {
	Requests     uint64 // sent to storages, hedged ones included, probes not
	Failures     uint64 // of these: no reply, a broken or stalled one, or an error other than a missing file
	Resumes      uint64 // streams that continued after a failure of their source
	Hedges       uint64 // hedged requests
	HedgeWins    uint64 // of these: replied before the first request
	WrongReplies uint64 // replies of another length, size or version than requested
	Rechecks     uint64 // files read again because their CRC32 differed from the one in the id
	CRCErrors    uint64 // of these: corrupted files; the others are links, or have a legacy CRC32
}

type counters struct {
	requests, failures, resumes, hedges, hedgeWins, wrong, rechecks, crcErrors atomic.Uint64
}

// Stats returns the counters. They are not read at one moment.
func (c *Client) Stats() Stats {
	n := &c.counts
	return Stats{
		Requests: n.requests.Load(), Failures: n.failures.Load(), Resumes: n.resumes.Load(), Hedges: n.hedges.Load(),
		HedgeWins: n.hedgeWins.Load(), WrongReplies: n.wrong.Load(), Rechecks: n.rechecks.Load(),
		CRCErrors: n.crcErrors.Load(),
	}
}

// ServerHealth is the health of one storage.
type ServerHealth struct {
	Server         Server
	State          State
	Errors         int           // failures in a row
	P95            time.Duration // to the first byte, of the newest 128 replies; 0 if there are fewer than 20
	backoff.Record               // its latency is that of the first byte
}

// Health returns the servers that were used in the last ten minutes, sorted by host and port.
func (c *Client) Health() []ServerHealth {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := make([]ServerHealth, 0, len(c.members))
	for s, m := range c.members {
		h := &m.health
		p95, _ := h.p95()
		list = append(list, ServerHealth{Server: s, State: h.state(), Errors: h.errors, P95: p95,
			Record: h.record})
	}
	slices.SortFunc(list, func(a, b ServerHealth) int {
		return cmp.Or(strings.Compare(a.Server.Host, b.Server.Host), a.Server.Port-b.Server.Port)
	})
	return list
}
