package cachelock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"fastdfs-gateway/internal/process/panics"
	"fastdfs-gateway/internal/testing/redistest"

	"github.com/stretchr/testify/require"
)

// Tests of late requests: a request was delayed, and repeated meanwhile by the Redis client, so
// that it is executed after later requests.

// TestLateAcquisition: an acquisition that arrives twice does not undo an extension in between.
func TestLateAcquisition(t *testing.T) {
	t.Parallel()
	rdb := redistest.Shared(t).Client()
	c := New(rdb, Options{Prefix: t.Name()})
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	for name, w := range map[string]lockRequest{
		"one": {keys: []string{"a"}}, "several": {keys: []string{"b", "c"}}, "fair": {keys: []string{"d"}, fair: true},
		"owner": {keys: []string{"e"}, hold: "hold"},
	} {
		w.token, w.ttl = "token:", time.Minute
		h, first, err := c.store.acquire(t.Context(), w)
		require.NoError(t, err, name)
		require.NoError(t, h.extend(t.Context(), time.Hour), name)
		_, again, err := c.store.acquire(t.Context(), w)
		require.NoError(t, err, name)
		require.GreaterOrEqual(t, again, first, name)
		for _, key := range w.keys {
			require.Greater(t, rdb.PTTL(t.Context(), t.Name()+":{0}:lock:"+key).Val(), time.Minute, name)
		}
	}
}

// TestLateExtension: a late extension makes no lock end sooner.
func TestLateExtension(t *testing.T) {
	t.Parallel()
	rdb := redistest.Shared(t).Client()
	c := New(rdb, Options{Prefix: t.Name()})
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	h, _, err := c.store.acquire(t.Context(), lockRequest{keys: []string{"a", "b"}, token: "token:", ttl: time.Hour})
	require.NoError(t, err)
	left := func(key string) time.Duration { return rdb.PTTL(t.Context(), t.Name()+":{0}:lock:"+key).Val() }
	require.NoError(t, h.extend(t.Context(), time.Minute))
	for _, key := range []string{"a", "b"} {
		require.Greater(t, left(key), 30*time.Minute)
		require.LessOrEqual(t, left(key), time.Hour)
	}
}

// TestLateFolder: the rules of TestLateAcquisition and TestLateExtension hold for folder locks.
func TestLateFolder(t *testing.T) {
	t.Parallel()
	_, rdb, f := ownRedis(t)
	w := folderRequest{claims: []claim{{kindExclusive, "/a"}}, token: "token:", ttl: time.Minute}
	h, first, err := f.claim(t.Context(), w)
	require.NoError(t, err)
	ends := func() time.Duration {
		until := rdb.ZScore(t.Context(), f.keys[1], w.token).Val()
		return time.UnixMilli(int64(until)).Sub(rdb.Time(t.Context()).Val())
	}
	require.NoError(t, h.extend(t.Context(), time.Hour))
	_, again, err := f.claim(t.Context(), w)
	require.NoError(t, err)
	require.Equal(t, first, again)
	require.Greater(t, ends(), time.Minute, "an acquisition")
	require.NoError(t, h.extend(t.Context(), time.Second))
	require.Greater(t, ends(), time.Minute, "an extension")
}

// TestShorterExtension: an extension makes no lock end sooner for its holder. One that has failed
// changes nothing.
func TestShorterExtension(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		_, lock := extending(t, LockOptions{TTL: time.Hour}, func(context.Context, time.Duration) error {
			if asked.Add(1) <= 2 {
				return failed(context.Background(), "extend", errors.New("gone"))
			}
			return nil
		})
		until := lock.Until()
		require.ErrorIs(t, lock.Extend(t.Context(), 2*time.Hour), ErrUnreachable)
		require.ErrorIs(t, lock.Extend(t.Context(), time.Minute), ErrUnreachable)
		require.NoError(t, lock.Extend(t.Context(), time.Minute))
		require.Equal(t, until, lock.Until())
		begin := time.Now()
		<-lock.Context().Done()
		require.Equal(t, validity(time.Hour), time.Since(begin))
	})
}

