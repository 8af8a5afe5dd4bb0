package httpserver

import (
	"crypto/tls"
	"errors"
	"time"

	"fastdfs-gateway/internal/httpserver/guard"
	"fastdfs-gateway/internal/httpserver/http2server"
	"fastdfs-gateway/internal/httpserver/sendfile"
)

// newHTTP2 returns the server of the connections whose clients chose h2 during the TLS handshake.
// Everything else about a connection is the same for both protocols: it is counted, limited and
// paced by its conn.
func (s *Server) newHTTP2() *http2server.Server {
	s.streams.New = func() any { return &stream{s: s} }
	return http2server.New(http2server.Options{
		Handler:     s.serveStream,
		MaxHead:     guard.HTTP2HeadBytes,
		MaxFields:   guard.MaxFields,
		ReadTimeout: s.o.ReadTimeout,
		IdleTimeout: s.o.IdleTimeout,
		MinSendRate: s.o.MinSendRate,
		Window:      s.o.SendWindow,
		Crowded:     func() bool { return 2*s.requests.Load() > int64(s.o.MaxConnections) },
		OnEnd:       s.http2Ended,
	})
}

// beginRequest counts an HTTP/2 request, and returns an error if there are too many. MaxConnections
// bounds them: a further one evicts the longest stalled one. While more than half of that are
// running, one address may have at most MaxConnections / defaultPerIPFraction.
func (s *Server) beginRequest(c *conn) error {
	most, all := int64(s.o.MaxConnections), s.requests.Add(1)
	own := int64(0)
	if c.address != nil {
		own = c.address.streams.Add(1)
	}
	switch {
	case 2*all > most && own > max(most/defaultPerIPFraction, 1):
		return ErrTooManyPerIP
	case all > most && !s.http2.EvictStalled():
		return ErrTooManyRequests
	}
	return nil
}

// endRequest undoes the counting of beginRequest.
func (s *Server) endRequest(c *conn) {
	s.requests.Add(-1)
	if c.address != nil {
		c.address.streams.Add(-1)
	}
}

// http2Ended logs the end of a connection whose client broke a rule.
func (s *Server) http2Ended(t http2server.Transport, cause error) {
	remote := t.RemoteAddr().String()
	if errors.Is(cause, http2server.ErrFlood) {
		s.limited.Warn("HTTP/2 connection ended", "remote", remote, "err", cause)
		return
	}
	s.log.Debug("HTTP/2 connection ended", "remote", remote, "reason", cause.Error())
}

// http2Conn is the connection that http2server reads and writes: the bytes within TLS.
type http2Conn struct {
	*tls.Conn
	marker
	counted *conn
	pacer   sendfile.Pacer // of the responses of one client: see limitRate
}

// marker marks a connection as idle or busy: a guard.Conn.
type marker interface {
	MarkIdle()
	MarkBusy() bool
	IdleFor() time.Duration
}

// Write implements net.Conn.
func (c *http2Conn) Write(p []byte) (int, error) { return c.counted.WriteRecords(c.Conn, 0, p) }

// Close closes the connection, and removes it from the counted ones.
func (c *http2Conn) Close() error { return c.counted.guarded.Close() }

// Unacknowledged implements http2server.Transport.
func (c *http2Conn) Unacknowledged() int64 { return c.counted.Unacknowledged() }

// Abandon implements http2server.Transport.
func (c *http2Conn) Abandon() error { return c.counted.Abandon() }
