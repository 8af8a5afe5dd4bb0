package gateway

import (
	"net"
	"strings"
	"sync"

	"fastdfs-gateway/internal/origin"
)

// waits bounds the requests that wait for the first bytes from other hosts, so that a source which
// does not answer cannot take all connections: three quarters of them may wait, half of them for
// one source.
type waits struct {
	max, maxPerSource int

	mu       sync.Mutex // guards what follows
	total    int
	bySource map[string]*int // by source
}

func newWaits(connections int) *waits {
	return &waits{max: max(1, connections*3/4), maxPerSource: max(1, connections/2), bySource: make(map[string]*int)}
}

// add counts a request in; remove counts it out. It is false when too many wait. source may be a
// part of the request's bytes: others wait for the same source when these are used again.
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
	if c == nil { // it is not one of a Server
		return func() {}, nil
	}
	if !c.s.waits.add(source) {
		return nil, origin.ErrTooManyWaiting
	}
	stop := func() {}
	if raw, err := c.SyscallConn(); err == nil {
		stop = c.s.disconnects.Watch(raw, onDisconnect)
	}
	return func() {
		stop()
		c.s.waits.remove(source)
	}, nil
}

// connOf finds the connection of a Server beneath those that wrap it; nil when it is none.
func connOf(c net.Conn) *conn {
	for {
		if own, ok := c.(*conn); ok {
			return own
		}
		wrapper, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			return nil
		}
		c = wrapper.NetConn()
	}
}
