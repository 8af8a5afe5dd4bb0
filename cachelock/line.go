package cachelock

import (
	"container/list"
	"errors"
	"sync"
	"time"
)

// lineName names a line: the waiter in the queue that it is, and the lock. It is also what a release tells.
type lineName struct{ member, key string }

func lineOf(member, key string) lineName { return lineName{member, key} }

// lines are the waiters of this process by lock.
type lines struct {
	mu sync.Mutex // guards all, and what belongs to lines and waiters
	m  map[lineName]*line
}

// line is who waits for the same, the head in front.
type line struct {
	waiters list.List
	known   bool       // somebody has tried
	entered bool       // the name may be in the queue
	held    *HeldError // the last answer
	seen    time.Time  // when it came
}

// waiter is somebody who waits.
type waiter struct {
	name   lineName
	line   *line
	place  *list.Element
	wake   chan struct{} // holds one wake-up
	named  bool          // has tried as one who waits; his own
	failed error         // what a head before him has found, and holds for all
}

// join stands in line. It says whether it is known already that the lock is held, and whether the queue has been entered.
func (l *lines) join(name lineName, known, entered bool) *waiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.m == nil {
		l.m = map[lineName]*line{}
	}
	if l.m[name] == nil {
		l.m[name] = &line{}
	}
	w := &waiter{name: name, line: l.m[name], wake: make(chan struct{}, 1)}
	w.line.known = w.line.known || known
	w.line.entered = w.line.entered || entered
	w.place = w.line.waiters.PushBack(w)
	return w
}

// leave takes w out; the new head, if any, is woken. It tells whether nobody is left who cares for the place in the queue.
func (l *lines) leave(w *waiter) (quit bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	wasHead := w.isHead()
	w.line.waiters.Remove(w.place)
	if w.line.waiters.Len() == 0 {
		delete(l.m, w.name)
		return w.line.entered
	}
	if wasHead {
		w.line.head().poke()
	}
	return false
}

// wake wakes the head of a line. It is false when there is none.
func (l *lines) wake(name lineName) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	line := l.m[name]
	if line != nil {
		line.head().poke()
	}
	return line != nil
}

// look tells whether w is the head, or why there is no sense in waiting.
func (l *lines) look(w *waiter) (head bool, failed error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return w.isHead(), w.failed
}

// first tells, once for each line, that nobody has tried yet.
func (l *lines) first(w *waiter) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	first := !w.line.known
	w.line.known = true
	return first
}

// tried notes what came of the attempt of a head. When Redis does not serve, all who stand in line need not find that out one
// after the other.
func (l *lines) tried(w *waiter, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := (*HeldError)(nil)
	switch {
	case err == nil:
		w.line.entered = false // whoever takes a lock leaves its queue
	case errors.As(err, &h):
		if h.lineKey() == w.name.key {
			w.line.held, w.line.seen = h, time.Now()
			w.line.entered = w.line.entered || w.named
		}
	default:
		w.line.entered = w.line.entered || w.named
		if errors.Is(err, ErrUnreachable) && !errors.Is(err, errLate) {
			w.line.fail(w, err)
		}
	}
}

// lastSeen is the error of somebody who gives up without having been the head.
func (l *lines) lastSeen(w *waiter) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.line.held == nil {
		return &HeldError{Key: w.name.key, line: w.name.key}
	}
	held := *w.line.held
	held.TTL = max(held.TTL-time.Since(w.line.seen), 0)
	return &held
}

func (l *line) head() *waiter { return l.waiters.Front().Value.(*waiter) }

// fail tells all but w, which knows.
func (l *line) fail(w *waiter, err error) {
	for e := l.waiters.Front(); e != nil; e = e.Next() {
		if other := e.Value.(*waiter); other != w {
			other.failed = err
			other.poke()
		}
	}
}

func (w *waiter) isHead() bool { return w.line.waiters.Front() == w.place }

func (w *waiter) poke() {
	select {
	case w.wake <- struct{}{}:
	default: // he has one to come
	}
}
