package gateway

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"fastdfs-gateway/internal/httpserver/frames"
	"fastdfs-gateway/internal/httpserver/guard"
)

// Limits of one HTTP/2 connection.
const (
	maxStreams    = 128      // requests at a time
	maxReadFrame  = 16 << 10 // bytes of a frame of the client, the least that RFC 9113 allows
	maxBodyBuffer = 64 << 10 // bytes of request bodies in memory
)

// http2Server serves the connections whose clients chose h2 during the TLS handshake, with the
// HTTP/2 server of net/http. Everything else about a connection is the same for both protocols: it
// is counted, limited and paced by its conn.
type http2Server struct {
	s       *Server
	http    *http.Server
	accept  chan net.Conn // from serve to http.Serve
	running sync.WaitGroup
	done    chan struct{} // closed at the begin of shutdown
	ended   chan struct{} // closed at its end
	streams atomic.Int64  // requests at a time, of all connections
	copies  atomic.Int64  // copies with a large buffer at a time
	pool    sync.Pool     // of *stream

	mu      sync.Mutex // guards the fields below
	conns   map[*http2Conn]struct{}
	started bool // the goroutines of running have been started
	stopped bool // shutdown has begun
}

func newHTTP2Server(s *Server) *http2Server {
	h := &http2Server{s: s, accept: make(chan net.Conn), done: make(chan struct{}), ended: make(chan struct{}),
		conns: map[*http2Conn]struct{}{}}
	h.pool.New = func() any { return newStream(h) }
	// The TLS handshake is over, and the server sees the bytes within: "unencrypted" for net/http.
	// So the connection may be one that follows the frames.
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	h.http = &http.Server{
		Handler:           http.HandlerFunc(h.serveStream),
		Protocols:         &protocols,
		ReadHeaderTimeout: s.o.ReadTimeout, // of the preface of a connection
		IdleTimeout:       s.o.IdleTimeout,
		MaxHeaderBytes:    guard.HTTP2HeadBytes,
		ConnState:         func(c net.Conn, state http.ConnState) { c.(*http2Conn).setState(state) },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, http2ConnKey{}, c)
		},
		ErrorLog: debugLog(s.log, "net/http: "),
		HTTP2: &http.HTTP2Config{MaxConcurrentStreams: maxStreams, MaxReadFrameSize: maxReadFrame,
			MaxReceiveBufferPerConnection: maxBodyBuffer, MaxReceiveBufferPerStream: maxBodyBuffer},
	}
	return h
}

// http2ConnKey is the key of the *http2Conn in the context of a request.
type http2ConnKey struct{}

// serve serves one connection until it is closed. It is called by fasthttp after the handshake.
func (h *http2Server) serve(outer net.Conn) error {
	c := &http2Conn{Conn: outer, h: h, outer: outer.(*tlsConn), frames: frames.New()}
	c.output = newHTTP2Output(c)
	if !h.add(c) {
		return nil
	}
	defer h.remove(c)
	c.outer.counted.http2.Store(true)
	select {
	case h.accept <- c:
		c.output.run()
	case <-h.done:
	}
	return nil
}

// add adds a connection; false after shutdown. The first one starts the server.
func (h *http2Server) add(c *http2Conn) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stopped {
		return false
	}
	if !h.started {
		h.started = true
		h.running.Go(func() { _ = h.http.Serve(h) }) // the error is http.ErrServerClosed
		h.running.Go(h.watch)
	}
	h.conns[c] = struct{}{}
	return true
}

func (h *http2Server) remove(c *http2Conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.conns, c)
}

// Accept implements net.Listener for net/http.
func (h *http2Server) Accept() (net.Conn, error) {
	select {
	case c := <-h.accept:
		return c, nil
	case <-h.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener. The owner of h ends Accept by shutdown.
func (h *http2Server) Close() error { return nil }

// Addr implements net.Listener.
func (h *http2Server) Addr() net.Addr { return &net.TCPAddr{} }

// shutdown sends GOAWAY on all connections, accepts none, and returns when all are closed or ctx
// has ended.
func (h *http2Server) shutdown(ctx context.Context) {
	h.mu.Lock()
	h.stopped = true
	h.mu.Unlock()
	close(h.done)
	_ = h.http.Shutdown(ctx) // the caller waits for the connections
	close(h.ended)
	h.running.Wait()
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

// http2Conn is the connection that net/http reads and writes: the bytes within TLS.
type http2Conn struct {
	net.Conn // outer, for the addresses
	h        *http2Server
	outer    *tlsConn
	frames   *frames.Tracker
	slow     atomic.Bool // ended since the client took too few bytes

	output *http2Output

	watched watched
}

// Read reads bytes within TLS.
func (c *http2Conn) Read(p []byte) (int, error) {
	n, err := c.outer.inner.Read(p)
	if n == 0 {
		return 0, err
	}
	if flood := c.frames.Received(p[:n]); flood != nil {
		c.h.s.limited.Warn("HTTP/2 connection ended", "remote", c.RemoteAddr().String(), "err", flood)
		return 0, flood
	}
	return n, err
}

// Write passes bytes within TLS to the output.
func (c *http2Conn) Write(p []byte) (int, error) { return c.output.write(p) }

// Close closes the connection and ends http2Server.serve.
func (c *http2Conn) Close() error {
	defer c.output.end(net.ErrClosed)
	return c.outer.Close()
}

// setState follows the connection: with a stream it is active, else idle.
func (c *http2Conn) setState(state http.ConnState) {
	switch state {
	case http.StateActive:
		if !c.outer.MarkBusy() {
			_ = c.Close() // another connection has taken its place
		}
	case http.StateIdle:
		c.outer.MarkIdle()
	}
}

// end ends the connection without a GOAWAY: the client does not read, or does not finish a frame.
func (c *http2Conn) end(why string) {
	c.h.s.log.LogAttrs(context.Background(), slog.LevelDebug, "HTTP/2 connection ended",
		slog.String("remote", c.RemoteAddr().String()), slog.String("reason", why))
	_ = c.outer.counted.Abandon() // an error means that the client has closed it
}
