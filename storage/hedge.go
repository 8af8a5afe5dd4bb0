package storage

import (
	"context"
	"errors"
	"sync"
	"time"
)

// hedgeFloor is the minimum delay of a hedged request.
const hedgeFloor = 5 * time.Millisecond

// Causes of a cancelled request.
var (
	errHedgeWon = errors.New("another storage was faster")
	errUnneeded = errors.New("the answer is not needed any more")
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

// hedgeDelay returns the time after which the second server is asked as well; false if it is not
// asked: there is none, it is dead, or the first one has too few latencies.
func (c *Client) hedgeDelay(servers []Server) (time.Duration, bool) {
	if c.budget.rate == 0 || len(servers) < 2 {
		return 0, false
	}
	c.mu.Lock()
	first, second := c.members[servers[0]], c.members[servers[1]]
	if first == nil || second != nil && second.health.state() == Dead {
		c.mu.Unlock()
		return 0, false
	}
	latencies := first.health // a copy, to be sorted without the lock
	c.mu.Unlock()
	p95, ok := latencies.p95()
	return max(p95, hedgeFloor), ok
}

// race asks the first server and, if that is slower than usual, the second one too. The first good
// answer counts, and the other request is cancelled. errs are those of the servers that were asked;
// one of them is nil if there is an answer.
func (c *Client) race(ctx context.Context, servers []Server, q request) (a answer, errs []error) {
	c.budget.earn()
	delay, mayHedge := c.hedgeDelay(servers)
	if !mayHedge {
		ctx, cancel := context.WithCancelCause(ctx)
		a, err := c.try(ctx, cancel, servers[0], q, len(servers)-1)
		return a, []error{err}
	}
	type outcome struct {
		answer
		err error
		by  int
	}
	outcomes := make(chan outcome, 2)
	var cancels [2]context.CancelCauseFunc
	ask := func(i int) {
		ctx, cancel := context.WithCancelCause(ctx)
		cancels[i], errs = cancel, append(errs, nil)
		go func() {
			a, err := c.try(ctx, cancel, servers[i], q, len(servers)-1-i)
			outcomes <- outcome{a, err, i}
		}()
	}
	ask(0)
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case first := <-outcomes:
		return first.answer, []error{first.err}
	case <-timer.C:
	}
	if c.budget.spend() {
		c.counts.hedges.Add(1)
		ask(1)
	}
	won := false
	for range len(errs) { // both requests end here: one that is not needed is cancelled
		o := <-outcomes
		errs[o.by] = o.err
		switch {
		case o.err != nil:
		case won:
			o.drop()
		default:
			a, won = o.answer, true
			if o.by == 1 {
				c.counts.hedgeWins.Add(1)
				cancels[0](errHedgeWon)
			} else if len(errs) > 1 {
				cancels[1](errUnneeded)
			}
		}
	}
	return a, errs
}
