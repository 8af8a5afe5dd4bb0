package disconnect

import (
	"log/slog"
	"net"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"fastdfs-gateway/internal/process/panics"
	"fastdfs-gateway/internal/testing/eventually"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// testTimeout is how long a test waits before it calls something stuck.
const testTimeout = time.Minute

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pair is both ends of a TCP connection.
func pair(t *testing.T) (client, server *net.TCPConn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	c, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	s, err := ln.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { _, _ = c.Close(), s.Close() })
	return c.(*net.TCPConn), s.(*net.TCPConn)
}

func rawOf(t *testing.T, c syscall.Conn) syscall.RawConn {
	t.Helper()
	raw, err := c.SyscallConn()
	require.NoError(t, err)
	return raw
}

func TestWatch(t *testing.T) {
	h := New(slog.New(slog.DiscardHandler))
	defer h.Close()
	for name, leave := range map[string]func(c *net.TCPConn){
		"close":       func(c *net.TCPConn) { _ = c.Close() },
		"half closed": func(c *net.TCPConn) { _ = c.CloseWrite() },
		"reset":       func(c *net.TCPConn) { _, _ = c.SetLinger(0), c.Close() },
		"with a pipelined request": func(c *net.TCPConn) {
			_, _ = c.Write([]byte("GET / HTTP/1.1\r\n"))
			_ = c.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			client, server := pair(t)
			gone := make(chan struct{}, 10)
			for range 2 { // the second time after the first wait has ended well
				h.Watch(rawOf(t, server), func() { gone <- struct{}{} })()
			}
			stop := h.Watch(rawOf(t, server), func() { gone <- struct{}{} })
			defer stop()
			_, err := client.Write([]byte("x")) // bytes are no leaving
			require.NoError(t, err)
			select {
			case <-gone:
				t.Fatal("the client has not left")
			case <-time.After(20 * time.Millisecond):
			}
			leave(client)
			select {
			case <-gone:
			case <-time.After(testTimeout):
				t.Fatal("nobody has noticed that the client has left")
			}
		})
	}
	t.Run("many", func(t *testing.T) {
		const n = 500
		gone := make(chan int, n)
		for i := range n {
			client, server := pair(t)
			defer h.Watch(rawOf(t, server), func() { gone <- i })()
			_ = client.Close()
		}
		seen := map[int]bool{}
		for range n {
			seen[<-gone] = true
		}
		require.Len(t, seen, n)
	})
	require.Empty(t, h.waiting)
}

func TestClosed(t *testing.T) {
	h := New(slog.New(slog.DiscardHandler))
	_, server := pair(t)
	stop := h.Watch(rawOf(t, server), func() {})
	h.Close()
	stop()
	h.Watch(rawOf(t, server), func() {})()
}

// TestStopWaits: a callback may use what its caller gives up after stop. So stop waits for a call
// that runs, and no call begins after it.
func TestStopWaits(t *testing.T) {
	h := New(slog.New(slog.DiscardHandler))
	defer h.Close()
	client, server := pair(t)
	running, end := make(chan struct{}), make(chan struct{})
	stop := h.Watch(rawOf(t, server), func() { close(running); <-end })
	require.NoError(t, client.CloseWrite())
	<-running
	stopped := make(chan struct{})
	go func() { defer close(stopped); stop() }()
	eventually.True(t, func() bool { // the goroutine waits in stop
		text := make([]byte, 1<<20)
		return strings.Contains(string(text[:runtime.Stack(text, true)]), "(*Watcher).remove")
	})
	select {
	case <-stopped:
		t.Fatal("the callback still runs")
	default:
	}
	close(end)
	<-stopped

	for range 1000 { // the client leaves at the moment of stop
		client, server := pair(t)
		over := false // a call after stop is a data race
		stop := h.Watch(rawOf(t, server), func() { over = true })
		left := make(chan struct{})
		go func() { defer close(left); _ = client.CloseWrite() }()
		stop()
		over = true
		<-left
		_, _ = over, server.Close()
	}
	require.Empty(t, h.waiting)
}

// TestPanicInCallback: a bug in a callback ends neither the process nor the watch of others.
func TestPanicInCallback(t *testing.T) {
	h := New(slog.New(slog.DiscardHandler))
	defer h.Close()
	before := panics.Total()
	client, server := pair(t)
	stop := h.Watch(rawOf(t, server), func() { panic("bug") })
	require.NoError(t, client.Close())
	eventually.True(t, func() bool { return panics.Total() == before+1 })
	stop()
	client, server = pair(t)
	gone := make(chan struct{})
	defer h.Watch(rawOf(t, server), func() { close(gone) })()
	require.NoError(t, client.Close())
	<-gone
}
