package eventloop

import (
	"fastdfs-gateway/internal/process/panics"

	"golang.org/x/sys/unix"
)

// watch is a call of OnDisconnect.
type watch struct {
	f        func()
	returned chan struct{} // closed when f has returned
}

// OnDisconnect calls f, at most once and from another goroutine, if the client disconnects before
// stop is called. A client that has closed its side of the connection counts as disconnected, as in
// nginx: only a write distinguishes it from a half-closed client that still reads. stop waits for a
// running call: after stop has returned, f does not run, so it may use values that live until then.
// f must not call stop. A panic in f is contained.
//
// The goroutine that serves the connection calls OnDisconnect, and stop before it reads or parks.
func (c *Conn) OnDisconnect(f func()) (stop func()) {
	if !c.use() {
		return func() {}
	}
	defer c.done()
	w := &watch{f, make(chan struct{})}
	c.mu.Lock()
	add := !c.added
	c.added, c.watch = true, w
	if c.ending {
		c.disconnected()
	}
	c.mu.Unlock()
	if add && c.register() != nil { // without events no disconnect is detected
		c.unregister()
		add = false
	}
	return func() {
		if add { // a connection that was not parked yet may never be, and then needs no events
			c.unregister()
		}
		c.mu.Lock()
		running := c.watch != w
		c.watch = nil
		c.mu.Unlock()
		if running {
			<-w.returned
		}
	}
}

// disconnected starts a goroutine that calls the function of OnDisconnect. mu is held.
func (c *Conn) disconnected() {
	w := c.watch
	if w == nil {
		return
	}
	c.watch = nil
	go func() {
		defer close(w.returned)
		defer panics.Contain("reporting a disconnect")
		w.f()
	}()
}

// unregister undoes register. The system call fails for a closed connection, which the kernel has
// removed.
func (c *Conn) unregister() {
	c.mu.Lock()
	c.added = false
	c.mu.Unlock()
	_ = c.Control(func(fd uintptr) error { return c.l.control(unix.EPOLL_CTL_DEL, int(fd), nil) })
}
