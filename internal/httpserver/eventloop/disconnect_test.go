package eventloop

import (
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"fastdfs-gateway/internal/process/panics"
	"fastdfs-gateway/internal/testing/eventually"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// pairs is a server that passes its connections to the test.
type pairs struct {
	*server
	accepted chan *Conn
}

func startPairs(t *testing.T) *pairs {
	t.Helper()
	p := &pairs{accepted: make(chan *Conn, 1)}
	p.server = start(t, func(c *Conn) {
		c.Leave()
		p.accepted <- c
	})
	return p
}

// next returns both ends of a connection. With parked, the connection was parked before, so that
// its loop reports its events all the time.
func (p *pairs) next(parked bool) (client *net.TCPConn, served *Conn) {
	p.t.Helper()
	client = p.dial()
	_, err := client.Write([]byte("x"))
	require.NoError(p.t, err)
	served = <-p.accepted
	if !parked {
		served.unregister() // start has parked the connection
	}
	_, err = served.Read(make([]byte, 1))
	require.NoError(p.t, err)
	_, err = served.ReadNow(make([]byte, 1))
	require.Equal(p.t, unix.EAGAIN, err)
	return client, served
}

func TestOnDisconnect(t *testing.T) {
	p := startPairs(t)
	for name, leave := range map[string]func(c *net.TCPConn){
		"close":       func(c *net.TCPConn) { _ = c.Close() },
		"half closed": func(c *net.TCPConn) { _ = c.CloseWrite() },
		"reset":       func(c *net.TCPConn) { _, _ = c.SetLinger(0), c.Close() },
		"with a pipelined request": func(c *net.TCPConn) {
			_, _ = c.Write([]byte("GET / HTTP/1.1\r\n"))
			_ = c.Close()
		},
	} {
		for _, parked := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				client, served := p.next(parked)
				left := make(chan struct{}, 10)
				disconnected := func() { left <- struct{}{} }
				for range 2 { // the second wait follows one that has ended without a disconnect
					served.OnDisconnect(disconnected)()
				}
				stop := served.OnDisconnect(disconnected)
				_, err := client.Write([]byte("x")) // bytes are no disconnect
				require.NoError(t, err)
				eventually.True(t, served.Readable)
				require.Empty(t, left)
				leave(client)
				<-left
				stop()
				served.OnDisconnect(disconnected)()
				require.Len(t, left, 1, "it is known already")
				require.NoError(t, served.Close())
				served.OnDisconnect(disconnected)()
			})
		}
	}
}

// TestStopWaits: stop waits for a running callback, and no callback begins after it, since its
// caller may then reuse the values of the callback.
func TestStopWaits(t *testing.T) {
	p := startPairs(t)
	client, served := p.next(true)
	running, end := make(chan struct{}), make(chan struct{})
	stop := served.OnDisconnect(func() { close(running); <-end })
	require.NoError(t, client.CloseWrite())
	<-running
	stopped := make(chan struct{})
	go func() { defer close(stopped); stop() }()
	eventually.True(t, func() bool { // the goroutine waits in stop
		text := make([]byte, 1<<20)
		return strings.Contains(string(text[:runtime.Stack(text, true)]), "OnDisconnect.func")
	})
	select {
	case <-stopped:
		t.Fatal("the callback still runs")
	case <-time.After(10 * time.Millisecond):
	}
	close(end)
	<-stopped

	for i := range 1000 { // the client disconnects at the moment of stop
		client, served := p.next(i%2 == 0)
		over := false // a call after stop is a data race
		stop := served.OnDisconnect(func() { over = true })
		left := make(chan struct{})
		go func() { defer close(left); _ = client.CloseWrite() }()
		stop()
		over = true
		<-left
		_, _ = over, served.Close()
	}
}

// TestPanicOfOnDisconnect: a panic of a callback ends nothing else.
func TestPanicOfOnDisconnect(t *testing.T) {
	p := startPairs(t)
	before := panics.Total()
	client, served := p.next(true)
	stop := served.OnDisconnect(func() { panic("bug") })
	require.NoError(t, client.Close())
	eventually.True(t, func() bool { return panics.Total() == before+1 })
	stop()
}
