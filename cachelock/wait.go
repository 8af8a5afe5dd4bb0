package cachelock

import (
	"context"
	"errors"
	"strings"
	"time"

	"fastdfs-gateway/internal/process/panics"
)

// All calls of this process that wait for the same lock are in one wait queue, and only its head
// sends requests to Redis. The script that checks the lock once more also adds the name of the
// process to the lock's queue in Redis, so no release is missed in between. A release notifies one
// process, which wakes its head. So a thousand waiters cost Redis no more than one. For a fair lock
// each waiter has a separate name in Redis and a separate wait queue.
//
// Every notification is used or passed on: a head that leaves wakes the next waiter, the last
// waiter leaves the queue in Redis by a script that notifies the next process if the lock is free,
// and so does a process that is notified without having waiters. All heads try again when the
// connection of the notifications was replaced. Other lost messages are compensated by polling.

// attempt tries to acquire a lock. If the lock is held and waiter is not empty, it adds waiter to
// the queue in Redis.
type attempt func(ctx context.Context, waiter string) (*Lock, error)

// acquireOrWait tries to acquire a lock, and waits for it according to the policy: first in the
// wait queue of key, then in the one that a failed attempt names.
func (c *Client) acquireOrWait(ctx context.Context, key string, o LockOptions, try attempt) (*Lock, error) {
	switch {
	case ctx.Err() != nil:
		return nil, cancelled(ctx)
	case c.ctx.Err() != nil:
		return nil, ErrClosed
	case !o.Policy.waits():
		return try(ctx, "")
	}
	p := &waitBudget{p: o.Policy, retries: o.Policy.Retries, began: time.Now()}
	name, state := queueKey{c.member(o.Fair), key}, untried
	if o.Fair {
		state = tried
	}
	for {
		w := c.waitQueues.join(name, state)
		lock, err := c.wait(ctx, w, p, try)
		if c.waitQueues.leave(w) {
			c.leaveQueue(name)
		}
		to := queueKey{name.member, queueOf(err, name.key)}
		if to == name {
			return lock, err
		}
		if p.over { // the last attempt has entered that queue
			c.leaveQueue(to)
			return lock, err
		}
		name, state = to, max(tried, w.state)
	}
}

// queueOf returns the wait queue to join after a failed attempt.
func queueOf(err error, key string) string {
	if h := (*HeldError)(nil); errors.As(err, &h) {
		return h.queue
	}
	return key
}

// wait returns when the lock was acquired, when another wait queue must be joined, or when the
// policy, the caller or Redis end it.
func (c *Client) wait(ctx context.Context, w *waiter, p *waitBudget, try attempt) (*Lock, error) {
	for {
		head, err := c.waitQueues.status(w)
		if err != nil {
			return nil, err
		}
		if head {
			lock, err := c.tryAsHead(ctx, w, try)
			if !errors.Is(err, ErrHeld) || queueOf(err, w.name.key) != w.name.key {
				return lock, err
			}
			p.poll = time.After(c.pollDelay(err))
		}
		p.start()
		select {
		case <-w.wake:
		case <-p.poll:
		case <-p.pause:
			if p.paused() {
				return c.lastTry(ctx, w, try)
			}
		case <-p.end:
			p.over = true
			return c.lastTry(ctx, w, try)
		case <-ctx.Done():
			return nil, cancelled(ctx)
		case <-c.ctx.Done():
			return nil, ErrClosed
		}
	}
}

// lastTry makes a last attempt at the end of the budget if w is the head, which may just have been
// notified.
func (c *Client) lastTry(ctx context.Context, w *waiter, try attempt) (*Lock, error) {
	head, err := c.waitQueues.status(w)
	switch {
	case err != nil:
		return nil, err
	case !head:
		return nil, c.waitQueues.lastHeld(w)
	}
	return c.tryAsHead(ctx, w, try)
}

// tryAsHead subscribes and makes an attempt that enters the queue in Redis. The first attempt of a
// wait queue precedes both, and does not enter the queue: the lock may be free, or another lock may
// be in the way. The result counts for all waiters in the wait queue.
func (c *Client) tryAsHead(ctx context.Context, w *waiter, try attempt) (*Lock, error) {
	if c.waitQueues.firstAttempt(w) {
		lock, err := try(ctx, "")
		c.waitQueues.recordAttempt(w, err)
		if !errors.Is(err, ErrHeld) || queueOf(err, w.name.key) != w.name.key {
			return lock, err
		}
	}
	if err := c.store.listen(ctx); err != nil {
		c.waitQueues.recordAttempt(w, err)
		return nil, err
	}
	w.state = entered
	lock, err := try(ctx, w.name.member)
	c.waitQueues.recordAttempt(w, err)
	return lock, err
}

// waitBudget is the unused part of a policy.
type waitBudget struct {
	p       Policy
	began   time.Time
	retries int
	over    bool
	end     <-chan time.Time // of Policy.Wait
	pause   <-chan time.Time // of a sleep, if there is no Policy.Wait
	poll    <-chan time.Time
}

// start sets the timer of the policy, unless it is set already.
func (p *waitBudget) start() {
	switch {
	case p.end != nil || p.pause != nil:
	case p.p.Wait > 0:
		p.end = time.After(time.Until(p.began.Add(p.p.Wait)))
	default:
		p.pause = time.After(p.p.sleep())
	}
}

// paused records the end of a sleep, and reports whether it was the last one.
func (p *waitBudget) paused() bool {
	p.retries--
	p.over = p.retries <= 0
	if !p.over {
		p.pause = time.After(p.p.sleep())
	}
	return p.over
}

// pollDelay returns the time until the next attempt without a notification: the poll interval, or
// the remaining time of the lock if that is shorter, both a little longer at random.
func (c *Client) pollDelay(held error) time.Duration {
	delay := between(c.o.Poll, c.o.Poll*3/2)
	if h := (*HeldError)(nil); errors.As(held, &h) && h.TTL > 0 {
		delay = min(delay, h.TTL+between(time.Millisecond, max(2*time.Millisecond, h.TTL/50)))
	}
	return delay
}

// leaveQueue removes the name of an ended wait queue from the queue in Redis, in the background. A
// new wait queue with the same name may have begun meanwhile: its head enters again.
func (c *Client) leaveQueue(name queueKey) {
	if strings.HasPrefix(name.key, folderQueuePrefix) {
		return // folders have no queue in Redis: the name of the process expires
	}
	if !c.beginWork() {
		return
	}
	go func() {
		defer c.running.Done()
		defer panics.Contain("leaving a queue")
		ctx, cancel := context.WithTimeout(c.ctx, c.queueTTL())
		defer cancel()
		_ = c.store.leave(ctx, name.key, name.member) // on failure the name expires
		c.waitQueues.wake(name)
	}()
}
