package cachelock

import (
	"context"
	"slices"
	"sync"
	"time"
)

// NewLocal returns a client whose locks are kept in this process: for programs that run without Redis. They mean the same, by
// the suite in locktest, except that nobody outside sees them.
func NewLocal(o Options) *Client {
	c := newClient(o)
	c.store = &localStore{c: c, locks: map[string]*localLock{}}
	return c
}

// localStore keeps locks in memory.
type localStore struct {
	c     *Client
	mu    sync.Mutex // guards all below
	locks map[string]*localLock
	fence int64

	folderTrees localFolders // has a mutex of its own
}

// localLock is a lock that is held, or waited for.
type localLock struct {
	token string
	until time.Time
	holds map[string]bool // of the owner, when it is reentrant
	fence int64
	queue []string // names of those who wait, by time of arrival
}

var _ store = (*localStore)(nil)

// localHold is a localStore's holding.
type localHold struct {
	s     *localStore
	keys  []string
	token string
	name  string
}

var _ holding = (*localHold)(nil)

func (s *localStore) acquire(ctx context.Context, w wanted) (holding, int64, error) {
	if ctx.Err() != nil {
		return nil, 0, cancelled(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.sweep(now)
	for _, key := range w.keys {
		if err := s.inTheWay(key, w, now); err != nil {
			return nil, 0, err
		}
	}
	s.fence = max(s.fence+1, now.UnixMicro())
	fence := s.fence
	for _, key := range w.keys {
		fence = s.take(key, w, fence, now)
	}
	return &localHold{s: s, keys: w.keys, token: w.token, name: w.hold}, fence, nil
}

// inTheWay is the error when a lock cannot be taken, and enters its queue.
func (s *localStore) inTheWay(key string, w wanted, now time.Time) error {
	l := s.locks[key]
	if l == nil {
		return nil
	}
	var err error
	switch {
	case l.held(now) && l.token != w.token:
		err = heldBy(key, l.token, l.until.Sub(now))
	case !l.held(now) && w.fair && len(l.queue) > 0 && l.queue[0] != w.waiter:
		err = heldBy(key, "", 0)
	default:
		return nil
	}
	if w.waiter != "" && !slices.Contains(l.queue, w.waiter) {
		l.queue = append(l.queue, w.waiter)
	}
	return err
}

// take takes one lock that nobody is in the way of, and returns its fence: a reentrant one keeps that of its first hold.
func (s *localStore) take(key string, w wanted, fence int64, now time.Time) int64 {
	l := s.locks[key]
	if l == nil {
		l = &localLock{}
		s.locks[key] = l
	}
	l.queue = without(l.queue, w.waiter)
	until := now.Add(w.ttl)
	if w.hold == "" {
		l.token, l.until, l.holds, l.fence = w.token, until, nil, fence
		return fence
	}
	if !l.held(now) || l.token != w.token {
		l.token, l.until, l.holds, l.fence = w.token, until, map[string]bool{}, fence
	}
	l.holds[w.hold] = true
	if until.After(l.until) {
		l.until = until
	}
	return l.fence
}

func (l *localLock) held(now time.Time) bool { return l.token != "" && now.Before(l.until) }

// sweep forgets a few locks that have expired: more than are made, so that they do not pile up.
func (s *localStore) sweep(now time.Time) {
	looked := 0
	for key, l := range s.locks { // in no order
		if !l.held(now) && len(l.queue) == 0 {
			delete(s.locks, key)
		}
		if looked++; looked == 4 {
			return
		}
	}
}

func (h *localHold) extend(ctx context.Context, ttl time.Duration, _ bool) error {
	if ctx.Err() != nil {
		return cancelled(ctx)
	}
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	now := time.Now()
	for _, key := range h.keys {
		if !h.has(key, now) {
			return ErrLost
		}
	}
	for _, key := range h.keys {
		l := h.s.locks[key]
		if until := now.Add(ttl); h.name == "" || until.After(l.until) {
			l.until = until
		}
	}
	return nil
}

func (h *localHold) release(context.Context) error {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	now := time.Now()
	var err error
	for _, key := range h.keys {
		if !h.has(key, now) {
			err = ErrLost
			continue
		}
		l := h.s.locks[key]
		if delete(l.holds, h.name); len(l.holds) > 0 {
			continue
		}
		l.token = ""
		h.s.freed(key, l)
	}
	return err
}

// has tells whether a lock is still this holding's.
func (h *localHold) has(key string, now time.Time) bool {
	l := h.s.locks[key]
	return l != nil && l.held(now) && l.token == h.token && (h.name == "" || l.holds[h.name])
}

// freed tells the first who waits.
func (s *localStore) freed(key string, l *localLock) {
	if len(l.queue) == 0 {
		delete(s.locks, key)
		return
	}
	s.c.lines.wake(lineOf(l.queue[0], key))
}

func (s *localStore) leave(_ context.Context, key, waiter string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.locks[key]
	if l == nil {
		return nil
	}
	l.queue = without(l.queue, waiter)
	if !l.held(time.Now()) {
		s.freed(key, l)
	}
	return nil
}

func (s *localStore) listen(context.Context) error { return nil }

func (s *localStore) close() error { return nil }

// without removes a name.
func without(list []string, name string) []string {
	if i := slices.Index(list, name); i >= 0 {
		return slices.Delete(list, i, i+1)
	}
	return list
}
