package gateway

import (
	"net"
	"strings"
	"sync"

	"fastdfs-gateway/internal/origin"
)

// waits bounds the requests that wait for the first bytes from other hosts: to three quarters of
// the connections, and for one source to half of the connections. So a source without replies
// cannot take all connections.
type waits struct {
	max, maxPerSource int

	mu       sync.Mutex // guards the fields below
	total    int
	bySource map[string]*int // waiting requests by source
}

func newWaits(connections int) *waits {
	return &waits{max: max(1, connections*3/4), maxPerSource: max(1, connections/2), bySource: make(map[string]*int)}
}

// add counts a request that waits for source, until remove; false if too many wait. source may be a
// part of the request's bytes: add copies it, since other requests wait for the same source later.
func (w *waits) add(source string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.bySource[source]
	if w.total >= w.max || n != nil && *n >= w.maxPerSource {
		return false
	}
	if n == nil {
		n = new(int)
		w.bySource[strings.Clone(source)] = n
	}
	w.total++
	*n++
	return true
}

func (w *waits) remove(source string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.bySource[source]
	w.total--
	if *n--; *n == 0 {
		delete(w.bySource, source)
	}
}

// Wait implements origin.Client.
func (r *request) Wait(source string, onDisconnect func()) (done func(), err error) {
	c := connOf(r.ctx.Conn())
	if c == nil { // a connection without a Server
		return func() {}, nil
	}
	c.socket.Detach()
	if !c.s.waits.add(source) {
		return nil, origin.ErrTooManyWaiting
	}
	var stop func()
	if st, ok := r.ctx.Conn().(*stream); ok {
		stop = st.onDisconnect(onDisconnect)
	} else {
		stop = c.socket.OnDisconnect(onDisconnect)
	}
	return func() {
		stop()
		c.s.waits.remove(source)
	}, nil
}

// connOf returns the conn that a connection wraps; nil for a connection without a Server.
func connOf(c net.Conn) *conn {
	for {
		switch c := c.(type) {
		case *conn:
			return c
		case *stream:
			return c.conn.counted
		}
		wrapper, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			return nil
		}
		c = wrapper.NetConn()
	}
}
