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

// race sends a request to the first server and, if that is slower than usual, to the second one
// too. The first good reply counts, and the other request is cancelled. errs has one error for each
// server that got the request; one of them is nil if there is a reply.
func (c *Client) race(ctx context.Context, servers []Server, q request) (a reply, errs []error) {
	c.budget.earn()
	ctx1, cancel1 := context.WithCancelCause(ctx)
	delay, mayHedge := c.hedgeDelay(servers)
	if !mayHedge {
		a, err := c.try(ctx1, cancel1, servers[0], q, len(servers)-1)
		return a, []error{err}
	}
	type outcome struct {
		reply
		err        error
		asked, won bool
	}
	var decided atomic.Bool // one of the servers has won
	second := make(chan outcome, 1)
	ctx2, cancel2 := context.WithCancelCause(ctx)
	timer := time.AfterFunc(delay, func() {
		o := outcome{asked: c.budget.spend()}
		if o.asked {
			c.counts.hedges.Add(1)
			o.reply, o.err = c.try(ctx2, cancel2, servers[1], q, len(servers)-2)
			o.won = o.err == nil && decided.CompareAndSwap(false, true)
		}
		if o.won {
			cancel1(errHedgeWon)
		}
		second <- o
	})
	a, err := c.try(ctx1, cancel1, servers[0], q, len(servers)-1)
	if timer.Stop() {
		cancel2(nil)
		return a, []error{err}
	}
	if err == nil && decided.CompareAndSwap(false, true) {
		cancel2(errUnneeded)
	}
	o := <-second // soon if the second server has lost: its request is cancelled
	switch {
	case !o.asked:
		cancel2(nil)
		return a, []error{err}
	case o.won:
		if err == nil {
			a.drop()
		}
		c.counts.hedgeWins.Add(1)
		a = o.reply
	case o.err == nil:
		o.drop()
	}
	return a, []error{err, o.err}
}
