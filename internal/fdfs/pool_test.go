package fdfs

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"fastdfs-gateway/internal/testing/eventually"

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
	eventually.True(t, func() bool { return f.quits.Load() == 1 && f.open.Load() == 0 })
	_, err := call(p, "x")
	require.ErrorIs(t, err, ErrClosed)
}

// TestPoolBounds: at most MaxOpen connections are open at a time, and at most MaxIdle stay open. A
// request waits for a free one until its context ends.
func TestPoolBounds(t *testing.T) {
	f := newFake(t, echo)
	p := newPool(t, f, PoolOptions{MaxOpen: 4, MaxIdle: 2})
	var held []*Conn
	for range 4 {
		c, _, err := p.Request(t.Context(), CmdListStorages, 0, nil)
		require.NoError(t, err)
		held = append(held, c)
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, errors.New("enough"))
	defer cancel()
	_, _, err := p.Request(ctx, CmdListStorages, 0, nil)
	require.ErrorContains(t, err, "enough")
	done := make(chan error)
	go func() {
		_, err := call(p, "next")
		done <- err
	}()
	held[0].Release()
	require.NoError(t, <-done)
	for _, c := range held[1:] {
		c.Release()
	}
	require.EqualValues(t, 4, f.accepted.Load())
	require.Len(t, p.idle, 2)
	eventually.True(t, func() bool { return f.open.Load() == 2 })
}

// TestPoolStatus: a reply with a status is an error. Its connection is used again if the body is
// empty or short, and closed if it is long.
func TestPoolStatus(t *testing.T) {
	bodies := []string{"", "why it is not there", string(make([]byte, maxErrorBody)),
		string(make([]byte, maxErrorBody+1)), ""}
	f := newFake(t, func(f *fake, c net.Conn, _ int) {
		for {
			_, b, err := f.next(c)
			if err != nil {
				return
			}
			c.Write(reply(2, bodies[b[0]]))
		}
	})
	p := newPool(t, f, PoolOptions{})
	for i, connections := range []int32{1, 1, 1, 1, 2} {
		_, err := p.Call(t.Context(), CmdListStorages, 0, []byte{byte(i)}, 1000)
		require.ErrorIs(t, err, ErrNotFound)
		require.Equal(t, connections, f.accepted.Load(), "request %d", i)
	}
}

// TestPoolIncompleteReplies: a connection whose reply was not read to its end is not used again.
func TestPoolIncompleteReplies(t *testing.T) {
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

// TestPoolNonsense: an invalid reply is an error, the request is not repeated, and the connection
// is closed. A length of 2 GB in a header allocates nothing.
func TestPoolNonsense(t *testing.T) {
	for name, c := range map[string]struct {
		bytes []byte
		want  error
	}{
		"another protocol":  {[]byte("HTTP/1.1 400 Bad Request\r\n\r\n"), ErrProtocol},
		"a negative length": {Header{-1, CmdReply, 0}.AppendTo(nil), ErrProtocol},
		"another command":   {Header{0, CmdListStorages, 0}.AppendTo(nil), ErrProtocol},
		"2 GB":              {Header{2 << 30, CmdReply, 0}.AppendTo(nil), ErrProtocol},
		"2^63-1":            {Header{1<<63 - 1, CmdReply, 0}.AppendTo(nil), ErrProtocol},
		"half a header":     {Header{0, CmdReply, 0}.AppendTo(nil)[:5], io.ErrUnexpectedEOF},
		"nothing":           {nil, io.ErrUnexpectedEOF},
		"half a body":       {reply(0, "hello")[:12], io.ErrUnexpectedEOF},
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

// TestPoolTestsIdleConnections: idle connections that the server has closed, reset or written to
// are not used.
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
		eventually.True(t, func() bool { return !p.idle[0].usable() }, name)
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
	eventually.True(t, func() bool { return f.quits.Load() == 1 })
	for _, c := range p.idle {
		c.since = c.since.Add(-2 * time.Hour)
	}
	_, err := call(p, "x")
	require.NoError(t, err)
	require.EqualValues(t, 4, f.accepted.Load(), "both were too old")
	require.Len(t, p.idle, 1)
}

// TestPoolRetriesStaleConnections: if the server closes an idle connection at the moment of a
// request, the request is repeated on a new connection, and the other idle ones are not tried.
func TestPoolRetriesStaleConnections(t *testing.T) {
	const stale = 3
	f := newFake(t, func(f *fake, c net.Conn, n int) {
		f.next(c)
		c.Write(reply(0, ""))
		if n > stale {
			echo(f, c, n)
		}
		f.next(c) // reads the second request and closes the connection without a reply
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
	require.EqualValues(t, stale+1+1, f.requests.Load())
	require.EqualValues(t, stale+1, f.accepted.Load())
}

// TestPoolDoesNotRetryNewConnections: if the server closes every connection, a request is repeated
// once, on a new connection.
func TestPoolDoesNotRetryNewConnections(t *testing.T) {
	f := newFake(t, func(f *fake, c net.Conn, n int) {
		f.next(c)
		if n == 1 {
			c.Write(reply(0, ""))
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

// TestPoolRepeatsNothingBehindAByte: after a byte of a reply, or a timeout, a request is not
// repeated.
func TestPoolRepeatsNothingBehindAByte(t *testing.T) {
	for name, second := range map[string]func(net.Conn){
		"a byte":    func(c net.Conn) { c.Write([]byte{0}) },
		"a timeout": func(c net.Conn) { c.Read(make([]byte, 1)) },
	} {
		f := newFake(t, func(f *fake, c net.Conn, n int) {
			f.next(c)
			c.Write(reply(0, ""))
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
		require.LessOrEqual(t, f.requests.Load(), int32(2),
			"%s: where the machine stands still the time may be up before it is sent", name)
	}
}
