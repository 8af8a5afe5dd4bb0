// Package http2server serves HTTP/2 (RFC 9113) on connections that have negotiated it. It has the
// features that a download server needs: requests with small bodies, which are discarded, and
// responses without trailers. It has no push and no priorities.
//
//	s := http2server.New(http2server.Options{Handler: serve, ReadTimeout: 20 * time.Second, ...})
//	s.Serve(transport) // until the connection ends
//
//	func serve(st *http2server.Stream) {
//		st.WriteHead(http2server.Head{Status: 200, Length: 5, Fields: fields}, false)
//		st.Write([]byte("hello"), true)
//	}
//
// One goroutine reads the frames of a connection, and one of a pool calls the handler of each
// request. Handlers append their frames to the output of the connection, within the windows of the
// client and a bound of memory. The goroutine of a handler that has returned sends the output, with
// the frames that other handlers have added meanwhile. So a small response costs one change of
// goroutine, and an idle connection holds one goroutine and no output.
//
// The server ends the connection of a client that floods it with frames or resets, that does not
// finish a frame or a header block, or that takes its responses too slowly. A request whose body is
// late is rejected. A stream whose response the client does not accept is reset after a time, or by
// EvictStalled, when another request needs its place. No input of a client makes the server hold
// more than a bounded amount of memory.
package http2server

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// Limits of one connection.
const (
	maxStreams  = 128      // requests at a time
	maxHandlers = 256      // running handlers, those of streams that were reset included
	maxFrame    = 16 << 10 // bytes of the payload of a frame, in both directions

	// MaxBody bounds a request body in bytes.
	MaxBody = 64 << 10
)

// Errors of streams and connections. Writes to a stream return them.
var (
	ErrReset = errors.New("HTTP/2 stream was reset")
	ErrSlow  = errors.New("client reads too slowly")
	ErrFlood = errors.New("too many HTTP/2 control frames, resets or streams")
	errLate  = errors.New("a frame or header block did not arrive in time")
	errDone  = errors.New("HTTP/2 connection has ended behind GOAWAY")
)

// Transport is a connection that has negotiated HTTP/2.
type Transport interface {
	net.Conn

	// MarkIdle is called when the last response was sent, and MarkBusy before the next stream
	// begins. MarkBusy returns false if the connection is being closed.
	MarkIdle()
	MarkBusy() bool

	// CloseWrite ends the sending direction.
	CloseWrite() error

	// IdleFor returns the time since MarkIdle; 0 after MarkBusy.
	IdleFor() time.Duration

	// Unacknowledged returns the number of bytes that the client's host has not acknowledged.
	Unacknowledged() int64

	// Abandon closes the connection without waiting for the client.
	Abandon() error
}

// Options are the settings of a Server. Several goroutines may call the functions at once.
type Options struct {
	Handler     func(*Stream) // responds to one request
	MaxHead     int           // bytes of a head, as SETTINGS_MAX_HEADER_LIST_SIZE counts them
	MaxFields   int           // header fields of a request
	ReadTimeout time.Duration // of the preface, a frame, a header block, and a body
	IdleTimeout time.Duration // for which a connection may be without a request
	MinSendRate int64         // bytes per second that a client must take, over Window; 0 = any
	Window      time.Duration
	// Crowded: others may soon need the places of stalled ones, see EvictStalled.
	Crowded func() bool
	OnEnd   func(t Transport, cause error) // called when a connection ends by ErrFlood, ErrSlow or a late frame
}

// Server serves any number of connections.
type Server struct {
	o       Options
	workers workers
	watcher sync.WaitGroup
	ended   chan struct{} // closed when Shutdown returns

	mu      sync.Mutex // guards the fields below
	conns   map[Transport]*conn
	empty   sync.Cond // conns is empty
	stalled []stalled // responses, the longest stalled last
	started bool      // the watcher runs
	stopped bool      // Shutdown was called
}

// New returns a Server without connections.
func New(o Options) *Server {
	s := &Server{o: o, conns: map[Transport]*conn{}, ended: make(chan struct{})}
	s.empty.L = &s.mu
	return s
}

// Serve serves a connection, and closes it. It returns when all handlers of the connection have
// returned.
func (s *Server) Serve(t Transport) {
	c := newConn(s, t)
	if !s.addConn(c) {
		_ = t.Close() // no request was read
		return
	}
	defer s.remove(c)
	c.serve()
}

// addConn adds a connection. It returns false after Shutdown. The first connection starts the
// watcher.
func (s *Server) addConn(c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return false
	}
	if !s.started {
		s.started = true
		s.watcher.Go(s.watch)
	}
	s.conns[c.t] = c
	return true
}

func (s *Server) remove(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c.t)
	if len(s.conns) == 0 {
		s.empty.Broadcast()
	}
}

// connOf returns the connection on a transport; nil = it has ended.
func (s *Server) connOf(t Transport) *conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conns[t]
}

// snapshot returns the current connections.
func (s *Server) snapshot() []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]*conn, 0, len(s.conns))
	for _, c := range s.conns {
		list = append(list, c)
	}
	return list
}

// Shutdown sends GOAWAY on all connections, and returns when their requests have ended and they are
// closed, or when ctx has ended.
func (s *Server) Shutdown(ctx context.Context) {
	s.mu.Lock()
	s.stopped = true
	s.mu.Unlock()
	for _, c := range s.snapshot() {
		c.goAway()
	}
	stop := context.AfterFunc(ctx, func() {
		s.mu.Lock() // else the loop below may miss the call between its condition and Wait
		defer s.mu.Unlock()
		s.empty.Broadcast()
	})
	defer stop()
	s.mu.Lock()
	for len(s.conns) > 0 && ctx.Err() == nil {
		s.empty.Wait()
	}
	s.mu.Unlock()
	close(s.ended)
	s.watcher.Wait()
	s.workers.stop()
}
