package cachelock

import (
	"context"
	"slices"
	"sync"
	"time"
)

// NewLocal returns a client that keeps its locks in this process, for programs without Redis. They
// pass the same suite, locktest, but other processes do not see them.
func NewLocal(o Options) *Client {
	c := newClient(o)
	c.store = &localStore{c: c, locks: map[string]*localLock{}}
	return c
}

// localStore keeps locks in memory.
type localStore struct {
	c     *Client
	mu    sync.Mutex // guards the fields below
	locks map[string]*localLock
	fence int64

	folderTrees localFolders // has its own mutex
}

// localLock is a lock that is held or waited for.
type localLock struct {
	token string
	until time.Time
	holds map[string]bool // of the owner, if it is reentrant
	fence int64
	queue []string // waiters by time of arrival
}

var _ store = (*localStore)(nil)

// localHold implements holding for a localStore.
type localHold struct {
	s     *localStore
	keys  []string
	token string
	name  string
}

var _ holding = (*localHold)(nil)

func (s *localStore) acquire(ctx context.Context, w lockRequest) (holding, int64, error) {
	if ctx.Err() != nil {
		return nil, 0, cancelled(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.sweep(now)
	for _, key := range w.keys {
		if err := s.conflict(key, w, now); err != nil {
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

// conflict returns an error if a lock cannot be acquired, and adds the waiter to its queue.
func (s *localStore) conflict(key string, w lockRequest, now time.Time) error {
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

// take acquires one lock without conflict and returns its fence: that of the first hold for a
// reentrant lock.
func (s *localStore) take(key string, w lockRequest, fence int64, now time.Time) int64 {
	l := s.locks[key]
	if l == nil {
		l = &localLock{}
		s.locks[key] = l
	}
	l.queue = remove(l.queue, w.waiter)
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

// sweep removes some expired locks, more than a call can add, so that they do not accumulate.
func (s *localStore) sweep(now time.Time) {
	looked := 0
	for key, l := range s.locks { // in random order
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
		h.s.wakeFirst(key, l)
	}
	return err
}

// has reports whether a lock is still held by h.
func (h *localHold) has(key string, now time.Time) bool {
	l := h.s.locks[key]
	return l != nil && l.held(now) && l.token == h.token && (h.name == "" || l.holds[h.name])
}

// wakeFirst notifies the first waiter.
func (s *localStore) wakeFirst(key string, l *localLock) {
	if len(l.queue) == 0 {
		delete(s.locks, key)
		return
	}
	s.c.waitQueues.wake(queueKeyOf(l.queue[0], key))
}

func (s *localStore) leave(_ context.Context, key, waiter string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.locks[key]
	if l == nil {
		return nil
	}
	l.queue = remove(l.queue, waiter)
	if !l.held(time.Now()) {
		s.wakeFirst(key, l)
	}
	return nil
}

func (s *localStore) listen(context.Context) error { return nil }

func (s *localStore) close() error { return nil }

// remove removes a name.
func remove(list []string, name string) []string {
	if i := slices.Index(list, name); i >= 0 {
		return slices.Delete(list, i, i+1)
	}
	return list
}
