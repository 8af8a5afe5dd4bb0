package fdfs

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPoolReuses(t *testing.T) {
	f := newFake(t, echo)
	p := newPool(t, f, PoolOptions{})
	require.Equal(t, f.Addr().String(), p.Addr())
	for _, text := range []string{"one", "", "three"} {
		got, err := call(p, text)
		require.NoError(t, err)
		require.Equal(t, text, got)
	}
	require.EqualValues(t, 1, f.accepted.Load())
	p.Close()
	require.Eventually(t, func() bool { return f.quits.Load() == 1 && f.open.Load() == 0 }, patient, time.Millisecond)
	_, err := call(p, "x")
	require.ErrorIs(t, err, ErrClosed)
}

func TestPoolRequestSends(t *testing.T) {
	got := make(chan []byte, 1)
	f := newFake(t, func(f *fake, c net.Conn, _ int) {
		b := make([]byte, 13)
		io.ReadFull(c, b)
		got <- b
		c.Write(answer(0, ""))
		io.ReadFull(c, make([]byte, 1))
	})
	p := newPool(t, f, PoolOptions{})
	_, err := p.Call(t.Context(), CmdFileInfo, FlagNoCRC, []byte("abc"), 0)
	require.NoError(t, err)
	require.Equal(t, []byte("\x00\x00\x00\x00\x00\x00\x00\x03\x16\x01abc"), <-got)
}

// No more connections than MaxOpen at a time, and no more than MaxIdle stay.
func TestPoolBounds(t *testing.T) {
	var asked, most atomic.Int32
	together, all := make(chan struct{}), sync.Once{} // the first requests are answered when as many as may be have come
	f := newFake(t, func(f *fake, c net.Conn, n int) {
		for {
			_, body, err := f.next(c)
			if err != nil {
				return
			}
			for now := asked.Add(1); ; {
				if m := most.Load(); now <= m || most.CompareAndSwap(m, now) {
					break
				}
			}
			if most.Load() >= 4 {
				all.Do(func() { close(together) })
			}
			select {
			case <-together:
			case <-time.After(patient):
				all.Do(func() { close(together) })
			}
			time.Sleep(2 * time.Millisecond)
			asked.Add(-1)
			c.Write(answer(0, string(body)))
		}
	})
	p := newPool(t, f, PoolOptions{MaxOpen: 4, MaxIdle: 2})
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range 10 {
				got, err := call(p, "x")
				if err != nil || got != "x" {
					t.Errorf("%q %v", got, err)
				}
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 160, f.requests.Load())
	require.EqualValues(t, 4, most.Load(), "requests at a time")
	require.Eventually(t, func() bool { return f.open.Load() <= 2 }, patient, time.Millisecond)
	require.LessOrEqual(t, len(p.idle), 2)
}

func TestPoolWaitsForASlot(t *testing.T) {
	f := newFake(t, echo)
	p := newPool(t, f, PoolOptions{MaxOpen: 1})
	c, _, err := p.Request(t.Context(), CmdListStorages, 0, []byte("held"))
	require.NoError(t, err)
	ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, errors.New("enough"))
	defer cancel()
	_, _, err = p.Request(ctx, CmdListStorages, 0, nil)
	require.ErrorContains(t, err, "enough")
	done := make(chan error)
	go func() {
		_, err := call(p, "next")
		done <- err
	}()
	_, err = io.ReadAll(c)
	require.NoError(t, err)
	c.Release()
	require.NoError(t, <-done)
	require.EqualValues(t, 1, f.accepted.Load())
}

// A status is an error that leaves the connection usable, with a short body or none; with a long one it is closed.
func TestPoolStatus(t *testing.T) {
	bodies := []string{"", "why it is not there", string(make([]byte, maxRefusal)), string(make([]byte, maxRefusal+1)), ""}
	f := newFake(t, func(f *fake, c net.Conn, _ int) {
		for {
			_, b, err := f.next(c)
			if err != nil {
				return
			}
			c.Write(answer(2, bodies[b[0]]))
		}
	})
	p := newPool(t, f, PoolOptions{})
	for i, connections := range []int32{1, 1, 1, 1, 2} {
		_, err := p.Call(t.Context(), CmdListStorages, 0, []byte{byte(i)}, 1000)
		require.ErrorIs(t, err, ErrNotFound)
		require.Equal(t, connections, f.accepted.Load(), "request %d", i)
	}
}

