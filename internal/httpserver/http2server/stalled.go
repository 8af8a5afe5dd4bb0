package http2server

import (
	"cmp"
	"slices"
	"time"

	"golang.org/x/net/http2"
)

// stalled is a response whose client accepts less than MinSendRate, or nothing; without a stream it
// is any response of a connection whose client takes as little of all of them.
type stalled struct {
	c    *conn
	st   *Stream
	time time.Duration // for which it does so
	sent int64         // bytes of the response at the last look
}

// EvictStalled makes room for another request: it resets the response that has been stalled for the
// longest time, and returns false if there is none. It knows those of the last look while
// Options.Crowded was true.
func (s *Server) EvictStalled() bool {
	for {
		v, ok := s.takeStalled()
		switch {
		case !ok:
			return false
		case v.st == nil && v.c.evictWaiting():
			s.mu.Lock()
			s.stalled = append(s.stalled, v) // the client may have more of them
			s.mu.Unlock()
			return true
		case v.st != nil && v.st.evict(v.sent):
			return true
		}
	}
}

// evictWaiting resets a stream that waits for its client, and returns false if there is none. A
// client that resets its streams and opens new ones has some, but none of the last look.
func (c *conn) evictWaiting() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, st := range c.streams {
		if st.waits() {
			c.reset(st.id, http2.ErrCodeCancel, ErrSlow)
			c.send()
			return true
		}
	}
	return false
}

// waits reports whether the response waits until its client takes bytes, of it or of others.
func (st *Stream) waits() bool {
	return !st.answered && !st.awaitsBody && st.err == nil && (st.stall.waiting || st.c.waiting > 0)
}

// noteStarved updates the time for which the client took no more than MinSendRate of bodies while
// responses waited for it. New streams in place of others do not end it. taken is the number of
// bytes of responses that the client's host has.
func (c *conn) noteStarved(d time.Duration, taken int64) {
	w, waits := &c.watched, c.blocked()
	for _, st := range c.streams {
		waits = waits || st.waits()
	}
	bodies := c.bodies - (c.appended - taken) // those that the client has for sure
	if w.starved += d; !waits || float64(bodies-w.last) > float64(c.s.o.MinSendRate)*d.Seconds() {
		w.starved = 0
	}
	w.last = max(w.last, bodies)
}

// StalledFor returns the time for which the client of a connection has been taking nothing, while
// nothing else holds up its responses; 0 = it has none that wait for it.
func (s *Server) StalledFor(t Transport) time.Duration {
	c := s.connOf(t)
	if c == nil {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, st := range c.streams {
		if !st.waits() && !st.awaitsBody && !st.answered {
			return 0
		}
	}
	return c.watched.starved
}

// End ends a connection whose client is too slow.
func (s *Server) End(t Transport) {
	if c := s.connOf(t); c != nil {
		c.fail(ErrSlow)
	}
}

// takeStalled removes the longest stalled response from the list.
func (s *Server) takeStalled() (v stalled, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := len(s.stalled) - 1
	if last < 0 {
		return v, false
	}
	v, s.stalled[last] = s.stalled[last], stalled{}
	s.stalled = s.stalled[:last]
	return v, true
}

// evict resets the stream if its client has accepted nothing since the last look.
func (st *Stream) evict(sent int64) bool {
	c := st.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if st.err != nil || st.answered || st.stall.sent != sent {
		return false
	}
	c.reset(st.id, http2.ErrCodeCancel, ErrSlow)
	c.send()
	return true
}

// listStalled replaces the list of stalled responses.
func (s *Server) listStalled(conns []*conn) {
	var list []stalled
	if s.o.Crowded() {
		for _, c := range conns {
			list = c.appendStalled(list)
		}
		slices.SortFunc(list, func(a, b stalled) int { return cmp.Compare(a.time, b.time) })
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stalled = list
}

// appendStalled adds the stalled responses of the connection.
func (c *conn) appendStalled(list []stalled) []stalled {
	c.mu.Lock()
	defer c.mu.Unlock()
	if d := c.watched.starved; d > 0 {
		return append(list, stalled{c: c, time: d})
	}
	for _, st := range c.streams {
		if st.awaitsBody || st.answered { // it takes no place
			continue
		}
		if d := st.stall.time(c.s.o.MinSendRate); d > 0 {
			list = append(list, stalled{c, st, d, st.stall.sent})
		}
	}
	return list
}

// time returns the time for which the client has accepted no more than rate bytes per second.
func (s *stall) time(rate int64) time.Duration {
	if !s.waiting || float64(s.sent-s.before) > float64(rate)*s.waited.Seconds() {
		return 0
	}
	return s.waited
}
