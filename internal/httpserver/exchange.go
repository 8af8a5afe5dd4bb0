package httpserver

import (
	"bufio"
	"crypto/tls"
	"net/netip"

	"fastdfs-gateway/internal/httpserver/http2server"
	"fastdfs-gateway/internal/httpserver/sendfile"

	"github.com/valyala/fasthttp"
)

// Exchange is one request and its response, by HTTP/1 or HTTP/2. It is pooled: a Handler uses it
// until the response has ended. The zero value is an Exchange without a connection, for tests.
type Exchange struct {
	Ctx fasthttp.RequestCtx

	conn  *conn
	out   *bufio.Writer       // nil = HTTP/2
	http2 *http2server.Stream // nil = HTTP/1
	pacer *sendfile.Pacer     // of the connection; nil = HTTP/1
}

// Client returns the address of the client: that of a PROXY header, or of the socket; invalid for a
// unix socket.
func (x *Exchange) Client() netip.Addr { return AddressOf(x.Ctx.RemoteAddr()) }

// ByProxyHeader reports whether Client is the address of a PROXY header, and whether the header
// names TLS.
func (x *Exchange) ByProxyHeader() (found, byTLS bool) {
	proxied, found := x.Ctx.RemoteAddr().(*proxiedAddr)
	return found, found && proxied.tls
}

// tooManyPerIP reports whether the client of a PROXY header has too many connections.
func (x *Exchange) tooManyPerIP() bool {
	proxied, ok := x.Ctx.RemoteAddr().(*proxiedAddr)
	return ok && proxied.tooMany
}

// ByTLS reports whether the connection is encrypted.
func (x *Exchange) ByTLS() bool { return x.conn != nil && x.conn.tls != nil }

// TLS returns the state of an encrypted connection.
func (x *Exchange) TLS() tls.ConnectionState { return x.conn.tls.ConnectionState() }

// Number returns the number of the connection, and of its requests so far.
func (x *Exchange) Number() (connection, requests uint64) {
	if x.conn == nil {
		return 0, 0
	}
	return x.conn.number, x.conn.requests.Load()
}

// Socket returns the connection to which the body may be written directly, below the writer of
// the response; nil by HTTP/2. plain is false for TLS.
func (x *Exchange) Socket() (c *sendfile.Conn, plain bool) {
	if x.conn == nil || x.http2 != nil {
		return nil, false
	}
	return x.conn.Conn, x.conn.tls == nil
}

// Pacer returns the pacer of all bodies of an HTTP/2 connection; nil by HTTP/1.
func (x *Exchange) Pacer() *sendfile.Pacer { return x.pacer }

// Stopping returns a channel that is closed when the server stops.
func (x *Exchange) Stopping() <-chan struct{} {
	if x.conn == nil {
		return nil
	}
	return x.conn.s.stopping
}

// Wait begins a wait for another host, until done is called. onDisconnect is called, at most once
// and from another goroutine, if the client leaves meanwhile. ok is false if too many requests wait
// for this source already.
func (x *Exchange) Wait(source string, onDisconnect func()) (done func(), ok bool) {
	c := x.conn
	if c == nil {
		return func() {}, true
	}
	c.socket.Detach()
	if !c.s.waits.add(source) {
		return nil, false
	}
	var stop func()
	if x.http2 != nil {
		stop = onReset(x.http2, onDisconnect)
	} else {
		stop = c.socket.OnDisconnect(onDisconnect)
	}
	return func() {
		stop()
		c.s.waits.remove(source)
	}, true
}
