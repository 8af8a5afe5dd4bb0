package cachelock_test

import (
	"bytes"
	"context"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"fastdfs-gateway/cachelock"
	"fastdfs-gateway/internal/testing/eventually"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// subscribing is a connection to Redis that fails at a subscription while broken is set.
type subscribing struct {
	net.Conn
	broken *atomic.Pointer[func(c *subscribing) error] // called in place of the write
	hung   chan struct{}                               // not nil: reads wait until it is closed
	once   sync.Once                                   // of Close
}

func (c *subscribing) Write(p []byte) (int, error) {
	if fail := c.broken.Load(); fail != nil && bytes.Contains(p, []byte("subscribe")) {
		if err := (*fail)(c); err != nil {
			return 0, err
		}
	}
	return c.Conn.Write(p)
}

func (c *subscribing) Read(p []byte) (int, error) {
	if c.hung != nil {
		<-c.hung
		return 0, net.ErrClosed
	}
	return c.Conn.Read(p)
}

func (c *subscribing) Close() error {
	c.once.Do(func() {
		if c.hung != nil {
			close(c.hung)
		}
	})
	return c.Conn.Close()
}

// newSubscribing returns a client whose connections can fail at subscriptions.
func newSubscribing(t *testing.T) (*relayed, *atomic.Pointer[func(c *subscribing) error]) {
	broken := new(atomic.Pointer[func(c *subscribing) error])
	return newRelayed(t, -1, cachelock.Options{Poll: farOff}, func(o *redis.Options) {
		o.Dialer = func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, network, address)
			return &subscribing{Conn: c, broken: broken}, err
		}
	}), broken
}

// TestSubscriptionNotSent: an Acquire whose subscription could not be sent fails at once, and the
// next one subscribes. A client that takes an unsent subscription for a sent one waits for the
// confirmation until it times out.
func TestSubscriptionNotSent(t *testing.T) {
	t.Parallel()
	r, broken := newSubscribing(t)
	lock, err := r.direct.Acquire(t.Context(), "k", cachelock.LockOptions{TTL: farOff})
	require.NoError(t, err)
	fail := func(*subscribing) error { return syscall.ECONNRESET }
	broken.Store(&fail)
	waits := cachelock.LockOptions{Policy: cachelock.WaitFor(farOff)}
	require.ErrorContains(t, await(t, acquireAsync(t.Context(), r.c, "k", waits)).err, "connection reset")
	broken.Store(nil)
	waiting := acquireAsync(t.Context(), r.c, "k", waits)
	r.queued("k")
	require.NoError(t, lock.Release(t.Context()))
	got := await(t, waiting)
	require.NoError(t, got.err)
	require.NoError(t, got.lock.Release(t.Context()))
}

// TestSubscriptionCancelled: an Acquire that is cancelled while it subscribes returns at once.
func TestSubscriptionCancelled(t *testing.T) {
	t.Parallel()
	r, broken := newSubscribing(t)
	_, err := r.direct.Acquire(t.Context(), "k", cachelock.LockOptions{TTL: farOff})
	require.NoError(t, err)
	var subscribed atomic.Bool
	hang := func(c *subscribing) error {
		c.hung = make(chan struct{})
		subscribed.Store(true)
		return nil
	}
	broken.Store(&hang)
	ctx, cancel := context.WithCancel(t.Context())
	waiting := acquireAsync(ctx, r.c, "k", cachelock.LockOptions{Policy: cachelock.WaitFor(farOff)})
	eventually.True(t, subscribed.Load)
	cancel()
	require.ErrorIs(t, await(t, waiting).err, cachelock.ErrCancelled)
}
