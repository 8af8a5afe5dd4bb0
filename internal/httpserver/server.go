// Package httpserver is the front door: it accepts connections, limits and paces them, reads
// requests by HTTP/1 and HTTP/2, with or without TLS and the header of the PROXY protocol, and
// passes them to a Handler. It does not know what the requests ask for.
//
//	s := httpserver.New(httpserver.Options{ReadTimeout: 10 * time.Second}, handler)
//	err := s.Serve(listener, nil)
package httpserver

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"fastdfs-gateway/internal/httpserver/clientaddr"
	"fastdfs-gateway/internal/httpserver/eventloop"
	"fastdfs-gateway/internal/httpserver/guard"
	"fastdfs-gateway/internal/httpserver/http2server"
	"fastdfs-gateway/internal/httpserver/sendfile"
	"fastdfs-gateway/internal/process/logfile"
	"fastdfs-gateway/internal/process/panics"

	"github.com/valyala/fasthttp"
	"golang.org/x/sys/unix"
)

// Options configure connections. SetHandler replaces the Handler, but not these options.
type Options struct {
	ReadTimeout time.Duration // for a whole request, from its first byte; default 10 s
	IdleTimeout time.Duration // between requests; default 75 s
	MinSendRate int64         // bytes per second that a client must take; 0 = any
	// MaxConnections bounds the connections; default 100,000. A further one evicts the longest idle
	// one, or else the one that is stalled for the longest time, or gets 503 if all are busy.
	MaxConnections int
	// MaxConnectionsPerIP bounds the connections of one address (one /64 for IPv6) in the same way,
	// with 429. 0 means an eighth of MaxConnections, which applies while at least half of them are
	// in use, and never to loopback addresses, since a proxy on this host has one. -1 = no limit.
	MaxConnectionsPerIP int

	// SendWindow is the time over which MinSendRate is measured; default 30 s.
	SendWindow time.Duration

	Log *slog.Logger // default: slog.Default()
}

// ServerName is the value of the header Server.
const ServerName = "fastdfs-gateway"

// Handler responds to requests by one configuration. It serves any number of requests at once.
type Handler interface {
	// Serve responds to a request. A panic becomes a 500.
	Serve(x *Exchange)
	// Reject responds to a request in place of Serve. The reason is ErrTooManyRequests or
	// ErrTooManyPerIP.
	Reject(x *Exchange, reason error)
	// Rejected is called after the response to a request that broke a rule of HTTP.
	Rejected(client netip.Addr, e *guard.Error)
	// Page returns the body and the content type of a response with an error status; nil = a line
	// of text.
	Page(status int) (body []byte, contentType string)
	// Limits returns the limits that depend on the client.
	Limits() Limits
}

// Limits name the clients with limits of their own. The zero value names none.
type Limits struct {
	Proxies   *clientaddr.Proxies  // trusted proxies: no limit of connections per address
	Unlimited *clientaddr.Networks // the same for all clients of these networks
}

// Reasons of Handler.Reject.
var (
	ErrTooManyRequests = errors.New("too many requests")                      // by HTTP/2
	ErrTooManyPerIP    = errors.New("too many connections from this address") // or HTTP/2 requests
)

// Server accepts connections and passes their requests to the current Handler.
type Server struct {
	o                       Options
	log                     *slog.Logger
	limited                 *slog.Logger // for lines that clients can cause
	current                 atomic.Pointer[Handler]
	loops                   *eventloop.Group
	exchanges, tlsExchanges sync.Pool // of *Exchange, on plain connections and on TLS
	http2                   *http2server.Server
	streams                 sync.Pool    // of *stream, on HTTP/2
	requests                atomic.Int64 // running HTTP/2 requests
	copies                  atomic.Int64 // running HTTP/2 writes from large buffers
	guard                   *guard.Guard
	open                    atomic.Int64  // connections that count for the limit: len(all.conns)
	accepted                atomic.Uint64 // connections since the start, rejected ones included
	sockets                 atomic.Int64  // admitted connections whose sockets are not closed yet
	rejecter                *rejecter

	waits    *waits
	counters counters
	crowd    crowd

	stopping  chan struct{} // closed by Shutdown
	accepting atomic.Int64  // calls of Serve that have not returned
	draining  atomic.Bool   // each connection ends after its next response

	mu    sync.Mutex              // guards the fields below
	all   *connSet                // all connections
	perIP map[netip.Addr]*connSet // connections by address, for addresses with a limit
}

