package cachelock

import (
	"container/list"
	"errors"
	"sync"
	"time"
)

// queueKey identifies a wait queue by the name of its waiter in Redis and the lock. The message of
// a release has both.
type queueKey struct{ member, key string }

// waitQueues are the waiters of this process.
type waitQueues struct {
	mu sync.Mutex // guards m and the fields of queues and waiters
	m  map[queueKey]*waitQueue
}

// waitQueue has the waiters with the same queueKey. Only the first one, the head, sends requests.
type waitQueue struct {
	waiters list.List
	state   queueState
	held    *HeldError // last rejection
	heldAt  time.Time  // time of the last rejection
}

// queueState is the effect of attempts on the queue in Redis.
type queueState int

const (
	untried queueState = iota // the next attempt does not enter the queue
	tried                     // the next attempt enters it
	entered                   // the name may be in the queue
)

// waiter is one waiting call.
type waiter struct {
	name    queueKey
	queue   *waitQueue
	element *list.Element
	wake    chan struct{} // holds one notification
	state   queueState    // entered after a request of this call that enters the queue
	failed  error         // error of an earlier head that holds for all
}

// join adds a waiter. state is tried if its first attempt enters the queue in Redis: the lock is
// known to be held, or is fair and keeps the order of arrival.
func (l *waitQueues) join(name queueKey, state queueState) *waiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.m == nil {
		l.m = map[queueKey]*waitQueue{}
	}
	if l.m[name] == nil {
		l.m[name] = &waitQueue{}
	}
	w := &waiter{name: name, queue: l.m[name], wake: make(chan struct{}, 1)}
	w.queue.state = max(w.queue.state, state)
	w.element = w.queue.waiters.PushBack(w)
	return w
}

// leave removes w and notifies the new head. last: no waiter is left, and the name may be in the
// queue in Redis.
func (l *waitQueues) leave(w *waiter) (last bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	wasHead := w.isHead()
	w.queue.waiters.Remove(w.element)
	if w.queue.waiters.Len() == 0 {
		delete(l.m, w.name)
		return w.queue.state == entered
	}
	if wasHead {
		w.queue.head().notify()
	}
	return false
}

// wake notifies the head of a queue; false if there is none.
func (l *waitQueues) wake(name queueKey) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	queue := l.m[name]
	if queue != nil {
		queue.head().notify()
	}
	return queue != nil
}

// wakeMatching notifies the heads of all queues of locks whose key matches.
func (l *waitQueues) wakeMatching(matches func(key string) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, queue := range l.m {
		if matches(name.key) {
			queue.head().notify()
		}
	}
}

// status reports whether w is the head; failed is not nil if waiting is pointless.
func (l *waitQueues) status(w *waiter) (head bool, failed error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return w.isHead(), w.failed
}

// firstAttempt reports, once for each wait queue, whether to try before entering the queue in
// Redis.
func (l *waitQueues) firstAttempt(w *waiter) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	first := w.queue.state == untried
	w.queue.state = max(w.queue.state, tried)
	return first
}

// recordAttempt records the result of a head's request. If Redis is unavailable, the other waiters
// fail too, so that they need not try one after the other.
func (l *waitQueues) recordAttempt(w *waiter, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := (*HeldError)(nil)
	switch {
	case err == nil:
		w.queue.state = tried // the script removes the new holder's name from the queue
	case errors.As(err, &h):
		if h.queue == w.name.key {
			w.queue.held, w.queue.heldAt = h, time.Now()
			w.queue.state = max(w.queue.state, w.state)
		}
	default:
		w.queue.state = max(w.queue.state, w.state)
		if errors.Is(err, ErrUnreachable) && !errors.Is(err, errLate) {
			w.queue.fail(w, err)
		}
	}
}

// lastHeld returns the error for a waiter that is not the head when its time is over: the last
// rejection of a head.
func (l *waitQueues) lastHeld(w *waiter) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.queue.held == nil {
		return &HeldError{Key: w.name.key, queue: w.name.key}
	}
	held := *w.queue.held
	held.TTL = max(held.TTL-time.Since(w.queue.heldAt), 0)
	return &held
}

func (l *waitQueue) head() *waiter { return l.waiters.Front().Value.(*waiter) }

// fail fails all waiters but w.
func (l *waitQueue) fail(w *waiter, err error) {
	for e := l.waiters.Front(); e != nil; e = e.Next() {
		if other := e.Value.(*waiter); other != w {
			other.failed = err
			other.notify()
		}
	}
}

func (w *waiter) isHead() bool { return w.queue.waiters.Front() == w.element }

func (w *waiter) notify() {
	select {
	case w.wake <- struct{}{}:
	default: // a notification is pending already
	}
}
