package tracker

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"fastdfs-gateway/internal/fdfs/backoff"

	"github.com/stretchr/testify/require"
)

// TestRequestedLoadsAreApart: each requested load begins 2 s after the end of the last one, however
// many loads are requested.
func TestRequestedLoadsAreApart(t *testing.T) {
	dead := deadAddress()
	synctest.Test(t, func(t *testing.T) {
		c := start(Options{Trackers: each(dead)}, backoff.Policy{First: time.Hour, Max: time.Hour})
		defer c.Close()
		loads := func() int { // all of them fail
			synctest.Wait()
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.fails
		}
		<-c.Loaded()
		for n := range 3 {
			for range 100 {
				c.LoadSoon()
			}
			time.Sleep(minLoadInterval - time.Nanosecond)
			require.Equal(t, n+1, loads())
			time.Sleep(time.Nanosecond)
			require.Equal(t, n+2, loads())
		}
		time.Sleep(minLoadInterval)
		require.Equal(t, 4, loads(), "one that was not requested is not due yet")
	})
}

// withoutLoads returns a client whose lists have just been loaded, and that loads nothing. The test
// itself ends the loads.
func withoutLoads() *Client {
	return &Client{done: make(chan struct{}), wake: make(chan struct{}, 1), loadEnd: make(chan struct{}),
		loadedAt: time.Now()}
}

// renews returns the duration of a call of Renew.
func (c *Client) renews() time.Duration {
	began := time.Now()
	c.Renew()
	return time.Since(began)
}

// TestRenewWaits: a call waits at most a second for the end of the load. It returns at once if the
// lists are fresh, if the last load has failed, or if 64 other calls wait.
func TestRenewWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := withoutLoads()
		require.Zero(t, c.renews(), "the lists are fresh")
		require.Len(t, c.wake, 1, "a load is requested")
		time.Sleep(minLoadInterval)

		var held, let atomic.Int32
		var all sync.WaitGroup
		for range 200 {
			all.Go(func() {
				switch took := c.renews(); took {
				case 0:
					let.Add(1)
				case renewTimeout:
					held.Add(1)
				default:
					t.Errorf("a call took %v", took)
				}
			})
		}
		all.Wait()
		require.EqualValues(t, maxWaiting, held.Load())
		require.EqualValues(t, 200-maxWaiting, let.Load())

		<-c.wake
		c.loading, c.loadedAt = true, time.Now()
		end := time.AfterFunc(renewTimeout/2, func() { close(c.loadEnd) })
		require.Equal(t, renewTimeout/2, c.renews(), "the running load ends")
		require.False(t, end.Stop())
		require.Empty(t, c.wake, "no other one is requested")

		c.loading, c.fails = false, 1
		time.Sleep(minLoadInterval)
		require.Zero(t, c.renews(), "the last load has failed")
		require.Len(t, c.wake, 1)
	})
}

// TestRenewEndsWithTheClient: a waiting call returns when the client is closed.
func TestRenewEndsWithTheClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := withoutLoads()
		time.Sleep(minLoadInterval)
		time.AfterFunc(time.Millisecond, func() { close(c.done) })
		require.Equal(t, time.Millisecond, c.renews())
	})
}
