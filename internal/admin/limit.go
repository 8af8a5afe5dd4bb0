package admin

import (
	"context"
	"net"
	"net/http"
	"slices"
	"sync"
)

// MaxConnections bounds the connections to the listener, since each takes a descriptor.
const MaxConnections = 32

// maxBusy bounds the running requests, so that /healthz and /readyz always have a connection.
const maxBusy = MaxConnections - 8

// limit bounds the connections of a server. A new connection evicts the longest idle one. A
// connection is busy until the handler responds, except for /healthz and /readyz, which respond at
// once: a client that sends half a request, or reads no response, is idle.
type limit struct {
	mu   sync.Mutex // guards the fields below
	busy map[net.Conn]bool
	idle []net.Conn // the longest idle first
}

// connKey is the key of the connection in the context of a request.
type connKey struct{}

// withConn implements http.Server.ConnContext.
func withConn(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, conn)
}

// handler returns a handler that runs next, with the connection marked as busy.
func (l *limit) handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		conn := req.Context().Value(connKey{}).(net.Conn)
		if !isProbe(req) {
			if !l.makeBusy(conn) {
				tooMany(w)
				return
			}
			defer l.makeIdle(conn)
			if req.URL.Path != "/prefetch" { // which responds while it runs
				w = &response{w, sync.OnceFunc(func() { l.makeIdle(conn) })}
			}
		}
		next.ServeHTTP(w, req)
	})
}

// response calls begins when the handler begins to respond.
type response struct {
	http.ResponseWriter
	begins func()
}

// Write implements io.Writer.
func (r *response) Write(p []byte) (int, error) {
	r.begins()
	return r.ResponseWriter.Write(p)
}

// Unwrap is for http.ResponseController.
func (r *response) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// isProbe reports whether a request is one of a monitor.
func isProbe(req *http.Request) bool { return req.URL.Path == "/healthz" || req.URL.Path == "/readyz" }

// changed implements http.Server.ConnState.
func (l *limit) changed(conn net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		if surplus := l.admit(conn); surplus != nil {
			_ = surplus.Close() // an error means that the client has closed it
		}
	case http.StateClosed:
		l.mu.Lock()
		defer l.mu.Unlock()
		l.remove(conn)
	}
}

// admit adds a connection, and returns one to close, or nil.
func (l *limit) admit(conn net.Conn) (surplus net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.busy)+len(l.idle) >= MaxConnections { // at least one is idle
		surplus = l.idle[0]
		l.remove(surplus)
	}
	l.idle = append(l.idle, conn)
	return surplus
}

// makeBusy makes a connection busy, unless it was evicted. It returns false if too many are.
func (l *limit) makeBusy(conn net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.busy) >= maxBusy {
		return false
	}
	if l.remove(conn) {
		l.busy[conn] = true
	}
	return true
}

// makeIdle makes a busy connection idle.
func (l *limit) makeIdle(conn net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.remove(conn) {
		l.idle = append(l.idle, conn)
	}
}

// remove removes a connection from the set, and reports whether it was in the set. l.mu is held.
func (l *limit) remove(conn net.Conn) (known bool) {
	at := slices.Index(l.idle, conn)
	if at >= 0 {
		l.idle = slices.Delete(l.idle, at, at+1)
	}
	known = at >= 0 || l.busy[conn]
	delete(l.busy, conn)
	return known
}
