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
	body  *sendfile.Body      // of the response; nil = that of Ctx
}

// Send makes body the body of the response. The server writes it after Serve has returned, and then
// calls its Done.
func (x *Exchange) Send(body *sendfile.Body) {
	if x.conn != nil && x.http2 == nil {
		body.Conn, body.Direct = x.conn.Conn, x.conn.tls == nil
	}
	x.body = body
}

// takeBody returns the body of Send; nil = none.
func (x *Exchange) takeBody() (body *sendfile.Body) {
	body, x.body = x.body, nil
	return body
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

// Limit returns a bound on the rate of a body, which is lifted when the server stops, so that
// responses end in time. The first after bytes have none. If the requests of an HTTP/2 connection
// are those of one client, its bodies share the rate.
func (x *Exchange) Limit(rate, after int64, oneClient bool) sendfile.Limit {
	l := sendfile.Limit{Rate: rate, After: after}
	if x.conn != nil {
		l.Lifted = x.conn.s.stopping
	}
	if oneClient {
		l.Pacer = x.pacer
	}
	return l
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
	if !c.s.waits.addWait(source) {
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