// New returns a server that uses h until SetHandler replaces it.
func New(o Options, h Handler) *Server {
	o.MaxConnections = cmp.Or(o.MaxConnections, 100_000)
	o.ReadTimeout = cmp.Or(o.ReadTimeout, 10*time.Second)
	o.IdleTimeout = cmp.Or(o.IdleTimeout, 75*time.Second)
	o.SendWindow = cmp.Or(o.SendWindow, 30*time.Second)
	o.Log = cmp.Or(o.Log, slog.Default())
	s := &Server{o: o, log: o.Log, waits: newWaits(o.MaxConnections), all: newConnSet(),
		perIP: map[netip.Addr]*connSet{}, stopping: make(chan struct{}),
		rejecter: &rejecter{max: int64(min(maxRejections, o.MaxConnections/4+1))}, limited: logfile.Limit(o.Log)}
	s.SetHandler(h)
	s.guard = guard.New(guard.Options{
		ReadTimeout: o.ReadTimeout, IdleTimeout: o.IdleTimeout,
		OnReject: s.rejected,
		Page:     func(status int) ([]byte, string) { return s.handler().Page(status) },
	})
	s.loops = eventloop.New(s.serveConn)
	s.exchanges.New = func() any { return newExchange(writeBuffer) }
	s.tlsExchanges.New = func() any { return newExchange(tlsWriteBuffer) }
	s.http2 = s.newHTTP2()
	return s
}

// rejected passes a rejection to the handler.
func (s *Server) rejected(conn net.Conn, e *guard.Error) {
	if e.OtherProtocol {
		s.limited.Warn("rejected a client: "+e.Reason, "address", conn.LocalAddr(), "client", conn.RemoteAddr())
	}
	s.handler().Rejected(AddressOf(conn.RemoteAddr()), e)
}

// serve passes a request to the handler.
func (s *Server) serve(x *Exchange) {
	defer func() {
		if p := recover(); p != nil {
			panics.Report(p, "serving")
			if body := x.takeBody(); body != nil {
				body.Close()
			}
			x.Ctx.Response.Reset()
			x.Ctx.Error("internal error\n", fasthttp.StatusInternalServerError)
			x.Ctx.SetConnectionClose()
		}
	}()
	if x.tooManyPerIP() {
		s.handler().Reject(x, ErrTooManyPerIP)
	} else {
		s.handler().Serve(x)
	}
	if s.draining.Load() {
		x.Ctx.SetConnectionClose()
	}
}

// SetHandler replaces the handler for new requests. Running requests keep theirs.
func (s *Server) SetHandler(h Handler) { s.current.Store(&h) }

// handler returns the handler in use.
func (s *Server) handler() Handler { return *s.current.Load() }

// Serve accepts connections from ln until it is closed, or until Shutdown, which closes it, and
// then returns nil. Several calls with different listeners may run at once. A nil config means
// plain HTTP.
func (s *Server) Serve(ln net.Listener, config *tls.Config) error {
	s.accepting.Add(1)
	defer s.accepting.Add(-1)
	s.deferAccept(ln)
	accepting, err := s.loops.Listen(ln, s.log, func(c *eventloop.Conn) { s.accept(c, config) })
	switch {
	case errors.Is(err, net.ErrClosed): // Shutdown was first
	case err != nil:
		return fmt.Errorf("cannot serve on %s: %w", ln.Addr(), err)
	default:
		if closing, ok := ln.(interface{ OnClose(func()) }); ok {
			closing.OnClose(accepting.Close)
		}
		<-accepting.Done()
	}
	if err := ln.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("cannot close %s: %w", ln.Addr(), err)
	}
	return nil
}

// fewConnections is the value of MaxConnections below which deferAccept defers no connection.
const fewConnections = 1000

