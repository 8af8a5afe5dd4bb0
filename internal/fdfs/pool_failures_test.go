package fdfs

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"fastdfs-gateway/internal/testing/eventually"

	"github.com/stretchr/testify/require"
)

func TestPoolTimeouts(t *testing.T) {
	f := newFake(t, func(f *fake, c net.Conn, n int) {
		f.next(c)
		if n == 2 {
			c.Write(reply(0, "hello")[:12])
		}
		c.Read(make([]byte, 1))
	})
	p := newPool(t, f, PoolOptions{NetworkTimeout: 40 * time.Millisecond})
	requireTimeout := func(began time.Time, err error) {
		t.Helper()
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.NotErrorIs(t, err, context.DeadlineExceeded, "the caller's time is not up")
		require.Less(t, time.Since(began), patient)
	}
	began := time.Now()
	_, err := call(p, "header")
	requireTimeout(began, err)

	p.o.NetworkTimeout = patientTimeout
	c, _, err := p.Request(t.Context(), CmdListStorages, 0, []byte("body"))
	require.NoError(t, err)
	defer c.Release()
	p.o.NetworkTimeout = 40 * time.Millisecond
	began = time.Now()
	_, err = io.ReadAll(c)
	requireTimeout(began, err)
}

func TestPoolConnectTimeout(t *testing.T) {
	p := NewPool(fullListener(t), PoolOptions{ConnectTimeout: 50 * time.Millisecond})
	defer p.Close()
	_, err := call(p, "x")
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.NotErrorIs(t, err, context.DeadlineExceeded)
	require.Zero(t, len(p.limit.used))

	cause := errors.New("gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(20*time.Millisecond, func() { cancel(cause) })
	p = NewPool(p.Addr(), PoolOptions{ConnectTimeout: time.Minute})
	defer p.Close()
	_, err = p.Call(ctx, CmdActiveTest, 0, nil, 0)
	require.ErrorIs(t, err, cause)
}

// TestPoolContext: the end of the context ends a request at any stage with its cause, and the
// connection is not kept.
func TestPoolContext(t *testing.T) {
	cause := errors.New("the client is gone")
	for _, stage := range []string{"before", "header", "body", "released"} {
		ctx, cancel := context.WithCancelCause(t.Context())
		f := newFake(t, func(f *fake, c net.Conn, n int) {
			f.next(c)
			if stage == "header" {
				time.AfterFunc(20*time.Millisecond, func() { cancel(cause) })
			} else {
				c.Write(reply(0, "hello")[:12])
			}
			c.Read(make([]byte, 1))
		})
		p := newPool(t, f, PoolOptions{})
		if stage == "before" {
			cancel(cause)
		}
		began := time.Now()
		c, _, err := p.Request(ctx, CmdDownload, 0, []byte("x"))
		switch stage {
		case "before", "header":
			require.ErrorIs(t, err, cause, stage)
			require.Nil(t, c)
		case "body":
			require.NoError(t, err)
			// during the read, or before it on a slow machine
			time.AfterFunc(20*time.Millisecond, func() { cancel(cause) })
			_, err = io.ReadAll(c)
			require.ErrorIs(t, err, cause, stage)
			_, err = c.Read(make([]byte, 1))
			require.ErrorIs(t, err, cause, stage)
			c.Release()
		case "released":
			require.NoError(t, err)
			cancel(cause)
			c.Release()
		}
		require.Less(t, time.Since(began), patient)
		require.Empty(t, p.idle)
		eventually.True(t, func() bool { return f.open.Load() == 0 }, stage)
		require.Equal(t, stage == "before", f.accepted.Load() == 0)
	}
}

// TestPoolContextAfterwards: a context that ends after the release of a connection has no effect on
// it.
func TestPoolContextAfterwards(t *testing.T) {
	f := newFake(t, echo)
	p := newPool(t, f, PoolOptions{})
	for range 50 {
		ctx, cancel := context.WithCancel(t.Context())
		_, err := p.Call(ctx, CmdActiveTest, 0, nil, 0)
		require.NoError(t, err)
		cancel()
	}
	require.EqualValues(t, 1, f.accepted.Load())
}

// TestPoolCloseWhileInUse: after the pool was closed, connections in use are closed when they are
// released.
func TestPoolCloseWhileInUse(t *testing.T) {
	f := newFake(t, echo)
	p := newPool(t, f, PoolOptions{})
	c, _, err := p.Request(t.Context(), CmdDownload, 0, []byte("hello"))
	require.NoError(t, err)
	p.Close()
	b, err := io.ReadAll(c)
	require.NoError(t, err)
	require.Equal(t, "hello", string(b))
	c.Release()
	eventually.True(t, func() bool { return f.open.Load() == 0 })
}

// TestPoolBoundsWaiting: if MaxWaiting requests wait for a connection, further ones fail at once.
func TestPoolBoundsWaiting(t *testing.T) {
	f := newFake(t, func(f *fake, c net.Conn, _ int) { io.Copy(io.Discard, c) })
	p := newPool(t, f, PoolOptions{MaxOpen: 1, MaxWaiting: 2, ConnectTimeout: patient, NetworkTimeout: patient})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for range 3 {
		running.Go(func() {
			_, err := p.Call(ctx, CmdActiveTest, 0, nil, 0)
			require.ErrorIs(t, err, context.Canceled)
		})
	}
	eventually.True(t, func() bool { return p.limit.waiting.Load() == 2 })
	_, err := p.Call(t.Context(), CmdActiveTest, 0, nil, 0)
	require.ErrorIs(t, err, ErrFull)
	cancel()
	running.Wait()
	require.Zero(t, p.limit.waiting.Load())
}
