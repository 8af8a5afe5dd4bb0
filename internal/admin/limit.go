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

// limit bounds the connections of a server. A new connection evicts the longest idle one. If all
// are busy, the new one is closed. A connection is busy while the handler runs: a client that sends
// half a request, or reads no response, is idle.
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
		l.set(conn, true)
		defer l.set(conn, false)
		next.ServeHTTP(w, req)
	})
}

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
	if len(l.busy)+len(l.idle) >= MaxConnections {
		if len(l.idle) == 0 {
			return conn
		}
		surplus = l.idle[0]
		l.remove(surplus)
	}
	l.idle = append(l.idle, conn)
	return surplus
}

// set makes a connection busy or idle, unless it was evicted.
func (l *limit) set(conn net.Conn, busy bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch known := l.remove(conn); {
	case !known:
	case busy:
		l.busy[conn] = true
	default:
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