// deferAccept makes the kernel report a connection when its first bytes have arrived, or a second
// after it was opened (TCP_DEFER_ACCEPT, tcp(7)): its request can be served at once, without an
// event. With a limit per address in MaxConnectionsPerIP, or a low MaxConnections, connections
// without bytes have to count at once, so nothing is deferred.
func (s *Server) deferAccept(ln net.Listener) {
	seconds := 0 // a socket of the previous process may have another value
	if s.o.MaxConnectionsPerIP <= 0 && s.o.MaxConnections >= fewConnections {
		seconds = 1
	}
	if socket, ok := ln.(syscall.Conn); ok {
		if raw, err := socket.SyscallConn(); err == nil {
			_ = raw.Control(func(fd uintptr) { // fails for a unix socket
				_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_DEFER_ACCEPT, seconds)
			})
		}
	}
}

// Shutdown stops accepting, waits for running responses, and closes connections without a request.
// If ctx ends first, Shutdown returns an error that wraps the one of ctx, and the remaining
// connections end with the process. Shutdown is called once.
func (s *Server) Shutdown(ctx context.Context) error {
	close(s.stopping)
	s.draining.Store(true)
	s.loops.CloseListeners()
	ended := make(chan struct{})
	var closer sync.WaitGroup
	closer.Go(func() { s.closeIdle(ended) })
	closer.Go(func() { s.http2.Shutdown(ctx) })
	err := s.allClosed(ctx, time.Millisecond)
	close(ended)
	closer.Wait()
	s.rejecter.wg.Wait()
	s.crowd.look.Wait()
	if err != nil {
		return fmt.Errorf("cannot end %d connections in time: %w", s.open.Load(), err)
	}
	return s.loops.Close()
}

// Drain ends every connection after its next response, or after IdleTimeout, and returns when none
// is left or ctx has ended. The caller closes the listeners before. Clients that reuse connections
// see no failed request.
func (s *Server) Drain(ctx context.Context) error {
	s.draining.Store(true)
	return s.allClosed(ctx, 20*time.Millisecond)
}

// Connections returns the number of open connections.
func (s *Server) Connections() int64 { return s.open.Load() }

// allClosed polls until every socket is closed and no Serve runs.
func (s *Server) allClosed(ctx context.Context, every time.Duration) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for s.accepting.Load() > 0 || s.sockets.Load() > 0 {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return nil
}

// closeIdle closes connections without a running request, until ended is closed.
func (s *Server) closeIdle(ended chan struct{}) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		var idle []*conn
		s.mu.Lock()
		for c := range s.all.conns {
			if c.http2.Load() != nil { // http2server closes it after its GOAWAY
				continue
			}
			if since, ok := c.guarded.IdleSince(); ok && !c.HasInput() && c.guarded.ClaimIdle(since) {
				idle = append(idle, c)
			}
		}
		s.mu.Unlock()
		for _, c := range idle {
			if c.tls != nil && c.Unacknowledged() == 0 {
				_ = c.guarded.Close() // sends close_notify without a wait: the socket buffer is empty
			}
			_ = c.Close() // an error means that the client has closed it
		}
		select {
		case <-ended:
			return
		case <-tick.C:
		}
	}
}

// parseError responds to a request that the guard passed and the parser of fasthttp rejects, which
// is a bug of the guard.
func (s *Server) parseError(ctx *fasthttp.RequestCtx, err error) {
	s.log.Warn("request passed the guard but cannot be parsed", "remote", ctx.RemoteAddr().String(), "err", err)
	e := &guard.Error{Status: fasthttp.StatusBadRequest, Reason: "bad request"}
	ctx.Error(e.Reason+"\n", e.Status)
	s.handler().Rejected(AddressOf(ctx.RemoteAddr()), e)
}

// accept begins to serve a new connection: a goroutine serves one with TLS. The loop serves a plain
// one, which is parked while it waits for a request.
func (s *Server) accept(c *eventloop.Conn, config *tls.Config) {
	own := s.admit(c, AddressOf(c.RemoteAddr()), config)
	switch {
	case own == nil:
	case own.tls == nil:
		s.serveConn(c)
	default:
		c.Leave()
		go s.serveTLS(own)
	}
}

