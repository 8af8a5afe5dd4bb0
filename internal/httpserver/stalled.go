package httpserver

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// At MaxConnections, connections whose clients take nothing give way to new ones, for both
// protocols by one rule: the client has taken no more than MinSendRate in any second of the last
// minStalled, while nothing but the client holds up a response.
const (
	minStalled = 5 * time.Second
	lookEvery  = time.Second
)

// crowd looks for stalled connections, once per lookEvery while all places are taken.
type crowd struct {
	looks atomic.Bool
	look  sync.WaitGroup

	mu      sync.Mutex // guards the fields below, and conn.stall
	stalled []*conn    // at the last look, the longest stalled last
}

// stall is the state of an HTTP/1 connection at the last look.
type stall struct {
	at    time.Time // zero = there was no look
	taken int64     // bytes that the client's host had
	since time.Time // of the last look at which the client was not stalled
}

// beginLooks starts the looks, unless they have begun. They end when places are free.
func (d *crowd) beginLooks(s *Server) {
	if !d.looks.CompareAndSwap(false, true) {
		return
	}
	d.look.Go(func() {
		defer d.looks.Store(false)
		tick := time.NewTicker(lookEvery)
		defer tick.Stop()
		for s.isFull() {
			d.list(s.connections(), time.Now())
			select {
			case <-tick.C:
			case <-s.stopping:
				return
			}
		}
	})
}

// list lists the stalled connections.
func (d *crowd) list(conns []*conn, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	type entry struct {
		c    *conn
		time time.Duration
	}
	var found []entry
	for _, c := range conns {
		if t := c.stalledFor(now); t >= minStalled {
			found = append(found, entry{c, t})
		}
	}
	slices.SortFunc(found, func(a, b entry) int { return cmp.Compare(a.time, b.time) })
	d.stalled = d.stalled[:0]
	for _, e := range found {
		d.stalled = append(d.stalled, e.c)
	}
}

// take removes a connection from the list that is still stalled; nil = there is none.
func (d *crowd) take() *conn {
	d.mu.Lock()
	defer d.mu.Unlock()
	for last := len(d.stalled) - 1; last >= 0; last-- {
		c := d.stalled[last]
		d.stalled[last] = nil
		d.stalled = d.stalled[:last]
		if !c.closed.Load() && c.stalledFor(time.Now()) >= minStalled {
			return c
		}
	}
	return nil
}

// stalledFor returns the time for which only the client has held up a response, and has taken no
// more than MinSendRate. crowd.mu is held.
func (c *conn) stalledFor(now time.Time) time.Duration {
	if t := c.http2.Load(); t != nil {
		return c.s.http2.StalledFor(t)
	}
	rate, last := float64(c.s.o.MinSendRate), c.stall
	lacks, taken := c.Progress()
	c.stall.at, c.stall.taken = now, taken
	// A client that lacks less may have it soon: the next bytes are late.
	if last.at.IsZero() || float64(lacks) <= rate*minStalled.Seconds() ||
		float64(taken-last.taken) > rate*now.Sub(last.at).Seconds() {
		c.stall.since = now
	}
	return now.Sub(c.stall.since)
}

// evictStalled ends the longest stalled connection for a new one; false if there is none.
func (s *Server) evictStalled() bool {
	c := s.crowd.take()
	if c == nil {
		return false
	}
	s.counters.evicted[overload].Add(1)
	s.removeConn(c)
	if t := c.http2.Load(); t != nil {
		s.http2.End(t)
	} else {
		_ = c.Abandon() // an error means that the client has closed it
	}
	return true
}

// isFull reports whether all places are taken.
func (s *Server) isFull() bool { return s.open.Load() >= int64(s.o.MaxConnections) }

// connections returns the open connections.
func (s *Server) connections() []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]*conn, 0, len(s.all.conns))
	for c := range s.all.conns {
		list = append(list, c)
	}
	return list
}
