package cachelock

import (
	"context"
	"errors"
	"testing"
	"time"

	"fastdfs-gateway/internal/testing/redistest"
	"fastdfs-gateway/lua"

	"github.com/redis/go-redis/v9"
)

// PatientClient returns a client of a server, which is closed when the test ends. Where a machine
// stands still for a while, it does not give up a request and send it again: whether that is right
// is not what these tests are about.
func PatientClient(t testing.TB, s *redistest.Server) *redis.Client {
	rdb := redis.NewClient(&redis.Options{Addr: s.Addr(), DialerRetries: 1, ReadTimeout: time.Minute,
		DialTimeout: time.Minute})
	t.Cleanup(func() { rdb.Close() })
	return rdb
}

// BePatient makes all clients wait for the confirmation of a subscription for as long as for
// anything else: see PatientClient.
func BePatient() { subscribeTimeout = time.Minute }

// ReplaceScripts gives a client other scripts, for tests that must notice. change gets the name and
// the text of each.
func ReplaceScripts(c *Client, change func(name, text string) string) {
	s := c.store.(*redisStore)
	s.scripts = &lockScripts{
		acquire:        newScript(change("acquire", lua.Acquire)),
		release:        newScript(change("release", lua.Release)),
		extend:         newScript(change("extend", lua.Extend)),
		leave:          newScript(change("leave", lua.Leave)),
		reenter:        newScript(change("reenter", lua.Reenter)),
		reenterRelease: newScript(change("reenter_release", lua.ReenterRelease)),
	}
}

// SetExpiryLate makes a client give its locks their expiry in a second command. Its acquire script
// must set none.
func SetExpiryLate(c *Client) { c.store = lateExpiry{c.store.(*redisStore)} }

type lateExpiry struct{ *redisStore }

func (s lateExpiry) acquire(ctx context.Context, w lockRequest) (holding, int64, error) {
	h, fence, err := s.redisStore.acquire(ctx, w)
	if err != nil {
		return nil, 0, err
	}
	if err := s.rdb.PExpire(ctx, h.(*hold).names[1], w.ttl).Err(); err != nil {
		return nil, 0, failed(ctx, "set the expiry of a lock", err)
	}
	return h, fence, nil
}

// QueueLate makes a client look at the lock first, and enter its queue afterwards without looking
// once more.
func QueueLate(c *Client) { c.store = lateQueue{c.store.(*redisStore)} }

type lateQueue struct{ *redisStore }

func (s lateQueue) acquire(ctx context.Context, w lockRequest) (holding, int64, error) {
	waiter := w.waiter
	w.waiter = ""
	h, fence, err := s.redisStore.acquire(ctx, w)
	if waiter == "" || !errors.Is(err, ErrHeld) {
		return h, fence, err
	}
	time.Sleep(5 * time.Millisecond) // makes sure that the lock is released in between
	names, now := s.newHold(w).names, time.Now()
	s.rdb.ZAdd(ctx, names[2], redis.Z{Score: float64(now.UnixMicro()), Member: waiter})
	s.rdb.ZAdd(ctx, names[3], redis.Z{Score: float64(now.Add(w.queueTTL).UnixMilli()), Member: waiter})
	s.rdb.PExpire(ctx, names[2], 2*w.queueTTL)
	s.rdb.PExpire(ctx, names[3], 2*w.queueTTL)
	return nil, 0, err
}
