package client

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// hedgeFloor is the minimum delay of a hedged request.
const hedgeFloor = 5 * time.Millisecond

// Causes of a cancelled request.
var (
	errHedgeWon = errors.New("another storage was faster")
	errUnneeded = errors.New("the reply is not needed any more")
)

// maxSaved bounds the hedged requests that a budget saves up.
const maxSaved = 20

// budget allows hedged requests for a share of the requests. It is safe for concurrent use.
type budget struct {
	rate float64 // earned by each request; 1 = every request may be hedged

	mu    sync.Mutex // guards saved
	saved float64
}

func (b *budget) earn() {
	b.mu.Lock()
	b.saved = min(b.saved+b.rate, maxSaved)
	b.mu.Unlock()
}

func (b *budget) spend() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.saved < 1 {
		return false
	}
	b.saved--
	return true
}

// hedgeDelay returns the time after which the second server gets the request too. It returns false
// if the request is not hedged: hedging is off, there is no second server or it is dead, or the
// first one has too few latencies.
func (c *Client) hedgeDelay(servers []Server) (time.Duration, bool) {
	if c.budget.rate == 0 || len(servers) < 2 {
		return 0, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	first, second := c.members[servers[0]], c.members[servers[1]]
	if first == nil || second != nil && second.health.state() == Dead {
		return 0, false
	}
	p95, ok := first.health.p95()
	return max(p95, hedgeFloor), ok
}

// attempt is a request to one of the servers of a race.
type attempt struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	reply  reply
	err    error
}

func newAttempt(ctx context.Context) *attempt {
	a := &attempt{}
	a.ctx, a.cancel = context.WithCancelCause(ctx)
	return a
}

// race sends a request to the first server and, if that is slower than usual, to the second one
// too. The first good reply counts, and the other request is cancelled. errs has one error for each
// server that got the request; one of them is nil if there is a reply.
func (c *Client) race(ctx context.Context, servers []Server, q request) (_ reply, errs []error) {
	c.budget.earn()
	first := newAttempt(ctx)
	delay, mayHedge := c.hedgeDelay(servers)
	if !mayHedge {
		c.attempt(first, servers, q)
		return first.reply, []error{first.err}
	}
	second := newAttempt(ctx)
	var winner atomic.Pointer[attempt]
	hedge := make(chan bool, 1) // gets whether the second server was asked, when its attempt is over
	timer := time.AfterFunc(delay, func() {
		affordable := c.budget.spend()
		if affordable {
			c.counts.hedges.Add(1)
			c.attempt(second, servers[1:], q)
			if second.err == nil && winner.CompareAndSwap(nil, second) {
				first.cancel(errHedgeWon)
			}
		}
		hedge <- affordable
	})
	c.attempt(first, servers, q)
	if first.err == nil && winner.CompareAndSwap(nil, first) {
		second.cancel(errUnneeded)
	}
	if timer.Stop() || !<-hedge { // the hedge ends soon: its request is cancelled, or has a reply
		second.cancel(nil)
		return first.reply, []error{first.err}
	}
	winning, other := first, second
	if winner.Load() == second {
		c.counts.hedgeWins.Add(1)
		winning, other = second, first
	}
	if other.err == nil {
		other.reply.drop()
	}
	return winning.reply, []error{first.err, second.err}
}

// attempt sends the request to the first one of the servers; the others are those that are left.
func (c *Client) attempt(a *attempt, servers []Server, q request) {
	a.reply, a.err = c.try(a.ctx, a.cancel, servers[0], q, len(servers)-1)
}
