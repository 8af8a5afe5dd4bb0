package tracker

import (
	"sync"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/fdfs/backoff"
)

// server is one tracker with its addresses and its health.
type server struct {
	pools []*fdfs.Pool // one for each address

	mu        sync.Mutex    // guards the fields below
	preferred int           // index of the address that replied last
	backoff   backoff.State // the tracker is down unless Until is zero
	record    backoff.Record
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

// name returns the first address.
func (s *server) name() string { return s.pools[0].Addr() }

// downUntil returns the end of the back-off; zero = the tracker is up.
func (s *server) downUntil() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.backoff.Until()
}

// failedAt returns the time of the last failure; zero = there was none.
func (s *server) failedAt() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.record.LastErrorAt
}

// probeDue reports whether the tracker is down and its back-off is over. It returns true once until
// the probe has ended.
func (s *server) probeDue(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.backoff.Probe(now)
}

// addresses returns the indexes of pools, that of the preferred address first.
func (s *server) addresses() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []int
	for i := range s.pools {
		list = append(list, (s.preferred+i)%len(s.pools))
	}
	return list
}

// replied records a reply from an address and its duration: the tracker is up. It reports whether
// the tracker was down.
func (s *server) replied(address int, took time.Duration) (wasDown bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.record.Replied(took)
	s.preferred = address
	if s.backoff.Until().IsZero() {
		return false
	}
	s.backoff.Revive(time.Now())
	return true
}

// failed records a failure of all addresses. It reports whether the tracker was up before.
func (s *server) failed(err error, retry backoff.Policy) (wasUp bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	wasUp = s.backoff.Until().IsZero()
	s.record.Failed(err, time.Now())
	s.backoff.Fail(retry, time.Now())
	return wasUp
}