// admit wraps and counts a new connection, or rejects it and returns nil. peer is the address of
// its socket.
func (s *Server) admit(socket *eventloop.Conn, peer netip.Addr, config *tls.Config) *conn {
	out, err := sendfile.NewConn(socket, sendfile.Pace{MinRate: s.o.MinSendRate, Window: s.o.SendWindow})
	if err != nil {
		s.log.Error("cannot serve connection", "err", err)
		_ = socket.Close()
		return nil
	}
	c := &conn{Conn: out, socket: socket, s: s, number: s.accepted.Add(1)}
	socket.Owner = c
	c.setPeer(peer)
	if config != nil {
		c.tls = tls.Server(c, config)
		c.guarded = s.guard.Wrap(c.tls)
	} else {
		c.guarded = s.guard.Wrap(c)
		c.guarded.Park()
	}
	s.sockets.Add(1)
	replaced, reason := s.addConn(c)
	for reason == overloaded && s.evictStalled() {
		replaced, reason = s.addConn(c)
	}
	if reason != nil {
		s.sockets.Add(-1)
		s.counters.rejected[reason.reason].Add(1)
		if reason == tooManyPerIP {
			s.limited.Warn(
				"an address has too many connections; name a proxy or load balancer in trusted_proxies",
				"address", c.block.String())
		}
		s.rejecter.reject(socket, reason, config != nil)
		return nil
	}
	if replaced != nil {
		_ = replaced.Close() // an error means that the client has closed it
	}
	return c
}

// addConn counts a connection, or returns the limit that it exceeds. replaced is the evicted
// connection, which the caller closes.
func (s *Server) addConn(c *conn) (replaced *conn, broken *limit) {
	s.mu.Lock()
	defer s.mu.Unlock()
	full, of, bound := len(s.all.conns) >= s.o.MaxConnections, s.all, overloaded
	if own := s.perIP[c.block]; own != nil && len(own.conns) >= s.perIPLimit() {
		full, of, bound = true, own, tooManyPerIP
	}
	if full {
		if replaced = of.evictIdle(); replaced == nil {
			return nil, bound
		}
		s.counters.evicted[bound.reason].Add(1)
		s.removeLocked(replaced)
	}
	s.all.addConn(c)
	s.addPerIP(c)
	s.open.Store(int64(len(s.all.conns)))
	if s.isFull() {
		s.crowd.beginLooks(s)
	}
	return replaced, nil
}

// addPerIP counts a connection for its address. s.mu is held.
func (s *Server) addPerIP(c *conn) {
	if s.countsPerIP(c.block) {
		if s.perIP[c.block] == nil {
			s.perIP[c.block] = newConnSet()
		}
		c.address = s.perIP[c.block]
		c.address.addConn(c)
	}
}

// removeConn removes a connection from the counted ones.
func (s *Server) removeConn(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removeLocked(c)
}

// removeLocked is removeConn with s.mu held. A second call does nothing.
func (s *Server) removeLocked(c *conn) {
	if _, there := s.all.conns[c]; !there {
		return
	}
	s.all.remove(c)
	if own := s.perIP[c.block]; own != nil {
		if own.remove(c); len(own.conns) == 0 {
			delete(s.perIP, c.block)
		}
	}
	s.open.Store(int64(len(s.all.conns)))
}

// conn is a counted connection. Close removes it from the counted ones.
type conn struct {
	*sendfile.Conn
	s        *Server
	block    netip.Addr // clientaddr.Block of its client; invalid for a unix socket and a trusted proxy
	address  *connSet   // the connections of block; nil = without a limit
	socket   *eventloop.Conn
	proxy    *proxyHeader // in front of the first request; nil = none
	guarded  *guard.Conn
	tls      *tls.Conn                 // wraps this conn, and is wrapped by guarded; nil = a plain connection
	number   uint64                    // value of Server.accepted for this connection
	requests atomic.Uint64             // since the connection began
	http2    atomic.Pointer[http2Conn] // http2server reads the connection; nil = it does not
	closed   atomic.Bool
	stall    stall
}

// Close removes the connection from the counted ones and then closes it. In this order a client
// that reconnects at once is never counted twice.
func (c *conn) Close() error {
	if c.closed.CompareAndSwap(false, true) {
		c.s.removeConn(c)
		defer c.s.sockets.Add(-1)
	}
	return c.Conn.Close()
}

// AddressOf returns the IP address of an end of a connection; invalid for a unix socket.
func AddressOf(a net.Addr) netip.Addr {
	switch a := a.(type) {
	case *net.TCPAddr:
		return a.AddrPort().Addr().Unmap()
	case *proxiedAddr:
		return a.Addr()
	}
	return netip.Addr{}
}
