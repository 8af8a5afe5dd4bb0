package http2server

import (
	"sync"
	"time"

	"golang.org/x/net/http2"
)

// Budgets of a client. A frame of a response adds to the one for control frames, since a client
// acknowledges each DATA frame by a WINDOW_UPDATE or two.
const (
	maxControl       = 4096 // successive control frames
	controlPerSecond = 100  // added with time
	controlPerFrame  = 32   // added by a DATA or HEADERS frame sent to the client

	maxResets       = 1000 // successive streams that the client or the server resets
	resetsPerSecond = 100  // added with time; a complete response adds one too
)

// budget bounds the control frames and resets of a client.
type budget struct{ control, resets float64 }

func newBudget() budget { return budget{maxControl, maxResets} }

func (b *budget) spent() bool { return b.control < 0 || b.resets < 0 }
func (b *budget) sent()       { b.control = min(b.control+controlPerFrame, maxControl) }
func (b *budget) answered()   { b.resets = min(b.resets+1, maxResets) }

func (b *budget) refill(d time.Duration) {
	b.control = min(b.control+controlPerSecond*d.Seconds(), maxControl)
	b.resets = min(b.resets+resetsPerSecond*d.Seconds(), maxResets)
}

// progress records whether the client takes its responses.
type progress struct {
	waiting int    // number of handlers that wait for room in the connection
	clears  uint64 // number of times that blocked became false
	sent    int64  // bytes of HEADERS and DATA given to the transport
	bodies  int64  // bytes of bodies added to the output
}

// waits waits for a condition in a write.
func (c *conn) waits(on *sync.Cond) {
	c.waiting++
	on.Wait()
	c.waiting--
	c.cleared()
}

// blocked reports whether a response waits for the client.
func (c *conn) blocked() bool { return c.waiting > 0 || c.sending || c.out != nil }

func (c *conn) cleared() {
	if !c.blocked() {
		c.clears++
	}
}

// stall records whether the client takes a response for which its connection has room.
type stall struct {
	waiting  bool  // a write waits for the window of the stream
	sent     int64 // bytes of the body added to the output
	position int64 // of the last of them among all bytes of responses of the connection

	waited time.Duration // time of waiting in the current window, without the times of a slow network
	before int64         // value of sent at the start of the window
}

// underWay bounds the bytes that wait for a delayed acknowledgement on a fast network. A client
// that accepts single bytes always has some of them.
const underWay = 4 << 10

// isSlow reports whether the client has accepted less than rate bytes per second in a window of
// waiting. taken is the number of bytes of responses that the client's host has: while it lacks
// some of this stream, the network is slow, and the time does not count. d is the time since the
// last call.
func (s *stall) isSlow(d, window time.Duration, rate, taken int64) bool {
	if !s.waiting || taken+underWay < s.position {
		return false
	}
	if s.waited == 0 {
		s.before = s.sent
	}
	if s.waited += d; s.waited < window {
		return false
	}
	s.waited = 0
	return float64(s.sent-s.before) < float64(rate)*window.Seconds()
}

// watched is the state of the watch of one connection. Only the watch uses it.
type watched struct {
	lateSince time.Time // first look at the frame or header block that is incomplete; zero = none is
	complete  uint64    // value of conn.complete at lateSince

	starved time.Duration // time for which responses have waited and last grew by MinSendRate at most
	last    int64         // bytes of bodies that the client had taken at the last look

	windowStart time.Time // start of the window in which responses are blocked; zero = they are not
	clears      uint64    // value of progress.clears at windowStart
	taken       int64     // bytes that the client had taken at windowStart
}

// watch ends connections whose clients do not make progress, until Shutdown returns. So requests
// need no timers.
func (s *Server) watch() {
	every := max(10*time.Millisecond, min(time.Second, s.o.ReadTimeout/4, s.o.Window/8))
	tick := time.NewTicker(every)
	defer tick.Stop()
	last := time.Now()
	for {
		select {
		case <-s.ended:
			return
		case now := <-tick.C:
			conns := s.snapshot()
			s.listStalled(conns)
			for _, c := range conns {
				if cause := c.watch(now, now.Sub(last)); cause != nil {
					c.fail(cause)
				}
			}
			s.workers.trim()
			last = now
		}
	}
}

// watch returns the reason to end the connection: a frame or header block that is incomplete for
// ReadTimeout, or responses of which less than MinSendRate was taken over a window. It rejects
// requests whose body is late, resets streams whose client does not accept the response, and closes
// a connection that has been idle for too long.
func (c *conn) watch(now time.Time, d time.Duration) error {
	o := &c.s.o
	if idle := c.t.IdleFor(); idle > 0 && idle >= o.IdleTimeout {
		c.goAway()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.budget.refill(d)
	taken := c.sent - c.t.Unacknowledged()
	c.noteStarved(d, taken)
	for _, st := range c.streams {
		switch {
		case st.awaitsBody && now.Sub(st.opened) >= o.ReadTimeout:
			st.Request.Problem = BodyLate
			c.start(st)
		case st.stall.isSlow(d, o.Window, o.MinSendRate, taken):
			c.reset(st.id, http2.ErrCodeCancel, ErrSlow)
			c.send()
		}
	}
	if !c.done.IsZero() {
		return c.lingers(now)
	}
	if c.isLate(now) {
		return errLate
	}
	if c.isSlow(now, o.Window, taken) && o.MinSendRate > 0 {
		return ErrSlow
	}
	return nil
}

// lingers returns errDone when the time of the client to close after the last bytes is over.
func (c *conn) lingers(now time.Time) error {
	since := now.Sub(c.done)
	if since >= lingerTimeout && c.t.Unacknowledged() == 0 || since >= drainTimeout {
		return errDone
	}
	return nil
}

// isLate reports whether a frame or header block has been incomplete for ReadTimeout.
func (c *conn) isLate(now time.Time) bool {
	w, complete := &c.watched, c.complete.Load()
	switch {
	case c.begun.Load() == complete:
		w.lateSince = time.Time{}
	case w.lateSince.IsZero() || complete != w.complete:
		w.lateSince, w.complete = now, complete
	default:
		return now.Sub(w.lateSince) >= c.s.o.ReadTimeout
	}
	return false
}

// isSlow reports whether the client has taken less than MinSendRate over the window.
func (c *conn) isSlow(now time.Time, window time.Duration, taken int64) bool {
	w := &c.watched
	switch {
	case !c.blocked():
		w.windowStart = time.Time{}
		return false
	case w.windowStart.IsZero() || c.clears != w.clears:
	case now.Sub(w.windowStart) < window:
		return false
	case float64(taken-w.taken) < float64(c.s.o.MinSendRate)*window.Seconds():
		return true
	}
	w.windowStart, w.clears, w.taken = now, c.clears, taken
	return false
}
