package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"fastdfs-gateway/internal/httpserver/guard"
	"fastdfs-gateway/internal/httpserver/http2server"
)

// http2Server serves the connections whose clients chose h2 during the TLS handshake. Everything
// else about a connection is the same for both protocols: it is counted, limited and paced by its
// conn.
type http2Server struct {
	s       *Server
	http    *http2server.Server
	streams atomic.Int64 // requests at a time, of all connections
	copies  atomic.Int64 // copies with a large buffer at a time
	pool    sync.Pool    // of *stream
}

func newHTTP2Server(s *Server) *http2Server {
	h := &http2Server{s: s}
	h.pool.New = func() any { return newStream(h) }
	h.http = http2server.New(http2server.Options{
		Handler:     h.serveStream,
		MaxHead:     guard.HTTP2HeadBytes,
		MaxFields:   guard.MaxFields,
		ReadTimeout: s.o.ReadTimeout,
		Idle:        func() time.Duration { return min(s.o.IdleTimeout, s.maxIdle()) },
		MinSendRate: s.o.MinSendRate,
		Window:      func() time.Duration { return s.sendWindow },
		OnEnd:       h.ended,
	})
	return h
}

// serve serves one connection until it is closed. It is called by fasthttp after the handshake.
func (h *http2Server) serve(outer net.Conn) error {
	c := &http2Conn{tlsConn: outer.(*tlsConn)}
	c.counted.http2.Store(true)
	h.http.Serve(c)
	return nil
}

// shutdown sends GOAWAY on all connections, accepts none, and returns when all are closed or ctx
// has ended.
func (h *http2Server) shutdown(ctx context.Context) { h.http.Shutdown(ctx) }

// beginRequest counts a request, and returns an error if there are too many. There may be as many
// as MaxConnections, and of one address a share while more than half of them are in use.
func (h *http2Server) beginRequest(c *conn) error {
	most, all := int64(h.s.o.MaxConnections), h.streams.Add(1)
	own := int64(0)
	if c.address != nil {
		own = c.address.streams.Add(1)
	}
	switch {
	case all > most:
		return errTooManyStreams
	case 2*all > most && own > max(most/defaultPerIPFraction, 1):
		return errTooManyPerIP
	}
	return nil
}

// endRequest ends the counting.
func (h *http2Server) endRequest(c *conn) {
	h.streams.Add(-1)
	if c.address != nil {
		c.address.streams.Add(-1)
	}
}

// ended logs the end of a connection whose client broke a rule.
func (h *http2Server) ended(t http2server.Transport, cause error) {
	at := slog.Attr{Key: "remote", Value: slog.StringValue(t.RemoteAddr().String())}
	if errors.Is(cause, http2server.ErrFlood) {
		h.s.limited.Warn("HTTP/2 connection ended", at.Key, at.Value.String(), "err", cause)
		return
	}
	h.s.log.LogAttrs(context.Background(), slog.LevelDebug, "HTTP/2 connection ended", at,
		slog.String("reason", cause.Error()))
}

// tlsConn is a guarded connection with TLS. fasthttp calls Handshake first, and passes connections
// that negotiated h2 to http2Server.serve.
type tlsConn struct {
	*guard.Conn
	inner   *tls.Conn
	counted *conn
}

// Handshake performs the TLS handshake within ReadTimeout.
func (c *tlsConn) Handshake() error {
	s := c.counted.s
	_ = c.inner.SetReadDeadline(time.Now().Add(min(s.o.ReadTimeout, s.maxIdle()))) // fails only on a closed connection
	err := c.inner.Handshake()
	_ = c.inner.SetReadDeadline(time.Time{})
	return err
}

// ConnectionState returns the result of the handshake.
func (c *tlsConn) ConnectionState() tls.ConnectionState { return c.inner.ConnectionState() }

// http2Conn is the connection that http2server reads and writes: the bytes within TLS.
type http2Conn struct{ *tlsConn }

// Read reads bytes within TLS.
func (c *http2Conn) Read(p []byte) (int, error) { return c.inner.Read(p) }

// Write writes bytes within TLS.
func (c *http2Conn) Write(p []byte) (int, error) { return c.inner.Write(p) }

// SetReadDeadline bounds reads of bytes within TLS.
func (c *http2Conn) SetReadDeadline(t time.Time) error { return c.inner.SetReadDeadline(t) }

// SetWriteDeadline bounds writes in place of the pace of the client.
func (c *http2Conn) SetWriteDeadline(t time.Time) error { return c.inner.SetWriteDeadline(t) }

// SetDeadline is the sum of both.
func (c *http2Conn) SetDeadline(t time.Time) error { return c.inner.SetDeadline(t) }

// CloseWrite implements http2server.Transport.
func (c *http2Conn) CloseWrite() error { return c.inner.CloseWrite() }

// Unacknowledged implements http2server.Transport.
func (c *http2Conn) Unacknowledged() int64 { return c.counted.Unacknowledged() }

// Abandon implements http2server.Transport.
func (c *http2Conn) Abandon() error { return c.counted.Abandon() }
