package tracker

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Health is the state of one tracker.
type Health struct {
	Addresses []string
	Up        bool // it answered when it was asked last, or was never asked
	Answers   int
	Latency   time.Duration // of answers, exponentially weighted mean; 0 = none yet
	// LastError is the newest failure, at LastErrorAt; nil = there was none.
	LastError   error
	LastErrorAt time.Time
}

// Health returns the state of each tracker, in the order of Options.
func (c *Client) Health() []Health {
	list := make([]Health, 0, len(c.trackers))
	for _, s := range c.trackers {
		list = append(list, s.report())
	}
	return list
}

func (s *server) report() Health {
	h := Health{}
	for _, p := range s.pools {
		h.Addresses = append(h.Addresses, p.Addr())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	h.Up, h.Answers, h.Latency = s.backoff.Until().IsZero(), s.answers, s.latency
	h.LastError, h.LastErrorAt = s.lastErr, s.lastAt
	return h
}

// All returns the storages of all groups, by group and address.
func (m *Members) All() []Server {
	var list []Server
	for _, servers := range m.load().groups {
		list = append(list, servers...)
	}
	slices.SortFunc(list, func(a, b Server) int {
		return cmp.Or(strings.Compare(a.Group, b.Group), strings.Compare(a.Host, b.Host), a.Port-b.Port)
	})
	return list
}
