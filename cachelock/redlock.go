package cachelock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"fastdfs-gateway/internal/process/panics"

	"github.com/redis/go-redis/v9"
)

// NewRedlock returns a client that keeps each lock on a majority of several independent Redis
// masters (the Redlock algorithm). It works while less than half of them are down, hang, or reply
// slowly. Use an odd number of servers that do not fail together. The caller closes the Redis
// clients; set ContextTimeoutEnabled in their options to abandon hanging nodes at once.
//
// Redlock is for programs that have to lock while any one Redis host is lost, and have no use for
// fences. The gateway keeps its locks on one Redis: without it, gateways fetch by themselves.
//
// Its guarantee depends on the clocks of the nodes: a node whose clock jumps, or that restarts
// without its data before its locks have expired, may grant a lock twice. The fence of such a lock
// is 0, since counters of independent masters are not one sequence: data that two holders must
// never write needs a lock on one Redis with its fence. Fair locks are rejected: each node would
// have its own queue with its own head, and no waiter would get a majority.
func NewRedlock(nodes []redis.UniversalClient, o Options) *Client {
	c := newClient(o)
	s := &redlockStore{c: c, timeout: o.NodeTimeout}
	for _, rdb := range nodes {
		s.nodes, s.dials = append(s.nodes, newRedisStore(rdb, c)), append(s.dials, &dialError{})
		rdb.AddHook(s.dials[len(s.dials)-1])
	}
	c.store = s
	return c
}

// maxNodeTimeout bounds the default of Options.NodeTimeout.
const maxNodeTimeout = 50 * time.Millisecond

// redlockStore keeps each lock on a majority of the nodes.
type redlockStore struct {
	c       *Client
	nodes   []*redisStore
	dials   []*dialError  // one for each node
	timeout time.Duration // 0 = depends on the ttl of the lock
}

var _ store = (*redlockStore)(nil)

// quorum returns the number of nodes in a majority.
func (s *redlockStore) quorum() int { return len(s.nodes)/2 + 1 }

// limit returns the longest wait for a node. It is far below the ttl, so that a node that hangs
// costs little of the validity.
func (s *redlockStore) limit(ttl time.Duration) time.Duration {
	if s.timeout > 0 {
		return s.timeout
	}
	return max(min(ttl/10, maxNodeTimeout), time.Millisecond)
}

// errNodeTimeout: a node has not replied in time. errPending: the result does not depend on the
// node, and poll did not wait for it.
var (
	errNodeTimeout = fmt.Errorf("%w: a node has not replied in time", ErrUnreachable)
	errPending     = errors.New("the other nodes have decided")
)

// contained calls a node and turns a panic into an error.
func contained(ctx context.Context, node int, call func(ctx context.Context, node int) error) (err error) {
	defer panics.ToError(&err, "calling a node")
	return call(ctx, node)
}

// poll calls every node concurrently. It returns the errors of the nodes as soon as the missing
// ones cannot change the result, with errPending for these; at the latest after limit, with
// errNodeTimeout for these. The missing requests continue until they have replied or the client is
// closed.
func (s *redlockStore) poll(ctx context.Context, limit time.Duration,
	call func(ctx context.Context, node int) error) ([]error, error) {
	type reply struct {
		node int
		err  error
	}
	replies := make(chan reply, len(s.nodes))
	for i := range s.nodes {
		if !s.c.beginWork() {
			return nil, ErrClosed
		}
		go func() {
			defer s.c.running.Done()
			// The caller may return before the last node has replied.
			own, cancel := context.WithCancel(context.WithoutCancel(ctx))
			defer cancel()
			defer context.AfterFunc(s.c.ctx, cancel)()
			replies <- reply{i, contained(own, i, call)}
		}()
	}
	late := time.NewTimer(limit)
	defer late.Stop()
	errs := slices.Repeat([]error{errPending}, len(s.nodes))
	for !s.decided(errs) {
		select {
		case a := <-replies:
			errs[a.node] = a.err
		case <-late.C:
			for i := range errs {
				if errs[i] == errPending {
					errs[i] = errNodeTimeout
				}
			}
			return errs, nil
		case <-ctx.Done():
			return nil, cancelled(ctx)
		case <-s.c.ctx.Done():
			return nil, ErrClosed
		}
	}
	return errs, nil
}

