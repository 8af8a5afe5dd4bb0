package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"fastdfs-gateway/internal/httpguard"
	"fastdfs-gateway/internal/sendfile"

	"github.com/valyala/fasthttp"
)

// ServerOptions are what belongs to connections, not to requests: they stay while a Handler may be exchanged.
type ServerOptions struct {
	ReadTimeout         time.Duration // for a whole request, from its first byte; default 10 s
	IdleTimeout         time.Duration // between requests; default 75 s
	MinSendRate         int64         // bytes per second that a client must take; 0 = any
	MaxConnections      int           // further ones get 503; default 100,000
	MaxConnectionsPerIP int           // further ones get 429; 0 = no limit
	TLS                 *tls.Config   // nil = plain HTTP
	Log                 *slog.Logger  // default: slog.Default()
}

// sendWindow is the time over which MinSendRate is measured.
const sendWindow = 30 * time.Second

// Server accepts connections and hands their requests to the current Handler.
type Server struct {
	o       ServerOptions
	log     *slog.Logger
	handler atomic.Pointer[Handler]
	fast    *fasthttp.Server
	guard   *httpguard.Guard
	open    atomic.Int64 // connections that count for the limit
	sockets atomic.Int64 // the same, until their sockets are closed
	refuser *refuser

	stopping chan struct{} // closed by Shutdown

	mu    sync.Mutex                   // guards what follows
	perIP map[netip.Addr]int           // open connections; only with MaxConnectionsPerIP
	conns map[*httpguard.Conn]struct{} // all that are open, for Shutdown
}

// NewServer returns a server that uses h until SetHandler names another.
func NewServer(o ServerOptions, h *Handler) *Server {
	if o.MaxConnections == 0 {
		o.MaxConnections = 100_000
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	s := &Server{o: o, log: o.Log, perIP: map[netip.Addr]int{}, conns: map[*httpguard.Conn]struct{}{}, stopping: make(chan struct{}), refuser: newRefuser(o.MaxConnections)}
	s.handler.Store(h)
	s.guard = httpguard.New(httpguard.Options{ReadTimeout: o.ReadTimeout, IdleTimeout: o.IdleTimeout, OnRefuse: s.refused})
	s.fast = &fasthttp.Server{
		Name:                         "fastdfs-gateway",
		Handler:                      func(ctx *fasthttp.RequestCtx) { s.handler.Load().Serve(ctx) },
		ErrorHandler:                 s.disagreed,
		ReadBufferSize:               s.guard.ReadBufferSize(),
		ReduceMemoryUsage:            true, // an idle connection holds no buffers
		Concurrency:                  o.MaxConnections + 1024,
		NoDefaultContentType:         true,
		DisablePreParseMultipartForm: true,
		CloseOnShutdown:              true,
		SecureErrorLogMessage:        true,
		Logger:                       debugLogger{o.Log},
		MaxRequestBodySize:           1, // the guard lets no body through
	}
	return s
}

// SetHandler exchanges the handler for all requests to come; running ones end with the old one.
func (s *Server) SetHandler(h *Handler) { s.handler.Store(h) }

// Handler returns the handler in use.
func (s *Server) Handler() *Handler { return s.handler.Load() }

// Serve accepts connections from ln until Shutdown, and returns nil then. It may run for several listeners at once.
func (s *Server) Serve(ln net.Listener) error {
	if err := s.fast.Serve(&listener{Listener: ln, s: s}); err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("cannot serve on %s: %w", ln.Addr(), err)
	}
	return nil
}

// Shutdown stops accepting, lets running answers end, and closes connections without a request. When ctx ends first, its error
// is returned and connections are left to the end of the process. It is called once.
func (s *Server) Shutdown(ctx context.Context) error {
	close(s.stopping)
	ended := make(chan struct{})
	var closer sync.WaitGroup
	closer.Go(func() { s.closeIdle(ended) })
	err := s.fast.ShutdownWithContext(ctx)
	if err == nil {
		err = s.allClosed(ctx)
	}
	close(ended)
	closer.Wait()
	s.refuser.wait()
	if err != nil {
		return fmt.Errorf("cannot end %d connections in time: %w", s.open.Load(), err)
	}
	return nil
}

// allClosed waits until every socket is closed: for fasthttp a connection has ended just before that.
func (s *Server) allClosed(ctx context.Context) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for s.sockets.Load() > 0 {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return nil
}

// closeIdle closes connections on which no request is being answered, until all are ended. fasthttp does so too, but gives new
// connections 5 s to send something.
func (s *Server) closeIdle(ended chan struct{}) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		var idle []*httpguard.Conn
		s.mu.Lock()
		for c := range s.conns {
			if c.Idle() {
				idle = append(idle, c)
			}
		}
		s.mu.Unlock()
		for _, c := range idle {
			_ = c.Close() // the client may have done so
		}
		select {
		case <-ended:
			return
		case <-tick.C:
		}
	}
}

