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

const (
	hedgeCost = 1_000_000      // price of one hedged request, in the unit of the budget
	maxSaved  = 20 * hedgeCost // limit of the savings
)

// budget allows hedged requests for a share of the requests. It is safe for concurrent use.
type budget struct {
	rate int64 // earned by each request; hedgeCost = every request may be hedged

	mu    sync.Mutex // guards saved
	saved int64
}

func (b *budget) earn() {
	b.mu.Lock()
	b.saved = min(b.saved+b.rate, maxSaved)
	b.mu.Unlock()
}

func (b *budget) spend() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.saved < hedgeCost {
		return false
	}
	b.saved -= hedgeCost
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
	c.mu.Unlock()
	if first == nil || second != nil && second.health.state() == Dead {
		return 0, false
	}
	p95, ok := first.health.p95()
	return max(p95, hedgeFloor), ok
}

// limit returns how long a server may take to begin its answer while left other servers can be
// asked; 0 = the network timeout applies.
func (c *Client) limit(left int) time.Duration {
	if left > 0 {
		return c.t.answerTimeout
	}
	return 0
}

// hedgedRequest is a request that may be sent to a second server.
type hedgedRequest[T any] struct {
	done chan struct{} // closed at the end of the request to the second server

	mu      sync.Mutex // guards the fields below
	started bool       // the second server has been asked
	decided bool       // the second server is not needed any more, or has won
	won     bool       // the second server gave a good result first
	result  result[T]  // that of the second server, if won
	err     error      // that of the second server
}

// race asks the first server and, if that is slower than usual, the second one too. The first good
// result counts, and the other request is cancelled. It returns the number of servers that were
// asked and their errors; end of the result is nil if there is none.
func race[T any](ctx context.Context, c *Client, servers []Server, q request[T]) (a result[T], asked int,
	errs [2]error) {
	c.budget.earn()
	limit1, limit2 := c.limit(len(servers)-1), c.limit(len(servers)-2)
	delay, ok := c.hedgeDelay(servers)
	if !ok {
		a, errs[0] = try(ctx, c, servers[0], q, limit1)
		return a, 1, errs
	}
	ctx1, cancel1 := context.WithCancelCause(ctx)
	ctx2, cancel2 := context.WithCancelCause(ctx)
	k := &hedgedRequest[T]{done: make(chan struct{})}
	timer := time.AfterFunc(delay, func() {
		if c.enter() {
			defer c.running.Done()
			k.askSecond(ctx2, c, servers[1], q, limit2, cancel1)
		}
	})
	a, errs[0] = try(ctx1, c, servers[0], q, limit1)
	timer.Stop()
	a.addEnd(func() { cancel1(nil) })
	if k.firstWins(errs[0]) {
		cancel2(errUnneeded)
		return a, k.asked(), errs
	}
	<-k.done
	if !k.won {
		cancel2(nil)
		return result[T]{}, 2, [2]error{errs[0], k.err}
	}
	if errs[0] == nil { // both gave a good result
		a.drop(q)
	}
	c.counts.hedgeWins.Add(1)
	a = k.result
	a.addEnd(func() { cancel2(nil) })
	return a, 2, errs
}

// firstWins takes the first server's error and reports whether its outcome decides; else the second
// server's outcome is known or must be awaited.
func (k *hedgedRequest[T]) firstWins(err error) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.won || err != nil && k.started {
		return false
	}
	k.decided = true
	return true
}

func (k *hedgedRequest[T]) asked() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.started {
		return 2
	}
	return 1
}

// askSecond asks the second server, if it is still needed and the budget allows it.
func (k *hedgedRequest[T]) askSecond(ctx context.Context, c *Client, s Server, q request[T], limit time.Duration,
	cancelFirst context.CancelCauseFunc) {
	k.mu.Lock()
	k.started = !k.decided && c.budget.spend()
	started := k.started
	k.mu.Unlock()
	if !started {
		return
	}
	defer close(k.done)
	c.counts.hedges.Add(1)
	a, err := try(ctx, c, s, q, limit)
	k.mu.Lock()
	k.won = err == nil && !k.decided
	k.decided = true
	k.result, k.err = a, err
	won := k.won
	k.mu.Unlock()
	switch {
	case won:
		cancelFirst(errHedgeWon)
	case err == nil:
		a.drop(q)
	}
}
