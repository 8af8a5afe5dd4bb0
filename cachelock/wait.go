package cachelock

import (
	"context"
	"errors"
	"strings"
	"time"
)

// How one waits. All who wait in this process for the same lock stand in one line, and only its head talks to Redis: it puts the
// process into the lock's queue there, by the same script that looks at the lock once more, so that no release falls between the
// two. A release tells one process, which wakes its head. So a thousand waiters cost Redis no more than one. In a fair lock each
// waiter is in the queue by himself, and is the head of a line of his own.
//
// Nobody is forgotten, because each who was told, or may have been, either tries or passes the word on: a head that leaves wakes
// the next in line, the last in line leaves the queue by a script that tells the next process when the lock is free, and so does
// the process itself for a word that nobody here waits for. What is lost on the way nevertheless, the poll finds.

// attempt tries to take a lock; with a waiter's name it also enters the queue when the lock is held.
type attempt func(ctx context.Context, waiter string) (*Lock, error)

// take tries, and waits as the policy says. key is where to wait at first: a failed attempt may tell another place.
func (c *Client) take(ctx context.Context, key string, o LockOptions, try attempt) (*Lock, error) {
	if err := c.usable(ctx); err != nil {
		return nil, err
	}
	if !o.Policy.waits() {
		return try(ctx, "")
	}
	p := &patience{p: o.Policy, retries: o.Policy.Retries, began: time.Now()}
	defer p.stop()
	name, known, entered := lineOf(c.member(o.Fair), key), o.Fair, false
	for {
		w := c.lines.join(name, known, entered)
		lock, err := c.wait(ctx, w, p, try)
		if c.lines.leave(w) {
			c.quit(name)
		}
		to := lineOf(name.member, queueOf(err, name.key))
		if to == name {
			return lock, err
		}
		if p.over { // and the last attempt has entered the queue there
			c.quit(to)
			return lock, err
		}
		name, known, entered = to, true, w.named
	}
}

// queueOf is where to wait after a failed attempt.
func queueOf(err error, key string) string {
	if h := (*HeldError)(nil); errors.As(err, &h) {
		return h.lineKey()
	}
	return key
}

// wait returns when the lock was taken, when it has to be waited for in another line, or when the policy, the caller or Redis say
// no.
func (c *Client) wait(ctx context.Context, w *waiter, p *patience, try attempt) (*Lock, error) {
	for {
		head, err := c.lines.look(w)
		if err != nil {
			return nil, err
		}
		if head {
			lock, err := c.tryAsHead(ctx, w, try)
			if !errors.Is(err, ErrHeld) || queueOf(err, w.name.key) != w.name.key {
				return lock, err
			}
			p.poll.set(c.nextLook(err))
		}
		p.start()
		select {
		case <-w.wake:
		case <-p.poll.C():
		case <-p.pause.C():
			if p.paused() {
				return c.lastTry(ctx, w, try)
			}
		case <-p.end.C():
			p.over = true
			return c.lastTry(ctx, w, try)
		case <-ctx.Done():
			return nil, cancelled(ctx)
		case <-c.ctx.Done():
			return nil, ErrClosed
		}
	}
}

// lastTry is for a head whose time is over: the release may be telling him just now.
func (c *Client) lastTry(ctx context.Context, w *waiter, try attempt) (*Lock, error) {
	head, err := c.lines.look(w)
	switch {
	case err != nil:
		return nil, err
	case !head:
		return nil, c.lines.lastSeen(w)
	}
	return c.tryAsHead(ctx, w, try)
}

// tryAsHead tries and enters the queue, listening already. The first try of a line does neither: the lock may be free, or another
// one may be in the way. What comes of it counts for all who stand in the line.
func (c *Client) tryAsHead(ctx context.Context, w *waiter, try attempt) (*Lock, error) {
	if c.lines.first(w) {
		lock, err := try(ctx, "")
		c.lines.tried(w, err)
		if !errors.Is(err, ErrHeld) || queueOf(err, w.name.key) != w.name.key {
			return lock, err
		}
	}
	if err := c.store.listen(ctx); err != nil {
		c.lines.tried(w, err)
		return nil, err
	}
	w.named = true
	lock, err := try(ctx, w.name.member)
	c.lines.tried(w, err)
	return lock, err
}

// patience is what is left of a policy.
type patience struct {
	p       Policy
	began   time.Time
	retries int
	over    bool
	end     alarm // of Policy.Wait
	pause   alarm // of the sleep, where there is no Policy.Wait
	poll    alarm
}

// start sets the alarm of the policy, unless it is set.
func (p *patience) start() {
	switch {
	case p.end.t != nil || p.pause.t != nil:
	case p.p.Wait > 0:
		p.end.set(time.Until(p.began.Add(p.p.Wait)))
	default:
		p.pause.set(p.p.sleep())
	}
}

// paused notes the end of a sleep, and tells whether it was the last.
func (p *patience) paused() bool {
	p.retries--
	p.over = p.retries <= 0
	if !p.over {
		p.pause.set(p.p.sleep())
	}
	return p.over
}

func (p *patience) stop() {
	p.end.stop()
	p.pause.stop()
	p.poll.stop()
}

// nextLook is when to look without having been told: when the lock expires, or the poll is due.
func (c *Client) nextLook(held error) time.Duration {
	look := between(c.o.Poll, c.o.Poll*3/2)
	if h := (*HeldError)(nil); errors.As(held, &h) && h.TTL > 0 {
		look = min(look, h.TTL+between(time.Millisecond, max(2*time.Millisecond, h.TTL/50)))
	}
	return look
}

// quit takes the waiter of a line that has ended out of the queue. The caller has been told already, so nobody waits for it. A new
// line may have begun meanwhile, and have entered the queue by the same name: its head enters again.
func (c *Client) quit(name lineName) {
	if strings.HasPrefix(name.key, folderLine) {
		return // folders have no queues: a process that does not come again is forgotten
	}
	if !c.begin() {
		return
	}
	go func() {
		defer c.running.Done()
		ctx, cancel := context.WithTimeout(c.ctx, c.patience())
		defer cancel()
		_ = c.store.leave(ctx, name.key, name.member) // else it is thrown out when it does not come again
		c.lines.wake(name)
	}()
}

// alarm is a timer that is off until it is set.
type alarm struct{ t *time.Timer }

func (a *alarm) set(d time.Duration) {
	if a.t == nil {
		a.t = time.NewTimer(d)
		return
	}
	a.t.Reset(d)
}

func (a *alarm) stop() {
	if a.t != nil {
		a.t.Stop()
	}
}

func (a *alarm) C() <-chan time.Time {
	if a.t == nil {
		return nil
	}
	return a.t.C
}
