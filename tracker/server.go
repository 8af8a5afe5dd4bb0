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

// server is one tracker with its addresses and what is known of its health.
type server struct {
	pools     []*fdfs.Pool // one an address
	preferred atomic.Int32 // the address that answered last

	mu      sync.Mutex    // guards what follows
	backoff backoff.State // the tracker is down while Until is not zero, and tried again then
	fails   int           // all failures there were
	lastErr error         // of the last one
	attempt chan struct{} // closed when the attempt at a dead tracker that is under way ends; nil when there is none
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

// name is the first address.
func (s *server) name() string { return s.pools[0].Addr() }

// downUntil is when a dead tracker is due to be tried again; the zero time if it is up.
func (s *server) downUntil() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.backoff.Until()
}

// enter is called before a tracker is asked. There is one attempt at a time at a dead one, so that an outage does not
// gather requests that all wait for the same timeout; the others wait for how it ends, and get its error where it fails.
// fails is for failed; leave must be called after the attempt.
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
		// It is up, or the attempt was given up by its caller: then it is this one's turn.
	}
}

// answered notes that the tracker is up. It tells whether it was down.
func (s *server) answered() (wasDown bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.backoff.Until().IsZero() {
		return false
	}
	s.backoff.Revive(time.Now())
	return true
}

// failed notes a failure of an attempt that began after so many others: of those that run at the same time only the first one
// counts. One that comes soon after the tracker came back goes on where the backoff was, since a tracker may answer the active
// test and nothing else. It tells whether the tracker was up before.
func (s *server) failed(before int, err error, retry backoff.Policy) (wasUp bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fails != before {
		return false
	}
	wasUp = s.backoff.Until().IsZero()
	s.fails++
	s.lastErr = err
	s.backoff.Fail(retry, time.Now())
	return wasUp
}

// isAnswer tells whether an error is what the cluster has to say, which another tracker would repeat.
func isAnswer(err error) bool {
	return err == nil || errors.Is(err, fdfs.ErrNotFound) || errors.Is(err, fdfs.ErrInvalid) || errors.Is(err, fdfs.ErrNotSupported)
}

// isStatus tells whether an error is a well-formed answer of a tracker.
func isStatus(err error) bool {
	_, ok := errors.AsType[fdfs.StatusError](err)
	return ok
}
