package fleet

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"
)

// LockInfo is a lease that this gateway holds, or waits for.
type LockInfo struct {
	Key     string
	Holder  string        // name of the gateway that has it, or had it at the beginning of the wait
	Since   time.Time     // beginning of the lease, or of the wait
	TTL     time.Duration // until its end, unless it is renewed
	Fence   int64         // 0 = unknown
	Waiting bool
}

// Stats are metrics since the start.
type Stats struct {
	Up       bool  // Redis serves
	Opened   int64 // times that the breaker has opened
	Acquired int64 // leases taken
	Held     int64 // requests for leases that another gateway had
	Failed   int64 // requests for leases that failed
	Lost     int64 // leases lost
	// PeerFetches are reads from other gateways by outcome: ok, not_here, not_found, changed,
	// broken, unreachable, refused, abandoned (by the reader).
	PeerFetches  map[string]int64
	PeerRequests map[int]int64 // requests of other gateways, by status of the response
	Applied      int64         // fence of the last purge that was applied; 0 = none; -1 = not known yet
	LogsMissed   int64         // times that the log of purges did not reach back far enough, so all was purged
	LocksHeld    int           // now
	LocksWaiting int           // now
}

// Gateway is a registered gateway.
type Gateway struct {
	Name         string
	LastSeen     time.Time
	Announcement string // empty = none
	Live         bool   // purges wait for it
	Applied      int64  // fence of the last purge that it has applied; 0 = none; -1 = not known yet
	OtherSecret  bool   // its record as a member was not made with the secret of this gateway
	isMember     bool   // it has such a record
}

// counters are the counts of a Fleet, and the leases that it holds or waits for.
type counters struct {
	mu    sync.Mutex // guards the fields below
	n     Stats      // the counts
	locks map[*LockInfo]struct{}
}

// change calls a function that changes counts.
func (s *counters) change(f func(*Stats)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.n.PeerFetches == nil {
		s.n.PeerFetches, s.n.PeerRequests = map[string]int64{}, map[int]int64{}
	}
	f(&s.n)
}

// list lists a lock until end is called.
func (s *counters) list(l LockInfo) (end func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.locks == nil {
		s.locks = map[*LockInfo]struct{}{}
	}
	s.locks[&l] = struct{}{}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.locks, &l)
	}
}

// Stats returns the metrics, without a request to Redis.
func (f *Fleet) Stats() Stats {
	s := &f.stats
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.n
	n.Up, n.Opened, n.Applied = !f.breaker.isOpen(), f.breaker.opened.Load(), f.applied.Load()
	n.PeerFetches, n.PeerRequests = maps.Clone(n.PeerFetches), maps.Clone(n.PeerRequests)
	for l := range s.locks {
		if l.Waiting {
			n.LocksWaiting++
		} else {
			n.LocksHeld++
		}
	}
	return n
}

// Locks lists the leases that this gateway holds and those that it waits for, the oldest first.
func (f *Fleet) Locks() []LockInfo {
	s := &f.stats
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]LockInfo, 0, len(s.locks)) // in JSON not null, but []
	for l := range s.locks {
		list = append(list, *l)
	}
	slices.SortFunc(list, func(x, y LockInfo) int {
		return cmp.Or(x.Since.Compare(y.Since), cmp.Compare(x.Key, y.Key))
	})
	return list
}

// Name returns the name of this gateway in the list of registered gateways.
func (f *Fleet) Name() string { return f.self.Load().name }

// Gateways lists the registered gateways, by name.
func (f *Fleet) Gateways(ctx context.Context) ([]Gateway, error) {
	list, _, err := f.registered(ctx)
	if err == nil {
		f.addAnnounced(ctx, list)
	}
	return list, err
}

// registered returns the list without announcements. With another value of began, Redis has lost
// the list before.
func (f *Fleet) registered(ctx context.Context) (list []Gateway, began string, err error) {
	err = f.ask(ctx, "list the gateways", func(ctx context.Context) error {
		keys := []string{f.key("gateways"), f.key("applied"), f.key("members")}
		reply, err := gatewaysScript.Run(ctx, f.rdb, keys, maxMembers, maxName).StringSlice()
		if err != nil || len(reply)%4 != 1 {
			return cmp.Or(err, fmt.Errorf("cannot understand a list of %d", len(reply)))
		}
		began = reply[0]
		self := f.self.Load()
		for g := range slices.Chunk(reply[1:], 4) {
			age, _ := strconv.ParseInt(g[1], 10, 64)
			seen := time.Duration(age) * time.Millisecond
			name, ours := self.records.parse(g[3])
			list = append(list, Gateway{
				Name: g[0], LastSeen: time.Now().Add(-seen), Live: seen <= f.purges.live, Applied: parseFence(g[2]),
				OtherSecret: (!ours || name != g[0]) && g[3] != "" && self.advertise != "", isMember: g[3] != "",
			})
		}
		return nil
	})
	slices.SortFunc(list, func(a, b Gateway) int { return cmp.Compare(a.Name, b.Name) })
	return list, began, err
}
