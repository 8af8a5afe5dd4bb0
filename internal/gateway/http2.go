package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
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

// serve serves one connection until it is closed.
func (h *http2Server) serve(c *conn) {
	c.http2.Store(true)
	h.http.Serve(&http2Conn{c.tls, c})
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

// http2Conn is the connection that http2server reads and writes: the bytes within TLS.
type http2Conn struct {
	*tls.Conn
	counted *conn
}

// Write implements net.Conn.
func (c *http2Conn) Write(p []byte) (int, error) { return c.counted.WriteRecords(c.Conn, 0, p) }

// Close closes the connection, and ends its counting.
func (c *http2Conn) Close() error { return c.counted.guarded.Close() }

// MarkIdle implements http2server.Transport.
func (c *http2Conn) MarkIdle() { c.counted.guarded.MarkIdle() }

// MarkBusy implements http2server.Transport.
func (c *http2Conn) MarkBusy() bool { return c.counted.guarded.MarkBusy() }

// IdleFor implements http2server.Transport.
func (c *http2Conn) IdleFor() time.Duration { return c.counted.guarded.IdleFor() }

// Unacknowledged implements http2server.Transport.
func (c *http2Conn) Unacknowledged() int64 { return c.counted.Unacknowledged() }

// Abandon implements http2server.Transport.
func (c *http2Conn) Abandon() error { return c.counted.Abandon() }
