package tracker

import (
	"cmp"
	"slices"
	"strings"

	"fastdfs-gateway/internal/fdfs/backoff"
)

// Health is the state of one tracker.
type Health struct {
	Addresses []string
	Up        bool // the last request to it succeeded, or there was none
	backoff.Record
}

// Health returns the state of each tracker, in the order of Options.
func (c *Client) Health() []Health {
	list := make([]Health, 0, len(c.trackers))
	for _, s := range c.trackers {
		s.mu.Lock()
		h := Health{Up: s.backoff.Until().IsZero(), Record: s.record}
		s.mu.Unlock()
		for _, p := range s.pools {
			h.Addresses = append(h.Addresses, p.Addr())
		}
		list = append(list, h)
	}
	return list
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