// majority calls every node, each for at most limit. It returns nil if a majority agreed.
func (s *redlockStore) majority(ctx context.Context, what string, limit time.Duration,
	call func(ctx context.Context, node int) error) error {
	errs, err := s.poll(ctx, limit, func(ctx context.Context, node int) error {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		return call(ctx, node)
	})
	if err != nil {
		return err
	}
	return s.quorumError(what, errs)
}

// decided reports whether the missing replies cannot change the result.
func (s *redlockStore) decided(errs []error) bool {
	yes, no, down := tally(errs)
	blocks := len(s.nodes) - s.quorum()
	return yes >= s.quorum() || no > blocks || down > blocks || yes+no+down == len(s.nodes)
}

// tally counts the nodes that agreed, rejected, and failed.
func tally(errs []error) (yes, no, down int) {
	for _, err := range errs {
		switch {
		case err == nil:
			yes++
		case errors.Is(err, ErrHeld), errors.Is(err, ErrLost):
			no++
		case err != errPending:
			down++
		}
	}
	return yes, no, down
}

// quorumError returns nil if a majority agreed, ErrLost if so many nodes do not have the lock that
// no majority can, else ErrUnreachable.
func (s *redlockStore) quorumError(what string, errs []error) error {
	yes, no, _ := tally(errs)
	switch {
	case yes >= s.quorum():
		return nil
	case no > len(s.nodes)-s.quorum():
		return ErrLost
	}
	return s.unreachable(what, errs)
}

// unreachable returns the error of a request for which too few nodes are available.
func (s *redlockStore) unreachable(what string, errs []error) error {
	if s.c.ctx.Err() != nil {
		return ErrClosed // Close has cancelled the requests
	}
	var why []error // without the rejections, whose kind would become that of the whole error
	for i, err := range errs {
		dial := s.dials[i].err()
		switch {
		case (err == errNodeTimeout || errors.Is(err, ErrCancelled)) && dial != nil:
			why = append(why, fmt.Errorf("%w: %v", ErrUnreachable, dial)) // not %w: it may be of a context
		case errors.Is(err, ErrUnreachable):
			why = append(why, err)
		}
	}
	if len(why) == 0 {
		why = []error{errNodeTimeout}
	}
	_, _, down := tally(errs)
	return fmt.Errorf("cannot %s: %w: %d of %d nodes are unavailable: %w", what, ErrUnreachable, down, len(s.nodes),
		errors.Join(why...))
}

// redlockHold implements holding for a redlockStore.
type redlockHold struct {
	s     *redlockStore
	holds []*hold         // one for each node
	ended []chan struct{} // one for each node, closed when the request has ended: only then can its lock be released

	mu    sync.Mutex // guards the fields below
	ttl   time.Duration
	until time.Time // no node keeps the lock longer
}

var _ holding = (*redlockHold)(nil)

func (s *redlockStore) acquire(ctx context.Context, w lockRequest) (holding, int64, error) {
	switch {
	case len(s.nodes) == 0:
		return nil, 0, invalid("a redlock needs nodes")
	case w.fair:
		return nil, 0, invalid("a redlock cannot be fair")
	}
	h := &redlockHold{s: s, ttl: w.ttl, until: time.Now().Add(w.ttl)}
	for _, node := range s.nodes {
		h.holds = append(h.holds, node.newHold(w))
		h.ended = append(h.ended, make(chan struct{}))
	}
	limit := s.limit(w.ttl)
	errs, err := s.poll(ctx, limit, func(ctx context.Context, node int) error {
		defer close(h.ended[node])
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		_, _, err := s.nodes[node].acquire(ctx, w)
		return err
	})
	if yes, _, _ := tally(errs); err == nil && yes >= s.quorum() {
		return h, 0, nil
	}
	s.c.releaseInBackground(h, w.ttl)
	if err == nil {
		err = s.heldError(limit, errs)
	}
	return nil, 0, err
}

