package admin

import (
	"container/list"
	"net"
	"net/http"
	"sync"
)

// MaxConnections bounds the connections to the listener, since each takes a descriptor.
const MaxConnections = 32

// limit bounds the connections of a server. A new connection evicts the longest idle one. If all
// are busy, the new one is closed.
type limit struct {
	mu   sync.Mutex                 // guards the fields below
	all  map[net.Conn]*list.Element // in idle; nil = busy with a request
	idle list.List                  // of net.Conn, the longest idle first
}

// changed implements http.Server.ConnState.
func (l *limit) changed(conn net.Conn, state http.ConnState) {
	if surplus := l.note(conn, state); surplus != nil {
		_ = surplus.Close() // an error means that the client has closed it
	}
}

// note records the state of a connection, and returns a connection to close, or nil.
func (l *limit) note(conn net.Conn, state http.ConnState) (surplus net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at, known := l.all[conn]
	if state != http.StateNew && !known {
		return nil // evicted before
	}
	if at != nil {
		l.idle.Remove(at)
	}
	delete(l.all, conn)
	switch state {
	case http.StateNew:
		if len(l.all) >= MaxConnections {
			oldest := l.idle.Front()
			if oldest == nil {
				return conn
			}
			surplus = l.idle.Remove(oldest).(net.Conn)
			delete(l.all, surplus)
		}
		l.all[conn] = l.idle.PushBack(conn)
	case http.StateIdle:
		l.all[conn] = l.idle.PushBack(conn)
	case http.StateActive:
		l.all[conn] = nil
	}
	return surplus
}
