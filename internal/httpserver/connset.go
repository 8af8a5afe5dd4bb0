package httpserver

import (
	"cmp"
	"slices"
	"sync/atomic"
	"time"
)

// connSet is a set of open connections that evicts the longest idle one. The search for it walks
// through the set. So a walk keeps a list of the oldest connections for later calls, and walks take
// at most a tenth of the time: connections that are opened faster than that are rejected.
type connSet struct {
	conns    map[*conn]struct{}
	streams  atomic.Int64 // HTTP/2 requests at a time, of a set of one address
	oldest   []idleConn   // of the last walk, the longest idle last
	nextWalk time.Time
}

// idleConn is a connection that was idle since a time of the guard's clock.
type idleConn struct {
	c     *conn
	since time.Duration
}

const (
	minOldest      = 64 // least length of the list of a walk, and
	oldestFraction = 16 // the fraction of the set that it holds

	// restPerConn is ten times the processor time that a walk through many connections takes for
	// each. The duration of the walk is no measure: the scheduler may have interrupted it.
	restPerConn = 3 * time.Microsecond
)

func newConnSet() *connSet { return &connSet{conns: map[*conn]struct{}{}} }

func (s *connSet) addConn(c *conn) { s.conns[c] = struct{}{} }
func (s *connSet) remove(c *conn)  { delete(s.conns, c) }

// evictIdle claims the longest idle connection, which the caller closes; nil if all are busy.
func (s *connSet) evictIdle() *conn {
	if c := s.evictOldest(); c != nil {
		return c
	}
	if time.Now().Before(s.nextWalk) {
		return nil
	}
	s.walk()
	s.nextWalk = time.Now().Add(time.Duration(len(s.conns)) * restPerConn)
	return s.evictOldest()
}

// evictOldest claims a connection from the list of the last walk.
func (s *connSet) evictOldest() *conn {
	for n := len(s.oldest) - 1; n >= 0; n-- {
		v := s.oldest[n]
		s.oldest[n] = idleConn{}
		s.oldest = s.oldest[:n]
		if _, open := s.conns[v.c]; open && !v.c.HasInput() && v.c.guarded.ClaimIdle(v.since) {
			return v.c
		}
	}
	return nil
}

// walk lists the longest idle connections.
func (s *connSet) walk() {
	s.oldest = s.oldest[:0]
	for c := range s.conns {
		if since, idle := c.guarded.IdleSince(); idle {
			s.oldest = append(s.oldest, idleConn{c, since})
		}
	}
	slices.SortFunc(s.oldest, func(a, b idleConn) int { return cmp.Compare(b.since, a.since) })
	if keep := max(minOldest, len(s.conns)/oldestFraction); len(s.oldest) > keep {
		s.oldest = append([]idleConn(nil), s.oldest[len(s.oldest)-keep:]...)
	}
}
