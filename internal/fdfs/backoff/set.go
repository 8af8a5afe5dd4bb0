package backoff

import (
	"sync"
	"time"
)

// Set keeps the back-offs of servers by key. It is safe for concurrent use.
type Set[K comparable] struct {
	policy Policy
	limit  int // bound of len(states)

	mu     sync.Mutex // guards states
	states map[K]*State
}

// NewSet returns a Set of up to limit servers. While it is full, failures of further servers are
// ignored, unless a back-off in it ended at least Policy.Max ago.
func NewSet[K comparable](p Policy, limit int) *Set[K] {
	return &Set[K]{policy: p, limit: limit, states: make(map[K]*State)}
}

// Allow reports whether a request may be sent to the server. After a back-off it returns true to
// one caller, which probes the server, and false to others until the probe has ended by Fail,
// Succeed or Abandon.
func (s *Set[K]) Allow(server K) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.states[server]
	return state == nil || state.Probe(time.Now())
}

// Fail records a failure of the server.
func (s *Set[K]) Fail(server K) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	state := s.states[server]
	if state == nil {
		if len(s.states) >= s.limit {
			s.sweep(now)
		}
		if len(s.states) >= s.limit {
			return
		}
		state = new(State)
		s.states[server] = state
	}
	state.Fail(s.policy, now)
}

// sweep forgets the servers whose back-off ended Policy.Max ago or earlier. s.mu is held.
func (s *Set[K]) sweep(now time.Time) {
	for server, state := range s.states {
		if now.Sub(state.Until()) >= s.policy.Max {
			delete(s.states, server)
		}
	}
}

// Succeed records a reply of the server and forgets its failures.
func (s *Set[K]) Succeed(server K) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.states, server)
}

// Abandon ends a probe without a result, such as one that the caller cancelled: the next caller
// probes. Without a probe it does nothing.
func (s *Set[K]) Abandon(server K) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if state := s.states[server]; state != nil {
		state.Abandon()
	}
}
