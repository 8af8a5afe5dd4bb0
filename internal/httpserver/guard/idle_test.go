package guard

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"fastdfs-gateway/internal/process/panics"
	"fastdfs-gateway/internal/testing/eventually"

	"github.com/stretchr/testify/require"
)

// TestIdleSince: a connection is idle until a request is complete, and the idle time begins at its
// start, at the first byte of a request and after each request.
func TestIdleSince(t *testing.T) {
	server, client := tcpPair(t)
	c := New(Options{}).Wrap(server)
	first, idle := c.IdleSince()
	require.True(t, idle, "a new connection")
	read := make(chan int)
	go func() {
		for {
			n, err := c.Read(make([]byte, 8192))
			if err != nil {
				close(read)
				return
			}
			read <- n
		}
	}()
	_, err := io.WriteString(client, "GET / HTTP/1.1\r\n")
	require.NoError(t, err)
	eventually.True(t, func() bool { since, idle := c.IdleSince(); return idle && since > first },
		"since the first byte")
	time.Sleep(20 * time.Millisecond) // the Read may have begun after first was taken, and its byte have arrived later
	half, _ := c.IdleSince()
	for range 3 { // further bytes do not renew the idle time
		_, err = io.WriteString(client, "A: b\r\n")
		require.NoError(t, err)
	}
	time.Sleep(20 * time.Millisecond) // enough for the bytes to arrive
	since, idle := c.IdleSince()
	require.True(t, idle)
	require.Equal(t, half, since)
	_, err = io.WriteString(client, "Host: h\r\n\r\n")
	require.NoError(t, err)
	require.Positive(t, <-read) // the next Read is called now
	eventually.True(t, func() bool { since, idle := c.IdleSince(); return idle && since > half })

	require.False(t, c.ClaimIdle(half), "a request has come since")
	since, _ = c.IdleSince()
	require.True(t, c.ClaimIdle(since))
	require.False(t, c.ClaimIdle(since), "once")
	_, idle = c.IdleSince()
	require.False(t, idle)
	_, err = io.WriteString(client, get())
	require.NoError(t, err)
	_, open := <-read
	require.False(t, open, "no request is handed on any more")
}

// TestTakeIdleOrRequest: either a connection is claimed as idle or its request is handed on, never
// both, in either order.
func TestTakeIdleOrRequest(t *testing.T) {
	took, handed := 0, 0
	for i := range 400 {
		server, client := tcpPair(t)
		c := New(Options{}).Wrap(server)
		_, err := io.WriteString(client, get())
		require.NoError(t, err)
		var got, claimed atomic.Bool
		var both sync.WaitGroup
		both.Go(func() {
			n, _ := c.Read(make([]byte, 8192))
			got.Store(n > 0)
		})
		both.Go(func() {
			time.Sleep(time.Duration(i%40) * time.Microsecond)
			if since, idle := c.IdleSince(); idle {
				claimed.Store(c.ClaimIdle(since))
			}
		})
		both.Wait()
		require.NotEqual(t, got.Load(), claimed.Load())
		if got.Load() {
			handed++
		} else {
			took++
		}
		require.NoError(t, c.Close())
		require.NoError(t, client.Close())
	}
	t.Logf("%d taken, %d handed on", took, handed)
}

// TestPanicWhileReading: a panic in the reader ends one connection, not the process.
func TestPanicWhileReading(t *testing.T) {
	before := panics.Total()
	server, client := tcpPair(t)
	c := New(Options{OnReject: func(net.Conn, *Error) { panic("test") }}).Wrap(server)
	_, err := io.WriteString(client, "nonsense\r\n\r\n")
	require.NoError(t, err)
	n, err := c.Read(make([]byte, 100))
	require.Zero(t, n)
	require.ErrorIs(t, err, io.EOF)
	require.EqualValues(t, before+1, panics.Total())
	_, err = c.Read(make([]byte, 100))
	require.ErrorIs(t, err, io.EOF, "nothing more is read")
	require.NoError(t, c.Close())
}
