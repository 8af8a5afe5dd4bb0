package storage

import (
	"cmp"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// Stats are counts of a Client since it was made.
type Stats struct {
	Requests     uint64 // asked of storages, second ones included, probes not
	Failures     uint64 // of these: no answer, a broken one, or an error other than that the file is not there
	Resumes      uint64 // streams that went on after their source broke
	Hedges       uint64 // second requests because the first was slow
	HedgeWins    uint64 // of these: how many were answered first
	WrongAnswers uint64 // answers of another length, size or version than asked for
	Rechecks     uint64 // files read once more because their CRC32 was not that of the id
	CRCErrors    uint64 // of these: files that were wrong; the others are links
	Bytes        uint64 // of file content received
}

type counters struct {
	requests, failures, resumes, hedges, hedgeWins, wrong, rechecks, crcErrors, bytes atomic.Uint64
}

// Stats gives the counts. They are read one after the other, not at one moment.
func (c *Client) Stats() Stats {
	n := &c.counts
	return Stats{
		Requests: n.requests.Load(), Failures: n.failures.Load(), Resumes: n.resumes.Load(), Hedges: n.hedges.Load(),
		HedgeWins: n.hedgeWins.Load(), WrongAnswers: n.wrong.Load(), Rechecks: n.rechecks.Load(), CRCErrors: n.crcErrors.Load(),
		Bytes: n.bytes.Load(),
	}
}

// ServerHealth is what a Client knows about one storage.
type ServerHealth struct {
	Server  Server
	State   State
	Errors  int           // failures in a row
	Answers int           // ever seen
	Latency time.Duration // to the first byte, a mean in which newer answers weigh more
	P95     time.Duration // to the first byte, of the newest 128 answers; 0 while there are fewer than 20
}

// Health lists the servers that were asked in the last ten minutes, by host and port.
func (c *Client) Health() []ServerHealth {
	c.mu.Lock()
	members := make([]*member, 0, len(c.members))
	for _, m := range c.members {
		members = append(members, m)
	}
	c.mu.Unlock()
	list := make([]ServerHealth, len(members))
	for i, m := range members {
		list[i] = m.health.report()
		list[i].Server = m.server
	}
	slices.SortFunc(list, func(a, b ServerHealth) int {
		return cmp.Or(strings.Compare(a.Server.Host, b.Server.Host), a.Server.Port-b.Server.Port)
	})
	return list
}

func (h *health) report() ServerHealth {
	p95, _ := h.p95()
	h.mu.Lock()
	defer h.mu.Unlock()
	return ServerHealth{State: h.stateLocked(), Errors: h.errors, Answers: h.count, Latency: h.mean, P95: p95}
}
