package gateway

import (
	"errors"
	"net"
	"sync"
	"time"
)

var (
	// errClientGone ends the fetches of a request whose client has left while it waited.
	errClientGone = errors.New("client has left")

	errGone    = &refusal{status: 499, reason: "client has left"} // for the access log: nobody reads it
	errWaiting = &refusal{status: 503, reason: "too many requests wait for files of other hosts", retryAfter: time.Second}
)

// waits bounds the requests that wait for the first bytes from other hosts, so that a source which
// does not answer cannot take all connections: three quarters of them may wait, half of them for
// one source.
type waits struct {
	most, mostOfOne int

	mu    sync.Mutex // guards what follows
	total int
	of    map[string]int // by source
}

func newWaits(connections int) *waits {
	return &waits{most: max(1, connections*3/4), mostOfOne: max(1, connections/2), of: make(map[string]int)}
}

// enter counts a request in; leave counts it out. It is false when too many wait.
func (w *waits) enter(source string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.total >= w.most || w.of[source] >= w.mostOfOne {
		return false
	}
	w.total++
	w.of[source]++
	return true
}

func (w *waits) leave(source string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.total--
	if w.of[source]--; w.of[source] == 0 {
		delete(w.of, source)
	}
}

// wait counts the request among those that wait for a source, and calls gone, perhaps more than
// once and from another goroutine, when its client leaves. The error is the answer when too many
// wait. Without an error done ends this.
func (r *request) wait(source string, gone func(cause error)) (done func(), err error) {
	c := connOf(r.ctx.Conn())
	if c == nil { // it is not one of a Server
		return func() {}, nil
	}
	if !c.s.waits.enter(source) {
		return nil, errWaiting
	}
	stop := func() {}
	if raw, err := c.SyscallConn(); err == nil {
		stop = c.s.hangups.watch(raw, func() { gone(errClientGone) })
	}
	return func() {
		stop()
		c.s.waits.leave(source)
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
