package eventloop

import "time"

// sweepEvery is the interval of sweeps: so much later, at most, the end of a read deadline is
// noticed.
const sweepEvery = time.Second

// sweep serves the parked connections whose read deadline has passed, until Close: serve reads the
// error of the deadline, and closes them. So a busy connection extends its deadline without a
// timer.
func (g *Group) sweep() {
	tick := time.NewTicker(g.sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-g.watch.end:
			return
		}
		for _, l := range g.watch.loops {
			for _, c := range l.takeExpired(g.now()) { // closing may wait for the client
				g.running.Go(func() { c.passTo(g.serve, "serving a connection", l, 0) })
			}
		}
	}
}

// sweepStep is the number of entries that a sweep looks at without a break.
const sweepStep = 1024

// takeExpired unparks and returns the connections whose read deadline has passed.
func (l *loop) takeExpired(now time.Duration) (expired []*Conn) {
	step := func(from int) bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		all := l.table.entries
		for _, e := range all[min(from, len(all)):min(from+sweepStep, len(all))] {
			if e.conn != nil && e.conn.expire(now) {
				expired = append(expired, e.conn)
			}
		}
		return from+sweepStep < len(all)
	}
	for from := 0; step(from); from += sweepStep {
	}
	return expired
}
