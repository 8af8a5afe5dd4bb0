package fleet

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// LockInfo is a lease that this gateway holds, or waits for.
type LockInfo struct {
	Key     string
	Holder  string        // name of the gateway that has it; "" = unknown
	Since   time.Time     // when it was taken, or the waiting began
	TTL     time.Duration // after which it ends unless it is renewed; 0 = unknown
	Fence   int64         // 0 = unknown
	Waiting bool
}

// Stats are metrics since the start.
type Stats struct {
	Up       bool  // Redis serves
	Opened   int64 // times that it stopped serving
	Acquired int64 // leases taken
	Held     int64 // leases that another gateway had
	Failed   int64 // leases that could not be asked for
	Lost     int64 // leases lost
	// PeerFetches are reads from other gateways by how they went: ok, not_here, changed, broken,
	// unreachable, refused, abandoned (by the reader).
	PeerFetches  map[string]int64
	PeerRequests map[int]int64 // answered requests of other gateways, by status
	Obeyed       int64         // fence of the last purge that was applied; -1 = none yet
	LogsMissed   int64         // times that the log of purges did not reach back far enough, and everything was dropped
	LocksHeld    int           // now
	LocksWaiting int           // now
}

// Gateway is one that is registered.
type Gateway struct {
	Name     string
	LastSeen time.Time // by the clock of Redis
	Live     bool      // purges wait for it
	Obeyed   int64     // fence of the last purge that it has applied; -1 = none
	About    string    // what it tells about itself; empty = nothing
}

// leases counts what happens and lists the leases of now.
type leases struct {
	acquired, held, failed, lost, missed atomic.Int64

	mu    sync.Mutex // guards what follows
	next  int64
	locks map[int64]LockInfo
	peers map[string]int64
	asked map[int]int64 // requests of other gateways by status
}

// add notes a lock and returns the number under which it can be removed.
func (l *leases) add(info LockInfo) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.locks == nil {
		l.locks = make(map[int64]LockInfo)
	}
	l.next++
	l.locks[l.next] = info
	return l.next
}

func (l *leases) remove(id int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.locks, id)
}

// fetched counts a read from another gateway.
func (l *leases) fetched(result string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.peers == nil {
		l.peers = make(map[string]int64)
	}
	l.peers[result]++
}

// answered counts a request of another gateway.
func (l *leases) answered(status int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.asked == nil {
		l.asked = make(map[int]int64)
	}
	l.asked[status]++
}

// list copies the locks.
func (l *leases) list() []LockInfo {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := slices.AppendSeq(make([]LockInfo, 0, len(l.locks)), maps.Values(l.locks)) // in JSON not null, but []
	slices.SortFunc(list, func(x, y LockInfo) int {
		return cmp.Or(x.Since.Compare(y.Since), cmp.Compare(x.Key, y.Key))
	})
	return list
}

// Stats gives the metrics. Redis is not asked.
func (f *Fleet) Stats() Stats {
	s := Stats{
		Up: f.breaker.retryAfter() == 0, Opened: f.breaker.times(), Obeyed: f.appliedUpTo(),
		Acquired: f.leases.acquired.Load(), Held: f.leases.held.Load(), Failed: f.leases.failed.Load(),
		Lost: f.leases.lost.Load(), LogsMissed: f.leases.missed.Load(),
	}
	f.leases.mu.Lock()
	defer f.leases.mu.Unlock()
	s.PeerFetches, s.PeerRequests = maps.Clone(f.leases.peers), maps.Clone(f.leases.asked)
	for _, l := range f.leases.locks {
		if l.Waiting {
			s.LocksWaiting++
		} else {
			s.LocksHeld++
		}
	}
	return s
}

// Locks lists the leases that this gateway holds and those that it waits for, the oldest first. Of
// those that it waits for, Redis is asked who has them, as long as it serves and for no more than
// maxAsked.
func (f *Fleet) Locks(ctx context.Context) []LockInfo {
	list := f.leases.list()
	asked := 0
	for i := range list {
		if !list[i].Waiting || asked == maxAsked {
			continue
		}
		asked++
		if f.lookUp(ctx, &list[i]) != nil {
			break // the list is good without it
		}
	}
	return list
}

// maxAsked bounds how many locks Redis is asked for to show them.
const maxAsked = 100

// lookUp fills in who holds a lock and for how long.
func (f *Fleet) lookUp(ctx context.Context, l *LockInfo) error {
	return f.ask(ctx, "look at a lock", func(ctx context.Context) error {
		name := f.keys.lock(l.Key)
		var token *redis.StringCmd
		var ttl *redis.DurationCmd
		_, err := f.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			token, ttl = p.Get(ctx, name), p.PTTL(ctx, name)
			return nil
		})
		if err == nil {
			l.Holder, l.TTL = holderOf(token.Val()), max(ttl.Val(), 0)
		}
		if errors.Is(err, redis.Nil) { // it has become free
			return nil
		}
		return err
	})
}

// holderOf is the name of the holder in a lock's token.
func holderOf(token string) string {
	_, record, _ := strings.Cut(token, ":")
	name, _, _ := strings.Cut(record, " ")
	return name
}

// Name is the name of this gateway among those that are registered.
func (f *Fleet) Name() string { return f.o.Name }

// Gateways lists those that are registered, by name.
func (f *Fleet) Gateways(ctx context.Context) ([]Gateway, error) {
	var seen *redis.ZSliceCmd
	var obeyed *redis.MapStringStringCmd
	var now *redis.TimeCmd
	err := f.ask(ctx, "list the gateways", func(ctx context.Context) error {
		_, err := f.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			seen, obeyed, now = p.ZRangeWithScores(ctx, f.keys.gateways(), 0, -1), p.HGetAll(ctx, f.keys.obeyed()),
				p.Time(ctx)
			return nil
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	var list []Gateway
	for _, z := range seen.Val() {
		name, _ := z.Member.(string)
		at := time.UnixMilli(int64(z.Score))
		live := now.Val().Sub(at) <= f.purges.live
		list = append(list, Gateway{Name: name, LastSeen: at, Live: live, Obeyed: parseFence(obeyed.Val()[name])})
	}
	slices.SortFunc(list, func(a, b Gateway) int { return cmp.Compare(a.Name, b.Name) })
	f.told(ctx, list)
	return list, nil
}