// TestRenewalAfterExtension: a renewal that was due just before an extension uses the ttl of the
// extension.
func TestRenewalAfterExtension(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ttls []time.Duration
		_, lock := extending(t, LockOptions{TTL: time.Minute, Renew: true},
			func(_ context.Context, ttl time.Duration) error {
				ttls = append(ttls, ttl)
				return nil
			})
		left := time.Until(lock.Until()) // as computed by tick
		require.NoError(t, lock.Extend(t.Context(), time.Hour))
		lock.renew(left)
		require.Equal(t, []time.Duration{time.Hour, time.Hour}, ttls)
		require.NoError(t, lock.Release(t.Context()))
	})
}

// FuzzMessage: onMessage accepts any message, and notifies the waiter that a message names.
func FuzzMessage(f *testing.F) {
	c := newClient(Options{Prefix: "p", Poll: time.Hour})
	s := newRedisStore(nil, c) // the client is closed at once, so the store sends no request
	c.store = s
	require.NoError(f, c.Close())
	for _, seed := range []string{
		"", " ", "p:{0}:lock:k", "me p:{0}:lock:k", "me p:{0}:lock:", "me/7 p:{0}:lock:a b}:lock:c",
		"me q:{0}:lock:k", "me p:{}:lock:k",
		"me p:{0}:folder-waiting:n\x00/a\x00", "me p:{0}:folder-waiting:", "me p:{0}:folder-waiting:n\x00\x00/",
		"\x00 p:{", "me p:{0}:queue:k",
	} {
		f.Add(seed, "k", "/a")
	}
	f.Fuzz(func(t *testing.T, message, key, path string) {
		before := panics.Total()
		s.onMessage(message)
		folders := &Folders{c: c, namespace: key}
		plain, folder := c.waitQueues.join(queueKey{"me", key}, untried),
			c.waitQueues.join(queueKey{c.process, folders.queueName([]claim{{kindShared, path}})}, untried)
		s.onMessage("me p:{0}:lock:" + key)
		require.Len(t, plain.wake, 1, "notified by the name of the lock, with any bytes")
		if key != "" && !strings.Contains(key+path, "\x00") {
			s.onMessage("me p:{0}:folder-waiting:" + key + "\x00" + path)
			require.Len(t, folder.wake, 1, "notified by the path")
		}
		c.waitQueues.leave(plain)
		c.waitQueues.leave(folder)
		require.Equal(t, before, panics.Total(), "onMessage contains a panic")
	})
}

// TestRedlockClosedMeanwhile: a request of a Redlock that is closed meanwhile returns ErrClosed,
// not ErrUnreachable.
func TestRedlockClosedMeanwhile(t *testing.T) {
	s := &redlockStore{c: newClient(Options{}), nodes: make([]*redisStore, 3),
		dials: []*dialError{{}, {}, {}}}
	gone := failed(context.Background(), "ask", errors.New("gone"))
	for _, errs := range [][]error{{gone, nil, gone}, {errNodeTimeout, nil, gone}, {ErrLost, gone, gone},
		{ErrCancelled, ErrCancelled, nil}} {
		err := s.quorumError("release a lock", errs)
		require.ErrorIs(t, err, ErrUnreachable)
		require.NotErrorIs(t, err, ErrLost)
		require.NotErrorIs(t, err, ErrCancelled)
		require.NotContains(t, err.Error(), "%!")
	}
	s.c.cancel()
	// error of a request that Close has cancelled
	stopped := fmt.Errorf("%w: %w", ErrCancelled, context.Canceled)
	for _, errs := range [][]error{{ErrClosed, nil, ErrClosed}, {stopped, nil, stopped}, {ErrClosed, stopped, gone}} {
		require.ErrorIs(t, s.quorumError("subscribe", errs), ErrClosed)
		require.NotErrorIs(t, s.quorumError("subscribe", errs), ErrUnreachable)
		require.ErrorIs(t, s.heldError(time.Second, errs), ErrClosed)
	}
}
