package cachelock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// NewRedlock returns a client whose locks are kept by most of several independent Redis masters (the Redlock algorithm): it goes
// on while less than half of them are down, hang, or answer slowly. An odd number is best, of servers that do not fail together.
// The Redis clients stay the caller's; ContextTimeoutEnabled in their options lets go of a node that hangs at once.
//
// What it promises is what the clocks of the nodes allow: a node whose clock jumps, or that comes back without its data before
// the locks that it had have expired, may give its vote twice. The fence of such a lock is 0, since the counters of independent
// masters are no sequence: what must never be written by two holders needs a lock on one Redis and its fence. Fair locks are
// refused: each node would have a queue of its own, with a head of its own, and none of them would ever get most of the votes.
func NewRedlock(nodes []redis.UniversalClient, o Options) *Client {
	c := newClient(o)
	s := &redlockStore{c: c, timeout: o.NodeTimeout}
	for _, rdb := range nodes {
		s.nodes = append(s.nodes, newRedisStore(rdb, c))
	}
	c.store = s
	return c
}

// maxNodeTimeout bounds how long a node is waited for by default, see Options.NodeTimeout.
const maxNodeTimeout = 50 * time.Millisecond

// redlockStore keeps each lock in most of several Redis.
type redlockStore struct {
	c       *Client
	nodes   []*redisStore
	timeout time.Duration // 0 = by the ttl of the lock
	seq     atomic.Uint64 // of attempts
}

var _ store = (*redlockStore)(nil)

// quorum is how many nodes are most of them.
func (s *redlockStore) quorum() int { return len(s.nodes)/2 + 1 }

// limit is how long a node is waited for. It is far below the ttl, so that a node that hangs costs little of the validity.
func (s *redlockStore) limit(ttl time.Duration) time.Duration {
	if s.timeout > 0 {
		return s.timeout
	}
	return max(min(ttl/10, maxNodeTimeout), time.Millisecond)
}

// errSilent is the answer of a node that has not answered in time, errPending of one that was not waited for to the end.
var (
	errSilent  = fmt.Errorf("%w: a node has not answered in time", ErrUnreachable)
	errPending = errors.New("the other nodes have decided")
)