// A connection whose answer was not read to its end is not used again.
func TestPoolIncompleteAnswers(t *testing.T) {
	f := newFake(t, echo)
	p := newPool(t, f, PoolOptions{})
	for i, read := range []int{0, 1, 4} {
		c, h, err := p.Request(t.Context(), CmdDownload, 0, []byte("hello"))
		require.NoError(t, err)
		require.EqualValues(t, 5, h.Length)
		_, err = io.ReadFull(c, make([]byte, read))
		require.NoError(t, err)
		c.Release()
		require.EqualValues(t, i+1, f.accepted.Load())
		require.Empty(t, p.idle)
	}
	_, err := p.Call(t.Context(), CmdListStorages, 0, []byte("hello"), 4)
	require.ErrorIs(t, err, ErrProtocol, "more than the caller expects")
	require.Empty(t, p.idle)
	c, _, err := p.Request(t.Context(), CmdDownload, 0, []byte("hello"))
	require.NoError(t, err)
	n, err := io.Copy(io.Discard, c)
	require.NoError(t, err)
	require.EqualValues(t, 5, n)
	c.Release()
	require.Len(t, p.idle, 1)
}

// What is no answer is an error, not repeated, and its connection is closed. A promise of 2 GB is not allocated.
func TestPoolNonsense(t *testing.T) {
	for name, c := range map[string]struct {
		bytes []byte
		want  error
	}{
		"another protocol":  {[]byte("HTTP/1.1 400 Bad Request\r\n\r\n"), ErrProtocol},
		"a negative length": {Header{-1, CmdAnswer, 0}.AppendTo(nil), ErrProtocol},
		"another command":   {Header{0, CmdListStorages, 0}.AppendTo(nil), ErrProtocol},
		"2 GB":              {Header{2 << 30, CmdAnswer, 0}.AppendTo(nil), ErrProtocol},
		"2^63-1":            {Header{1<<63 - 1, CmdAnswer, 0}.AppendTo(nil), ErrProtocol},
		"half a header":     {Header{0, CmdAnswer, 0}.AppendTo(nil)[:5], io.ErrUnexpectedEOF},
		"nothing":           {nil, io.ErrUnexpectedEOF},
		"half a body":       {answer(0, "hello")[:12], io.ErrUnexpectedEOF},
	} {
		f := newFake(t, func(f *fake, conn net.Conn, _ int) {
			f.next(conn)
			conn.Write(c.bytes)
		})
		p := newPool(t, f, PoolOptions{})
		_, err := call(p, "x")
		require.ErrorIs(t, err, c.want, name)
		require.Contains(t, err.Error(), p.Addr(), name)
		require.EqualValues(t, 1, f.requests.Load(), name)
		require.Empty(t, p.idle)
	}
}

// Idle connections that the server has closed, reset or written to are not used.
func TestPoolTestsIdleConnections(t *testing.T) {
	for name, spoil := range map[string]func(net.Conn){
		"closed":  func(c net.Conn) { c.Close() },
		"reset":   func(c net.Conn) { c.(*net.TCPConn).SetLinger(0); c.Close() },
		"garbage": func(c net.Conn) { c.Write([]byte("!")) },
	} {
		f := newFake(t, echo)
		p := newPool(t, f, PoolOptions{})
		_, err := call(p, "x")
		require.NoError(t, err)
		spoil(f.conn(0))
		require.Eventually(t, func() bool { return !p.idle[0].usable() }, patient, time.Millisecond, name)
		got, err := call(p, "y")
		require.NoError(t, err, name)
		require.Equal(t, "y", got)
		require.EqualValues(t, 2, f.accepted.Load())
		require.EqualValues(t, 2, f.requests.Load(), "the request did not reach the spoiled connection")
	}
}

