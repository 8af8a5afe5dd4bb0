package eventloop

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// After a sweep, the pause before the next one is minSweepPause and sweepRest times its duration at
// least, unless a connection that is parked meanwhile has an earlier deadline.
const (
	minSweepPause = 5 * time.Millisecond
	sweepRest     = 50
)

// sweeper serves the parked connections of a loop whose read deadline has passed. A sweep looks at
// all connections of the loop. The next sweep is at the earliest deadline of the connections that
// were parked then or have been parked since. So a busy connection extends its deadline without a
// timer.
type sweeper struct {
	l       *loop
	next    atomic.Int64 // time of the next sweep, by the clock of the group
	mu      sync.Mutex   // guards the fields below
	timer   *time.Timer
	stopped bool
	running sync.WaitGroup
}

func (s *sweeper) init(l *loop) {
	s.l = l
	s.next.Store(math.MaxInt64)
}

// expect schedules a sweep at a time, unless an earlier one is scheduled.
func (s *sweeper) expect(at time.Duration) {
	if int64(at) >= s.next.Load() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped || int64(at) >= s.next.Load() {
		return
	}
	s.next.Store(int64(at))
	d := max(at-s.l.g.now(), 0)
	if s.timer == nil {
		s.timer = time.AfterFunc(d, s.sweep)
		return
	}
	s.timer.Reset(d)
}

// sweep serves the connections that have expired: serve reads the error of the deadline, and closes
// them.
func (s *sweeper) sweep() {
	s.mu.Lock()
	if s.stopped {
		s.mu.Unlock()
		return
	}
	s.running.Add(1)
	s.mu.Unlock()
	defer s.running.Done()
	s.next.Store(math.MaxInt64) // from here on, Park schedules a sweep again
	began := s.l.g.now()
	expired, earliest := s.look(began)
	now := s.l.g.now()
	if earliest != noDeadline {
		s.expect(max(earliest, now+max(minSweepPause, sweepRest*(now-began))))
	}
	for _, c := range expired { // closing may wait for the client
		s.l.g.running.Go(func() { c.passTo(s.l.g.serve, "serving a connection", s.l, 0) })
	}
}

// sweepStep is the number of entries that a sweep looks at without a break.
const sweepStep = 1024

// look unparks the connections that have expired, and returns the earliest other deadline.
func (s *sweeper) look(now time.Duration) (expired []*Conn, earliest time.Duration) {
	earliest = noDeadline
	step := func(from int) bool {
		s.l.mu.Lock()
		defer s.l.mu.Unlock()
		all := s.l.table.entries
		for _, e := range all[min(from, len(all)):min(from+sweepStep, len(all))] {
			if e.conn == nil {
				continue
			}
			at, gone := e.conn.expire(now)
			if earliest = min(earliest, at); gone {
				expired = append(expired, e.conn)
			}
		}
		return from+sweepStep < len(all)
	}
	for from := 0; step(from); from += sweepStep {
	}
	return expired, earliest
}

// stop ends the sweeps.
func (s *sweeper) stop() {
	s.mu.Lock()
	s.stopped = true
	if s.timer != nil {
		s.timer.Stop()
	}
	s.mu.Unlock()
	s.running.Wait()
}
