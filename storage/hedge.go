package storage

import (
	"context"
	"errors"
	"sync"
	"time"
)

// hedgeFloor is the shortest time after which a second server is asked.
const hedgeFloor = 5 * time.Millisecond

// Causes of a cancelled request.
var (
	errOutrun    = errors.New("another storage was faster")
	errNotNeeded = errors.New("the answer is not needed any more")
)

const (
	hedgePrice = 1_000_000       // of one second request, in the unit of the budget
	hedgeMost  = 20 * hedgePrice // what can be saved up
)

// budget lets a share of the requests be followed by a second one. It is safe for concurrent use.
type budget struct {
	rate int64 // earned by each first request; hedgePrice = every request may have a second one

	mu    sync.Mutex // guards saved
	saved int64
}

func (b *budget) earn() {
	b.mu.Lock()
	b.saved = min(b.saved+b.rate, hedgeMost)
	b.mu.Unlock()
}

func (b *budget) spend() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.saved < hedgePrice {
		return false
	}
	b.saved -= hedgePrice
	return true
}

// hedgeDelay is how long the first server is waited for before the second is asked too; false when that is never done: there is no
// second one, or it is dead, or too little is known about the first.
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

// limit is how long a server may take to begin an answer while others are left to ask; 0 = as long as the network timeout.
func (c *Client) limit(left int) time.Duration {
	if left > 0 {
		return c.t.impatience
	}
	return 0
}

// contest is a question that two servers were asked.
type contest[T any] struct {
	done chan struct{} // closed when the second one is through

	mu      sync.Mutex // guards what follows
	started bool       // the second one is being asked
	settled bool       // nobody waits for the second one any more, or it has won
	won     bool       // the second one has answered first
	answer  answer[T]  // of the second one, when it has won
	err     error      // of the second one
}

// race asks the first server and, when it is slower than usual, the second one too. The first good answer counts, and the other
// request is cancelled. It tells how many servers were asked and what went wrong with each; end of the answer is nil when
// there is none.
func race[T any](ctx context.Context, c *Client, servers []Server, q question[T]) (a answer[T], asked int, errs [2]error) {
	c.budget.earn()
	limit1, limit2 := c.limit(len(servers)-1), c.limit(len(servers)-2)
	delay, ok := c.hedgeDelay(servers)
	if !ok {
		a, errs[0] = try(ctx, c, servers[0], q, limit1)
		return a, 1, errs
	}
	ctx1, cancel1 := context.WithCancelCause(ctx)
	ctx2, cancel2 := context.WithCancelCause(ctx)
	k := &contest[T]{done: make(chan struct{})}
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
		cancel2(errNotNeeded)
		return a, k.asked(), errs
	}
	<-k.done
	if !k.won {
		cancel2(nil)
		return answer[T]{}, 2, [2]error{errs[0], k.err}
	}
	if errs[0] == nil { // both have answered
		a.drop(q)
	}
	c.counts.hedgeWins.Add(1)
	a = k.answer
	a.addEnd(func() { cancel2(nil) })
	return a, 2, errs
}

// firstWins is told what the first server said. False: the second one's answer is there or must be waited for.
func (k *contest[T]) firstWins(err error) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.won || err != nil && k.started {
		return false
	}
	k.settled = true
	return true
}

func (k *contest[T]) asked() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.started {
		return 2
	}
	return 1
}

// askSecond asks the second server, if that is still wanted and in the budget.
func (k *contest[T]) askSecond(ctx context.Context, c *Client, s Server, q question[T], limit time.Duration, cancelFirst context.CancelCauseFunc) {
	k.mu.Lock()
	k.started = !k.settled && c.budget.spend()
	started := k.started
	k.mu.Unlock()
	if !started {
		return
	}
	defer close(k.done)
	c.counts.hedges.Add(1)
	a, err := try(ctx, c, s, q, limit)
	k.mu.Lock()
	k.won = err == nil && !k.settled
	k.settled = true
	k.answer, k.err = a, err
	won := k.won
	k.mu.Unlock()
	switch {
	case won:
		cancelFirst(errOutrun)
	case err == nil:
		a.drop(q)
	}
}
