package cachelock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"fastdfs-gateway/cachelock"
	"fastdfs-gateway/internal/testing/eventually"

	"github.com/stretchr/testify/require"
)

// TestRedlockRenewal: a lock is renewed while one of three nodes is down. If a second node hangs,
// the lock ends by the clock of its holder.
func TestRedlockRenewal(t *testing.T) {
	t.Parallel()
	m := newMasters(t, 3)
	c := m.redlock(cachelock.Options{NodeTimeout: time.Second})
	o := cachelock.LockOptions{TTL: renewed, Renew: true}
	var lock *cachelock.Lock
	eventually.True(t, func() bool { // nodes may stall for longer than the node timeout
		var err error
		lock, err = c.Acquire(t.Context(), "k", o)
		return err == nil
	})
	m.servers[0].Kill()
	first := lock.Until()
	eventually.True(t, func() bool {
		if lock.Context().Err() == nil {
			return lock.Until().After(first)
		}
		// The machine stalled for longer than the ttl: a new lock, when the old one is free.
		if next, err := c.Acquire(t.Context(), "k", o); err == nil {
			lock, first = next, next.Until()
		}
		return false
	})
	m.relays[1].Hang()
	<-lock.Context().Done()
	require.ErrorIs(t, context.Cause(lock.Context()), cachelock.ErrLost)
	require.False(t, time.Now().Before(lock.Until()))
}

// TestRedlockContention: clients that contend for one lock, over connections whose delay changes,
// never hold it together, and all acquire it.
func TestRedlockContention(t *testing.T) {
	t.Parallel()
	m := newMasters(t, 3)
	var inside, entered atomic.Int32
	var all sync.WaitGroup
	ctx, cancel := context.WithTimeout(t.Context(), 5*soon)
	defer cancel()
	const clients, rounds = 6, 6
	for i := range clients {
		c := m.redlock(cachelock.Options{Holder: fmt.Sprint("client ", i), Poll: 100 * time.Millisecond,
			NodeTimeout: soon / 2})
		all.Go(func() {
			for done := 0; done < rounds; {
				lock, err := c.Acquire(ctx, "k",
					cachelock.LockOptions{TTL: time.Minute, Policy: cachelock.WaitFor(5 * soon)})
				if errors.Is(err, cachelock.ErrUnreachable) && ctx.Err() == nil {
					continue // most nodes stalled for longer than the node timeout
				}
				if err != nil {
					t.Errorf("client %d: %v", i, err)
					return
				}
				if n := inside.Add(1); n != 1 {
					t.Errorf("%d clients hold the lock", n)
				}
				entered.Add(1)
				done++
				time.Sleep(rand.N(2 * time.Millisecond))
				inside.Add(-1)
				if err := lock.Release(ctx); err != nil {
					t.Errorf("client %d: %v", i, err)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	for {
		select {
		case <-done:
			require.EqualValues(t, clients*rounds, entered.Load())
			return
		case <-time.After(20 * time.Millisecond):
			m.relays[rand.IntN(3)].Delay(rand.N(10 * time.Millisecond))
		}
	}
}
