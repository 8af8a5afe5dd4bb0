package gateway

import "time"

// watched is the state of the watch of one connection. Only the watch uses it.
type watched struct {
	partialSince time.Time // a frame or header block has been incomplete since then, and
	received     uint64    // so many had arrived

	windowStart time.Time // responses have been blocked since then, and
	cleared     uint64    // so many times before they had not been
	taken       int64     // bytes that the client had taken

	idleSince time.Duration // of guard.Conn.IdleSince, from
	idleAt    time.Time     // this time
}

// watch ends connections whose clients do not make progress, until shutdown. So requests need no
// timers.
func (h *http2Server) watch() {
	every := max(10*time.Millisecond, min(time.Second, h.s.o.ReadTimeout/4, h.s.sendWindow/8))
	tick := time.NewTicker(every)
	defer tick.Stop()
	last := time.Now()
	for {
		select {
		case <-h.ended:
			return
		case now := <-tick.C:
			for _, c := range h.snapshot() {
				c.frames.Refill(now.Sub(last))
				c.watch(now)
			}
			last = now
		}
	}
}

// snapshot returns the current connections.
func (h *http2Server) snapshot() []*http2Conn {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := make([]*http2Conn, 0, len(h.conns))
	for c := range h.conns {
		list = append(list, c)
	}
	return list
}

// watch ends a connection with a frame or header block that is incomplete for ReadTimeout, with
// blocked responses of which less than MinSendRate was taken over a window, or that is idle for
// maxIdle.
func (c *http2Conn) watch(now time.Time) {
	w, state, o := &c.watched, c.frames.State(), &c.h.s.o
	switch {
	case !state.Partial:
		w.partialSince = time.Time{}
	case w.partialSince.IsZero() || state.Received != w.received:
		w.partialSince, w.received = now, state.Received
	case now.Sub(w.partialSince) >= o.ReadTimeout:
		c.end("a frame or header block did not arrive in time")
		return
	}
	window := c.h.s.sendWindow
	switch {
	case !state.Blocked || o.MinSendRate <= 0:
		w.windowStart = time.Time{}
	case w.windowStart.IsZero() || state.Cleared != w.cleared:
		w.windowStart, w.cleared, w.taken = now, state.Cleared, c.taken(state.Sent)
	case now.Sub(w.windowStart) >= window:
		taken := c.taken(state.Sent)
		if float64(taken-w.taken) < float64(o.MinSendRate)*window.Seconds() {
			c.slow.Store(true)
			c.end("client reads too slowly")
			return
		}
		w.windowStart, w.taken = now, taken
	}
	c.watchIdle(now)
}

// taken returns the number of bytes of responses that the client's host has acknowledged.
func (c *http2Conn) taken(sent int64) int64 { return sent - c.outer.counted.Unacknowledged() }

// watchIdle closes a connection that was idle for maxIdle, if that is less than IdleTimeout, which
// net/http observes.
func (c *http2Conn) watchIdle(now time.Time) {
	w := &c.watched
	since, idle := c.outer.IdleSince()
	maxIdle := c.h.s.maxIdle()
	switch {
	case !idle || maxIdle >= c.h.s.o.IdleTimeout:
		w.idleSince = 0
	case w.idleSince != since:
		w.idleSince, w.idleAt = since, now
	case now.Sub(w.idleAt) >= maxIdle && c.outer.ClaimIdle(since):
		_ = c.outer.counted.Close() // an error means that the client has closed it
	}
}