func TestPoolAgesIdleConnections(t *testing.T) {
	f := newFake(t, echo)
	p := newPool(t, f, PoolOptions{IdleTimeout: time.Hour})
	var held []*Conn
	for range 3 {
		c, _, err := p.Request(t.Context(), CmdActiveTest, 0, nil)
		require.NoError(t, err)
		held = append(held, c)
	}
	for _, c := range held {
		c.Release()
	}
	require.Len(t, p.idle, 3)
	p.idle[0].since = p.idle[0].since.Add(-2 * time.Hour)
	p.Sweep(time.Now())
	require.Len(t, p.idle, 2)
	require.Eventually(t, func() bool { return f.quits.Load() == 1 }, patient, time.Millisecond)
	for _, c := range p.idle {
		c.since = c.since.Add(-2 * time.Hour)
	}
	_, err := call(p, "x")
	require.NoError(t, err)
	require.EqualValues(t, 4, f.accepted.Load(), "both were too old")
	require.Len(t, p.idle, 1)
}

// A server may close idle connections in the moment of a request: it is sent again, once for each such connection.
func TestPoolRetriesStaleConnections(t *testing.T) {
	const stale = 3
	f := newFake(t, func(f *fake, c net.Conn, n int) {
		f.next(c)
		c.Write(answer(0, ""))
		if n > stale {
			echo(f, c, n)
		}
		f.next(c) // it reads the second request and goes away without a word
	})
	p := newPool(t, f, PoolOptions{})
	var held []*Conn
	for range stale {
		c, _, err := p.Request(t.Context(), CmdActiveTest, 0, nil)
		require.NoError(t, err)
		held = append(held, c)
	}
	for _, c := range held {
		c.Release()
	}
	_, err := call(p, "x")
	require.NoError(t, err)
	require.EqualValues(t, stale+stale+1, f.requests.Load())
	require.EqualValues(t, stale+1, f.accepted.Load())
}

// A server that closes every connection gets a request once on a new one.
func TestPoolDoesNotRetryNewConnections(t *testing.T) {
	f := newFake(t, func(f *fake, c net.Conn, n int) {
		f.next(c)
		if n == 1 {
			c.Write(answer(0, ""))
			f.next(c)
		}
	})
	p := newPool(t, f, PoolOptions{})
	_, err := call(p, "")
	require.NoError(t, err)
	_, err = call(p, "x")
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.EqualValues(t, 3, f.requests.Load(), "on the stale one and on a new one")
}

// After a byte of an answer, or a timeout, a request is not repeated.
func TestPoolDoesNotRepeatAnswered(t *testing.T) {
	for name, second := range map[string]func(net.Conn){
		"a byte":    func(c net.Conn) { c.Write([]byte{0}) },
		"a timeout": func(c net.Conn) { c.Read(make([]byte, 1)) },
	} {
		f := newFake(t, func(f *fake, c net.Conn, n int) {
			f.next(c)
			c.Write(answer(0, ""))
			f.next(c)
			second(c)
		})
		p := newPool(t, f, PoolOptions{})
		_, err := call(p, "")
		require.NoError(t, err)
		if name == "a timeout" {
			p.o.NetworkTimeout = 50 * time.Millisecond
		}
		_, err = call(p, "x")
		require.Error(t, err, name)
		require.Equal(t, 1, f.acceptedSoFar(t), name)
		require.LessOrEqual(t, f.requests.Load(), int32(2), "%s: where the machine stands still the time may be up before it is sent", name)
	}
}