// heldError returns the error of a request that a majority did not grant. If a majority is
// available, the lock is held until so many locks expire on the nodes that the rest is a majority.
func (s *redlockStore) heldError(limit time.Duration, errs []error) error {
	var held []*HeldError
	votes := make(map[string]int)
	for _, err := range errs {
		if h := (*HeldError)(nil); errors.As(err, &h) {
			held = append(held, h)
			votes[h.Holder]++
		}
	}
	_, no, down := tally(errs)
	if down > len(s.nodes)-s.quorum() || no == 0 {
		return s.unreachable("acquire a lock", errs)
	}
	slices.SortFunc(held, func(a, b *HeldError) int { return cmp.Compare(a.TTL, b.TTL) })
	// A node with errPending may have granted the lock.
	missing := s.quorum() - (len(s.nodes) - no - down)
	result := *held[max(missing, 1)-1]
	for _, h := range held { // sorted by TTL: of holders with equally many nodes, the one with the longest
		if votes[h.Holder] >= votes[result.Holder] {
			result.Holder = h.Holder
		}
	}
	if votes[result.Holder] <= len(s.nodes)-s.quorum() {
		// No holder has a majority: all release their nodes, and retry after random times.
		result.TTL = min(result.TTL, between(limit/2, limit*3/2))
	}
	return &result
}

func (h *redlockHold) extend(ctx context.Context, ttl time.Duration) error {
	h.mu.Lock()
	h.ttl = ttl
	if until := time.Now().Add(ttl); until.After(h.until) {
		h.until = until
	}
	h.mu.Unlock()
	return h.s.majority(ctx, "extend a lock", h.s.limit(ttl), func(ctx context.Context, node int) error {
		return h.holds[node].extend(ctx, ttl)
	})
}

func (h *redlockHold) releaseKeys(ctx context.Context) error {
	h.mu.Lock()
	limit, until := h.s.limit(h.ttl), h.until
	h.mu.Unlock()
	errs, err := h.s.poll(ctx, limit, func(ctx context.Context, node int) error {
		return h.releaseNode(ctx, node, limit, until)
	})
	if err != nil {
		return err
	}
	return h.s.quorumError("release a lock", errs)
}

// releaseNode releases the lock on a node after the request for it has ended, and retries until the
// node replies or the lock has expired.
func (h *redlockHold) releaseNode(ctx context.Context, node int, limit time.Duration, until time.Time) error {
	select {
	case <-h.ended[node]:
	case <-ctx.Done():
		return errNodeTimeout
	}
	for pause := limit; ; pause *= 2 {
		one, cancel := context.WithTimeout(ctx, limit)
		err := h.holds[node].releaseKeys(one)
		cancel()
		if err == nil || errors.Is(err, ErrLost) || time.Now().Add(pause).After(until) {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return err
		}
	}
}

func (s *redlockStore) leave(ctx context.Context, key, waiter string) error {
	return s.majority(ctx, "leave a queue", s.limit(s.c.o.TTL), func(ctx context.Context, node int) error {
		return s.nodes[node].leave(ctx, key, waiter)
	})
}

// listen subscribes on a majority of the nodes. No lock is held meanwhile, and a new connection
// needs several round trips: it has more time than a request.
func (s *redlockStore) listen(ctx context.Context) error {
	return s.majority(ctx, "subscribe to releases", subscribeTimeout, func(ctx context.Context, node int) error {
		return s.nodes[node].listen(ctx)
	})
}

func (s *redlockStore) close() error {
	var errs []error
	for _, node := range s.nodes {
		errs = append(errs, node.close())
	}
	return errors.Join(errs...)
}
