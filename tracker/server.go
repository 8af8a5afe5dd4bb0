package tracker

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"fastdfs-gateway/internal/backoff"
	"fastdfs-gateway/internal/fdfs"
)

// server is one tracker with its addresses and its health.
type server struct {
	pools     []*fdfs.Pool // one for each address
	preferred atomic.Int32 // index of the address that answered last

	mu      sync.Mutex    // guards the fields below
	backoff backoff.State // the tracker is down unless Until is zero
	fails   int           // number of failures
	lastErr error         // last failure
	lastAt  time.Time     // of lastErr
	answers int           // number of answers
	latency time.Duration // of answers, exponentially weighted mean
	attempt chan struct{} // closed at the end of a running attempt while the tracker is down; nil = none is running
}

func newServer(addresses []string, o fdfs.PoolOptions) *server {
	s := &server{}
	for _, a := range addresses {
		s.pools = append(s.pools, fdfs.NewPool(a, o))
	}
	return s
}

func (s *server) close() {
	for _, p := range s.pools {
		p.Close()
	}
}

func (s *server) sweep(now time.Time) {
	for _, p := range s.pools {
		p.Sweep(now)
	}
}

// name returns the first address.
func (s *server) name() string { return s.pools[0].Addr() }

// downUntil returns the end of the back-off; zero = the tracker is up.
func (s *server) downUntil() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.backoff.Until()
}

// enter is called before a tracker is asked. While the tracker is down, only one attempt runs at a
// time, so that an outage does not collect requests that all wait for the same timeout; the others
// wait for its result, and share its error. fails is the argument for failed; leave must be called
// after the attempt.
func (s *server) enter(ctx context.Context) (fails int, leave func(), err error) {
	for {
		s.mu.Lock()
		if s.backoff.Until().IsZero() {
			defer s.mu.Unlock()
			return s.fails, func() {}, nil
		}
		if s.attempt == nil {
			mine := make(chan struct{})
			s.attempt, fails = mine, s.fails
			s.mu.Unlock()
			return fails, func() {
				s.mu.Lock()
				s.attempt = nil
				s.mu.Unlock()
				close(mine)
			}, nil
		}
		before, other := s.fails, s.attempt
		s.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return 0, nil, context.Cause(ctx)
		}
		s.mu.Lock()
		fails, err = s.fails, s.lastErr
		s.mu.Unlock()
		if fails > before {
			return 0, nil, err
		}
		// The tracker is up, or the caller of the attempt gave up: try next.
	}
}

// smoothing is the weight of the newest latency in the mean.
const smoothing = 0.2

// answered records an answer and how long it took: the tracker is up. It reports whether it was
// down.
func (s *server) answered(took time.Duration) (wasDown bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.answers++; s.answers == 1 {
		s.latency = took
	}
	s.latency += time.Duration(smoothing * float64(took-s.latency))
	if s.backoff.Until().IsZero() {
		return false
	}
	s.backoff.Revive(time.Now())
	return true
}

// failed records a failure of an attempt that began after so many failures: of concurrent attempts
// only the first failure counts. It reports whether the tracker was up before.
func (s *server) failed(before int, err error, retry backoff.Policy) (wasUp bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fails != before {
		return false
	}
	wasUp = s.backoff.Until().IsZero()
	s.fails++
	s.lastErr, s.lastAt = err, time.Now()
	s.backoff.Fail(retry, time.Now())
	return wasUp
}

// isDecisive reports whether err is an answer that other trackers would repeat.
func isDecisive(err error) bool {
	return err == nil || errors.Is(err, fdfs.ErrNotFound) || errors.Is(err, fdfs.ErrInvalid) ||
		errors.Is(err, fdfs.ErrNotSupported)
}

// isStatus reports whether err is a well-formed answer of a tracker.
func isStatus(err error) bool {
	_, ok := errors.AsType[fdfs.StatusError](err)
	return ok
}
