package access

import (
	"hash/maphash"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Limiter bounds the rate of requests per address. It keeps at most maxAddresses addresses, in two
// generations: an address moves to the recent one with each request, and when that is full, the
// earlier one is discarded. So a flood of other addresses resets a limited address only if that
// sends no request while about half of maxAddresses are new. A Limiter is safe for concurrent use.
type Limiter struct {
	rate   rate.Limit
	burst  int
	seed   maphash.Seed // random, so that a client cannot choose addresses of one shard
	shards [shards]shard
}

const (
	maxAddresses = 64 << 10
	shards       = 64
	perShard     = maxAddresses / shards / 2 // of one generation
)

// shard holds the addresses whose hashes have one remainder.
type shard struct {
	mu              sync.Mutex // guards the fields below
	recent, earlier map[netip.Addr]*rate.Limiter
}

// NewLimiter returns a limiter for perSecond requests per second, and burst at once.
func NewLimiter(perSecond float64, burst int) *Limiter {
	return &Limiter{rate: rate.Limit(perSecond), burst: burst, seed: maphash.MakeSeed()}
}

// Allow counts a request of an address. If the address has too many requests, it returns the time
// until the next one is allowed, and does not count this one.
func (l *Limiter) Allow(a netip.Addr, now time.Time) (wait time.Duration) {
	s := &l.shards[maphash.Comparable(l.seed, a)%shards]
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.find(a)
	if of == nil {
		of = rate.NewLimiter(l.rate, l.burst)
		s.recent[a] = of
	}
	if of.AllowN(now, 1) {
		return 0
	}
	missing := 1 - of.TokensAt(now)
	return max(time.Duration(missing/float64(l.rate)*float64(time.Second)), 1)
}

// find returns the limiter of an address, in the recent generation; nil for a new one. s.mu is
// held.
func (s *shard) find(a netip.Addr) *rate.Limiter {
	if of := s.recent[a]; of != nil {
		return of
	}
	if s.recent == nil || len(s.recent) >= perShard {
		s.recent, s.earlier = make(map[netip.Addr]*rate.Limiter), s.recent
	}
	of := s.earlier[a]
	if of != nil {
		delete(s.earlier, a)
		s.recent[a] = of
	}
	return of
}