// poll asks every node at the same time and returns their answers as soon as most of them said yes, or so many said no, or do not
// serve, that most of them never will. A node that is not waited for goes on being asked, until it answers or the client is closed.
func (s *redlockStore) poll(ctx context.Context, limit time.Duration, ask func(ctx context.Context, node int) error) ([]error, error) {
	type answer struct {
		node int
		err  error
	}
	answers := make(chan answer, len(s.nodes))
	for i := range s.nodes {
		if !s.c.begin() {
			return nil, ErrClosed
		}
		go func() {
			defer s.c.running.Done()
			// Whoever asked may be gone before the last node has answered.
			own, cancel := context.WithCancel(context.WithoutCancel(ctx))
			defer cancel()
			defer context.AfterFunc(s.c.ctx, cancel)()
			answers <- answer{i, ask(own, i)}
		}()
	}
	late := time.NewTimer(limit)
	defer late.Stop()
	errs := slices.Repeat([]error{errPending}, len(s.nodes))
	for !s.decided(errs) {
		select {
		case a := <-answers:
			errs[a.node] = a.err
		case <-late.C:
			for i := range errs {
				if errs[i] == errPending {
					errs[i] = errSilent
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

// decided tells whether the nodes that have not answered yet can change the result.
func (s *redlockStore) decided(errs []error) bool {
	yes, no, down := tally(errs)
	blocks := len(s.nodes) - s.quorum()
	return yes >= s.quorum() || no > blocks || down > blocks || yes+no+down == len(s.nodes)
}

// tally counts the nodes that said yes, that said no, and that do not serve.
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

// verdict is nil when most nodes said yes, ErrLost when so many said that they do not have the lock that most cannot have it, and
// else ErrUnreachable.
func (s *redlockStore) verdict(what string, errs []error) error {
	yes, no, _ := tally(errs)
	switch {
	case yes >= s.quorum():
		return nil
	case no > len(s.nodes)-s.quorum():
		return ErrLost
	}
	return s.tooFew(what, errs)
}

// tooFew is the error when too few nodes serve.
func (s *redlockStore) tooFew(what string, errs []error) error {
	if s.c.ctx.Err() != nil {
		return ErrClosed // meanwhile, which has cancelled what was on its way
	}
	var why []error // without those that said no, whose kind would be taken for the whole's
	for _, err := range errs {
		if errors.Is(err, ErrUnreachable) {
			why = append(why, err)
		}
	}
	if len(why) == 0 {
		why = []error{errSilent}
	}
	_, _, down := tally(errs)
	return fmt.Errorf("cannot %s: %w: %d of %d nodes do not serve: %w", what, ErrUnreachable, down, len(s.nodes), errors.Join(why...))
}

// redlockHold is a redlockStore's holding: the votes of the nodes.
type redlockHold struct {
	s     *redlockStore
	holds []*hold         // one a node
	asked []chan struct{} // one a node, closed when its vote has been asked for: what it has given can be taken back then

	mu    sync.Mutex // guards all below
	ttl   time.Duration
	until time.Time // no node has it after that
}

var _ holding = (*redlockHold)(nil)

func (s *redlockStore) acquire(ctx context.Context, w wanted) (holding, int64, error) {
	switch {
	case len(s.nodes) == 0:
		return nil, 0, invalid("a redlock needs nodes")
	case w.fair:
		return nil, 0, invalid("a redlock cannot be fair")
	}
	w = s.another(w)
	h := &redlockHold{s: s, ttl: w.ttl, until: time.Now().Add(w.ttl)}
	for _, node := range s.nodes {
		h.holds = append(h.holds, node.newHold(w))
		h.asked = append(h.asked, make(chan struct{}))
	}
	limit := s.limit(w.ttl)
	errs, err := s.poll(ctx, limit, func(ctx context.Context, node int) error {
		defer close(h.asked[node])
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		_, _, err := s.nodes[node].acquire(ctx, w)
		return err
	})
	if yes, _, _ := tally(errs); err == nil && yes >= s.quorum() {
		s.leaveHeld(w, errs)
		return h, 0, nil
	}
	s.c.giveBack(h)
	if err == nil {
		err = s.refusal(limit, errs)
	}
	return nil, 0, err
}

// another makes an attempt differ from those before it, whose votes may be on their way back: giving them back must not take the
// votes of this one.
func (s *redlockStore) another(w wanted) wanted {
	n := strconv.FormatUint(s.seq.Add(1), 36)
	if w.hold != "" {
		w.hold += "." + n
		return w
	}
	random, holder, _ := strings.Cut(w.token, ":")
	w.token = random + "." + n + ":" + holder
	return w
}

// refusal is the error of a request that did not get most of the votes. When the nodes that serve are most of them, the lock is
// held, until so many of the others' votes expire that the rest are most.
func (s *redlockStore) refusal(limit time.Duration, errs []error) error {
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
		return s.tooFew("acquire a lock", errs)
	}
	slices.SortFunc(held, func(a, b *HeldError) int { return cmp.Compare(a.TTL, b.TTL) })
	// A node that was not waited for may have given its vote.
	missing := s.quorum() - (len(s.nodes) - no - down)
	result := *held[max(missing, 1)-1]
	for _, h := range held { // sorted: of those with as many votes the one that lasts, and is not about to be given back
		if votes[h.Holder] >= votes[result.Holder] {
			result.Holder = h.Holder
		}
	}
	if votes[result.Holder] <= len(s.nodes)-s.quorum() {
		// Nobody has so many that the others are too few: all give theirs back at once, and at random one comes first next time.
		result.TTL = min(result.TTL, between(limit/2, limit*3/2))
	}
	return &result
}

// leaveHeld takes the waiter, who has got the lock, out of the queues of the nodes that did not give their vote, where he would
// be told in the place of others. Whoever waits behind him in this process under the same name enters again.
func (s *redlockStore) leaveHeld(w wanted, errs []error) {
	if w.waiter == "" || !slices.ContainsFunc(errs, func(err error) bool { return err != nil }) || !s.c.begin() {
		return
	}
	go func() {
		defer s.c.running.Done()
		for _, key := range w.keys {
			_ = s.leave(s.c.ctx, key, w.waiter) // else his name expires
			s.c.lines.wake(lineOf(w.waiter, key))
		}
	}()
}

func (h *redlockHold) extend(ctx context.Context, ttl time.Duration, sooner bool) error {
	h.mu.Lock()
	h.ttl = ttl
	if until := time.Now().Add(ttl); until.After(h.until) {
		h.until = until
	}
	h.mu.Unlock()
	limit := h.s.limit(ttl)
	errs, err := h.s.poll(ctx, limit, func(ctx context.Context, node int) error {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		return h.holds[node].extend(ctx, ttl, sooner)
	})
	if err != nil {
		return err
	}
	return h.s.verdict("extend a lock", errs)
}

func (h *redlockHold) release(ctx context.Context) error {
	h.mu.Lock()
	limit, until := h.s.limit(h.ttl), h.until
	h.mu.Unlock()
	errs, err := h.s.poll(ctx, limit, func(ctx context.Context, node int) error {
		return h.free(ctx, node, limit, until)
	})
	if err != nil {
		return err
	}
	return h.s.verdict("release a lock", errs)
}

// free takes back the vote of a node, after the request for it is over, and again until the node answers or the vote has expired.
func (h *redlockHold) free(ctx context.Context, node int, limit time.Duration, until time.Time) error {
	select {
	case <-h.asked[node]:
	case <-ctx.Done():
		return errSilent
	}
	for pause := limit; ; pause *= 2 {
		one, cancel := context.WithTimeout(ctx, limit)
		err := h.holds[node].release(one)
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
	limit := s.limit(s.c.o.TTL)
	errs, err := s.poll(ctx, limit, func(ctx context.Context, node int) error {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		return s.nodes[node].leave(ctx, key, waiter)
	})
	if err != nil {
		return err
	}
	return s.verdict("leave a queue", errs)
}

// listen subscribes to most of the nodes at least.
func (s *redlockStore) listen(ctx context.Context) error {
	limit := s.limit(s.c.o.TTL)
	errs, err := s.poll(ctx, limit, func(ctx context.Context, node int) error {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		return s.nodes[node].listen(ctx)
	})
	if err != nil {
		return err
	}
	return s.verdict("subscribe to releases", errs)
}

func (s *redlockStore) close() error {
	var errs []error
	for _, node := range s.nodes {
		errs = append(errs, node.close())
	}
	return errors.Join(errs...)
}
