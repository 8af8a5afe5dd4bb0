package cachelock

import (
	"context"
	"strconv"
	"time"
)

// GetThenDelete makes a client release its locks in two commands.
func GetThenDelete(c *Client) { c.store = getThenDelete{c.store.(*redisStore)} }

type getThenDelete struct{ *redisStore }

func (s getThenDelete) acquire(ctx context.Context, w lockRequest) (holding, int64, error) {
	h, fence, err := s.redisStore.acquire(ctx, w)
	if err != nil {
		return nil, 0, err
	}
	return twoSteps{h.(*hold)}, fence, nil
}

type twoSteps struct{ *hold }

func (h twoSteps) release(ctx context.Context) error {
	if token, err := h.s.rdb.Get(ctx, h.names[1]).Result(); err != nil || token != h.token {
		return ErrLost
	}
	return h.s.rdb.Del(ctx, h.names[1]).Err()
}

// GetSetClock makes a client keep the time when a lock ends as its value, by its own clock, and
// take over by GETSET what has ended.
func GetSetClock(c *Client, clock func() time.Time) {
	c.store = getSetClock{c.store.(*redisStore), clock}
}

type getSetClock struct {
	*redisStore
	clock func() time.Time
}

func (s getSetClock) acquire(ctx context.Context, w lockRequest) (holding, int64, error) {
	h := s.newHold(w)
	now := s.clock()
	h.token = strconv.FormatInt(now.Add(w.ttl).UnixMilli(), 10)
	if s.rdb.SetNX(ctx, h.names[1], h.token, 0).Val() {
		return h, 1, nil
	}
	ends := s.rdb.Get(ctx, h.names[1]).Val()
	if ms, _ := strconv.ParseInt(ends, 10, 64); now.UnixMilli() < ms {
		return nil, 0, heldBy(w.keys[0], ends, time.Second)
	}
	if s.rdb.GetSet(ctx, h.names[1], h.token).Val() != ends {
		return nil, 0, heldBy(w.keys[0], ends, time.Second)
	}
	return h, 1, nil
}

// Attempt makes one attempt as a waiter of that name, and returns the fence.
func Attempt(ctx context.Context, c *Client, key, token, waiter string, ttl time.Duration, fair bool) (int64, error) {
	_, fence, err := c.store.acquire(ctx,
		lockRequest{keys: []string{key}, token: token, ttl: ttl, waiter: waiter, queueTTL: c.queueTTL(), fair: fair})
	return fence, err
}

// Hold is one hold of an owner.
type Hold struct{ h holding }

// AttemptHold makes one attempt of an owner, as a waiter of that name.
func AttemptHold(ctx context.Context, c *Client, key, owner, hold, waiter string, ttl time.Duration) (Hold, int64,
	error) {
	w := lockRequest{keys: []string{key}, token: owner, hold: hold, ttl: ttl, waiter: waiter, queueTTL: c.queueTTL()}
	h, fence, err := c.store.acquire(ctx, w)
	return Hold{h}, fence, err
}

// Extend extends it.
func (h Hold) Extend(ctx context.Context, ttl time.Duration) error {
	return h.h.extend(ctx, ttl, false)
}

// Release gives it back.
func (h Hold) Release(ctx context.Context) error { return h.h.release(ctx) }
