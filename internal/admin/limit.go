package admin

import (
	"container/list"
	"net"
	"net/http"
	"sync"
)

// MaxConnections bounds the connections to the listener: each has a descriptor, which the listeners
// for files need too.
const MaxConnections = 32

// limit bounds the connections of a server. A new one takes the place of the one that has been
// without a request longest; where all are busy, it is closed itself.
type limit struct {
	mu   sync.Mutex                 // guards what follows
	all  map[net.Conn]*list.Element // of idle; nil = a request is being answered
	idle list.List                  // of net.Conn, the longest idle first
}

// changed is the ConnState of the server.
func (l *limit) changed(conn net.Conn, state http.ConnState) {
	if surplus := l.note(conn, state); surplus != nil {
		_ = surplus.Close() // its client may have done so
	}
}

// note follows the state of a connection. It returns one that is to be closed, or nil.
func (l *limit) note(conn net.Conn, state http.ConnState) (surplus net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at, known := l.all[conn]
	if state != http.StateNew && !known {
		return nil // it was closed here
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
