package httpserver

import (
	"context"
	"crypto/tls"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"fastdfs-gateway/internal/httpserver/guard"
	"fastdfs-gateway/internal/testing/certtest"
	"fastdfs-gateway/internal/testing/eventually"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// testTimeout bounds everything that normally takes a fraction of a second: a slow machine under
// load is no failure.
const testTimeout = time.Minute

// fasthttpsOwn ignores the clock of fasthttp, a goroutine that outlives every server.
var fasthttpsOwn = []goleak.Option{
	goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"),
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, fasthttpsOwn...) }

// plainHandler responds to each request with a line of text.
type plainHandler struct{ limits Limits }

func (h *plainHandler) Serve(x *Exchange)                          { x.Ctx.SetBodyString("hello\n") }
func (h *plainHandler) Reject(x *Exchange, reason error)           { x.Ctx.Error(reason.Error(), 503) }
func (h *plainHandler) Rejected(netip.Addr, *guard.Error)          {}
func (h *plainHandler) Page(int) (body []byte, contentType string) { return nil, "" }
func (h *plainHandler) Limits() Limits                             { return h.limits }

// running is a server that serves until the test ends.
type running struct {
	*Server
	address string
}

// runTLS serves by TLS with a protocol of ALPN. The result has the options of a client.
func runTLS(t *testing.T, o Options, protocol string) (*running, *tls.Config) {
	t.Helper()
	certificate := certtest.New(t, certtest.Order{Hosts: []string{"example.com"}})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &running{New(o, &plainHandler{}), ln.Addr().String()}
	served := make(chan error, 1)
	go func() {
		served <- s.Serve(ln, &tls.Config{Certificates: []tls.Certificate{certificate.TLS()},
			NextProtos: []string{protocol}})
	}()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
		defer cancel()
		require.NoError(t, s.Shutdown(ctx))
		require.NoError(t, <-served)
	})
	return s, &tls.Config{RootCAs: certificate.Pool(), ServerName: "example.com", NextProtos: []string{protocol}}
}

// littleRoom dials connections with a small receive buffer, which take few bytes before the client
// reads.
var littleRoom = &net.Dialer{Control: func(_, _ string, raw syscall.RawConn) (err error) {
	_ = raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 4096)
	})
	return err
}}

// TestDeferAccept: with a limit per address, or a low limit of all connections, the kernel does not
// defer connections until their first bytes, so that all of them count. This also changes the
// socket of another process.
func TestDeferAccept(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	socket, err := ln.(*net.TCPListener).SyscallConn()
	require.NoError(t, err)
	for _, tt := range []struct {
		o      Options
		defers bool
	}{
		{Options{}, true},
		{Options{MaxConnectionsPerIP: 5000}, false},
		{Options{MaxConnectionsPerIP: -1}, true}, // no limit
		{Options{MaxConnections: fewConnections}, true},
		{Options{MaxConnections: fewConnections - 1}, false},
	} {
		New(tt.o, &plainHandler{}).deferAccept(ln)
		require.NoError(t, socket.Control(func(fd uintptr) {
			seconds, err := unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_DEFER_ACCEPT)
			require.NoError(t, err)
			require.Equal(t, tt.defers, seconds > 0, "%+v", tt.o)
		}))
	}
}

// TestHTTP2RequestsOfAnAddress: while many requests are served, one address gets at most a share of
// them, over all of its connections.
func TestHTTP2RequestsOfAnAddress(t *testing.T) {
	h := &Server{o: Options{MaxConnections: 80}}
	h.http2 = h.newHTTP2()
	a, b, proxy := &conn{address: newConnSet()}, &conn{address: newConnSet()}, &conn{}
	another := &conn{address: a.address}
	for i := range 40 {
		require.NoError(t, h.beginRequest([]*conn{a, another}[i%2]))
	}
	require.ErrorIs(t, h.beginRequest(a), ErrTooManyPerIP)
	h.endRequest(a)
	require.NoError(t, h.beginRequest(b))
	for range 39 {
		require.NoError(t, h.beginRequest(proxy))
	}
	require.ErrorIs(t, h.beginRequest(proxy), ErrTooManyRequests)
	h.endRequest(proxy)
	for range 40 {
		h.endRequest(a)
	}
	require.NoError(t, h.beginRequest(another))
}

// TestShutdownPassesClientsThatDoNotRead: Shutdown writes the end of TLS to idle connections, and
// does not wait for clients that do not read it.
func TestShutdownPassesClientsThatDoNotRead(t *testing.T) {
	var clients []net.Conn
	t.Cleanup(func() { // after Shutdown
		for _, c := range clients {
			_ = c.Close()
		}
	})
	s, config := runTLS(t, Options{ReadTimeout: time.Hour}, "http/1.1")
	for range 20 { // each wait of crypto/tls takes up to 5 s
		c, err := tls.DialWithDialer(littleRoom, "tcp", s.address, config)
		require.NoError(t, err)
		clients = append(clients, c)
	}
	unread := make([]byte, 1<<20)
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.all.conns { // as after responses that the client has not read
		eventually.True(t, func() bool { return c.tls.ConnectionState().HandshakeComplete })
		require.NoError(t, c.socket.Control(func(fd uintptr) error { // so the buffer does not grow
			return unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUF, 4096)
		}))
		for size, err := len(unread), error(nil); size > 0; size /= 2 { // until no byte fits
			require.NoError(t, c.SetWriteDeadline(time.Now().Add(time.Millisecond)))
			for err = nil; err == nil; _, err = c.Conn.Write(unread[:size]) {
			}
			require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		}
	}
}