func TestPoolTimeouts(t *testing.T) {
	f := newFake(t, func(f *fake, c net.Conn, n int) {
		f.next(c)
		if n == 2 {
			c.Write(answer(0, "hello")[:12])
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
	require.Zero(t, len(p.slots))

	cause := errors.New("gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(20*time.Millisecond, func() { cancel(cause) })
	p = NewPool(p.Addr(), PoolOptions{ConnectTimeout: time.Minute})
	defer p.Close()
	_, err = p.Call(ctx, CmdActiveTest, 0, nil, 0)
	require.ErrorIs(t, err, cause)
}

func TestPoolRefused(t *testing.T) {
	p := NewPool(refusing(t), PoolOptions{MaxOpen: 1})
	defer p.Close()
	for range 3 {
		_, err := call(p, "x")
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		require.Contains(t, err.Error(), p.Addr())
	}
	require.Zero(t, len(p.slots))
}

// When the context ends, whatever is under way ends at once with its cause, and nothing is kept.
func TestPoolContext(t *testing.T) {
	cause := errors.New("the client is gone")
	for _, stage := range []string{"before", "header", "body", "released"} {
		ctx, cancel := context.WithCancelCause(t.Context())
		f := newFake(t, func(f *fake, c net.Conn, n int) {
			f.next(c)
			if stage == "header" {
				time.AfterFunc(20*time.Millisecond, func() { cancel(cause) })
			} else {
				c.Write(answer(0, "hello")[:12])
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
			time.AfterFunc(20*time.Millisecond, func() { cancel(cause) }) // while it is read, or before on a slow machine
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
		require.Eventually(t, func() bool { return f.open.Load() == 0 }, patient, time.Millisecond, stage)
		require.Equal(t, stage == "before", f.accepted.Load() == 0)
	}
}

// A context that ends after the answer was read and given back does the connection no harm.
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

// Closing a pool closes the connections that are in use when they are given back.
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
	require.Eventually(t, func() bool { return f.open.Load() == 0 }, patient, time.Millisecond)
}

// Under any mixture of faults every answer is the right one, and no slot, descriptor or connection is left.
func TestPoolUnderFaults(t *testing.T) {
	before := descriptors(t)
	f := newFake(t, func(f *fake, c net.Conn, n int) {
		for i := 0; ; i++ {
			_, body, err := f.next(c)
			if err != nil {
				return
			}
			whole := answer(0, string(body))
			switch (n + i) % 7 {
			case 0:
				return
			case 1:
				c.Write(whole[:len(whole)-1])
				return
			case 2:
				c.Write(bytes.Repeat([]byte{0xa5}, 20))
				return
			case 3:
				c.Write(answer(22, "no"))
			case 4:
				for _, b := range whole {
					c.Write([]byte{b})
				}
			default:
				c.Write(whole)
			}
		}
	})
	p := newPool(t, f, PoolOptions{MaxOpen: 8, MaxIdle: 4, NetworkTimeout: time.Second})
	var good, bad atomic.Int32
	var wg sync.WaitGroup
	for worker := range 16 {
		wg.Go(func() {
			for i := range 40 {
				text := string([]byte{byte(worker), byte(i), 'x'})
				ctx, cancel := context.WithCancel(context.Background())
				if i%5 == 0 {
					time.AfterFunc(time.Duration(i)*10*time.Microsecond, cancel)
				}
				got, err := p.Call(ctx, CmdListStorages, 0, []byte(text), 100)
				cancel()
				if err == nil && string(got) != text {
					t.Errorf("got %q, want %q", got, text)
				}
				if err == nil {
					good.Add(1)
				} else {
					bad.Add(1)
				}
			}
		})
	}
	wg.Wait()
	require.NotZero(t, good.Load())
	require.NotZero(t, bad.Load())
	require.Zero(t, len(p.slots))
	p.Close()
	f.Close()
	require.Eventually(t, func() bool { return f.open.Load() == 0 && descriptors(t) <= before+1 }, patient, time.Millisecond)
}

// Beyond the requests that may wait for a connection, requests fail at once.
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
	require.Eventually(t, func() bool { return p.waiting.Load() == 2 }, patient, time.Millisecond)
	_, err := p.Call(t.Context(), CmdActiveTest, 0, nil, 0)
	require.ErrorIs(t, err, ErrFull)
	cancel()
	running.Wait()
	require.Zero(t, p.waiting.Load())
}
