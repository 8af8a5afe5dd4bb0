// Package backoff decides for how long a failed server gets no requests.
//
// The first back-off of a server takes Policy.First, each further one twice as long, up to
// Policy.Max. Failures during a back-off belong to the incident that began it and change nothing.
//
//	policy := backoff.Policy{First: time.Second, Max: 30 * time.Second}
//	if !server.state.Until().IsZero() && !server.state.Probe(time.Now()) {
//		return errInBackoff
//	}
//	switch err := ask(server); {
//	case err == nil:
//		server.state.Reset()
//	case ctx.Err() != nil:
//		server.state.Abandon() // the caller left: not a failure of the server
//	default:
//		server.state.Fail(policy, time.Now())
//	}
//
// State is the back-off of one server. Record has its replies and errors, for status pages.
package backoff

import (
	"math/rand/v2"
	"time"
)

// Policy has the durations of back-offs.
type Policy struct {
	First time.Duration // nominal duration of the first back-off; > 0
	Max   time.Duration // nominal duration of the longest; at least First
}

// Delay returns the duration of the n-th back-off in a row, n >= 1: up to a quarter less than the
// nominal one, at random, so that clients of a server that failed do not return together.
func (p Policy) Delay(n int) time.Duration {
	d := p.First
	for ; n > 1 && d < p.Max; n-- {
		d *= 2
	}
	d = min(d, p.Max)
	return d - time.Duration(rand.Float64()*float64(d)/4)
}

// State is the back-off of one server. The zero value is a server that has not failed. It is not
// safe for concurrent use.
type State struct {
	failures int       // incidents in a row
	until    time.Time // end of the back-off; zero = none since the server was last usable
	probing  bool      // Probe returned true, and the probe has not ended
	revived  time.Time // time of the last Revive; zero = never
}

// Until returns the end of the back-off, which may be in the past. The time is zero if the server
// has not failed since it was last revived or reset.
func (s *State) Until() time.Time { return s.until }

// InBackoff reports whether the server is in back-off at the given time.
func (s *State) InBackoff(now time.Time) bool { return now.Before(s.until) }

// Fail records a failure and begins a back-off; during a back-off it does nothing. The durations
// start anew when the server fails later than 2 * Policy.Max after a Revive.
func (s *State) Fail(p Policy, now time.Time) {
	if s.InBackoff(now) {
		return
	}
	if s.until.IsZero() && !s.revived.IsZero() && now.Sub(s.revived) > 2*p.Max {
		s.failures = 0
	}
	s.failures++
	s.until, s.probing = now.Add(p.Delay(s.failures)), false
}

// Probe reports whether a probe is due: the back-off is over and no other probe is running. The
// caller then probes the server and calls Fail, Revive, Reset or Abandon.
func (s *State) Probe(now time.Time) bool {
	if s.until.IsZero() || s.InBackoff(now) || s.probing {
		return false
	}
	s.probing = true
	return true
}

// Abandon ends a probe without a result: the next one is due at once.
func (s *State) Abandon() { s.probing = false }

// Revive makes the server usable but keeps the number of its failures. It is for a reply that does
// not prove that the server works: a server may reply to pings and to nothing else.
func (s *State) Revive(now time.Time) { s.until, s.probing, s.revived = time.Time{}, false, now }

// Reset makes the server usable and forgets its failures.
func (s *State) Reset() { *s = State{} }