// refused counts and logs what the guard has answered in place of a handler.
func (s *Server) refused(conn net.Conn, e *httpguard.Error) {
	h := s.handler.Load()
	h.o.Metrics.malformed(e.Status)
	if h.o.Access != nil {
		h.o.Access.write(entry{at: time.Now(), remote: ipOf(conn.RemoteAddr()), line: e.Line, status: e.Status, source: sourceNone, err: e})
	}
}

// disagreed answers what the guard has let through and fasthttp's own parser refuses. That is not meant to happen.
func (s *Server) disagreed(ctx *fasthttp.RequestCtx, err error) {
	s.log.Warn("request passed the guard but cannot be parsed", "remote", ctx.RemoteAddr().String(), "err", err)
	s.handler.Load().o.Metrics.malformed(fasthttp.StatusBadRequest)
	ctx.Error("bad request\n", fasthttp.StatusBadRequest)
}

// debugLogger takes what fasthttp wants to say: clients that went away in the middle, above all.
type debugLogger struct{ log *slog.Logger }

func (l debugLogger) Printf(format string, args ...any) {
	if l.log.Enabled(context.Background(), slog.LevelDebug) {
		l.log.Debug("fasthttp: " + fmt.Sprintf(format, args...))
	}
}

// listener accepts connections for fasthttp: counted, limited, guarded.
type listener struct {
	net.Listener
	s *Server
}

// Accept returns the next connection that is within the limits. Errors are passed on at shutdown only: a process without free
// descriptors, or a client that is gone already, must not end the server.
func (l *listener) Accept() (net.Conn, error) {
	for pause := acceptPause; ; {
		inner, err := l.Listener.Accept()
		switch {
		case err == nil:
			pause = acceptPause
			select {
			case <-l.s.stopping: // it has begun to serve too late
				_ = inner.Close()
				return nil, net.ErrClosed
			default:
			}
			if c := l.s.admit(inner); c != nil {
				return c, nil
			}
		case errors.Is(err, net.ErrClosed):
			return nil, err
		default:
			l.s.log.Warn("cannot accept connections", "address", l.Addr().String(), "err", err, "next_try", pause.String())
			select {
			case <-l.s.stopping:
			case <-time.After(pause):
			}
			pause = min(2*pause, maxAcceptPause)
		}
	}
}

const (
	acceptPause    = 5 * time.Millisecond
	maxAcceptPause = time.Second
)

// admit wraps a new connection, or refuses it and returns nil.
func (s *Server) admit(inner net.Conn) net.Conn {
	out, err := sendfile.NewConn(inner, sendfile.Pace{MinRate: s.o.MinSendRate, Window: sendWindow})
	if err != nil {
		s.log.Error("cannot serve connection", "err", err)
		_ = inner.Close()
		return nil
	}
	ip := ipOf(inner.RemoteAddr())
	if reason := s.enter(ip); reason != nil {
		s.handler.Load().o.Metrics.refusedConns.WithLabelValues(reason.label).Inc()
		s.refuser.refuse(inner, reason, s.o.TLS != nil)
		return nil
	}
	s.sockets.Add(1)
	counted := &conn{Conn: out, s: s, ip: ip}
	var c net.Conn = counted
	if s.o.TLS != nil {
		c = tls.Server(c, s.o.TLS)
	}
	counted.guarded = s.guard.Wrap(c)
	s.mu.Lock()
	s.conns[counted.guarded] = struct{}{}
	s.mu.Unlock()
	return counted.guarded
}

// enter counts a connection in, or says which limit it breaks.
func (s *Server) enter(ip netip.Addr) *limit {
	if s.open.Add(1) > int64(s.o.MaxConnections) {
		s.open.Add(-1)
		return overloaded
	}
	if s.o.MaxConnectionsPerIP > 0 && ip.IsValid() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.perIP[ip] >= s.o.MaxConnectionsPerIP {
			s.open.Add(-1)
			return tooManyPerIP
		}
		s.perIP[ip]++
	}
	s.handler.Load().o.Metrics.connections.Inc()
	return nil
}

// leave counts a connection out.
func (s *Server) leave(c *conn) {
	s.open.Add(-1)
	s.handler.Load().o.Metrics.connections.Dec()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c.guarded)
	if s.o.MaxConnectionsPerIP == 0 || !c.ip.IsValid() {
		return
	}
	if s.perIP[c.ip]--; s.perIP[c.ip] == 0 {
		delete(s.perIP, c.ip)
	}
}

// conn counts itself out when it is closed.
type conn struct {
	*sendfile.Conn
	s       *Server
	ip      netip.Addr
	guarded *httpguard.Conn // the outermost wrapper
	closed  atomic.Bool
}

// NetConn returns the sending side, for sendfile.Of.
func (c *conn) NetConn() net.Conn { return c.Conn }

// Close closes the connection and counts it out, once: before its client can see that it is closed, and come again.
func (c *conn) Close() error {
	if c.closed.CompareAndSwap(false, true) {
		c.s.leave(c)
		defer c.s.sockets.Add(-1)
	}
	return c.Conn.Close()
}

// ipOf returns the address of a TCP peer; invalid for a unix socket.
func ipOf(a net.Addr) netip.Addr {
	if tcp, ok := a.(*net.TCPAddr); ok {
		return tcp.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}
