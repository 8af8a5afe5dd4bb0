package eventloop

import (
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// signal wakes the goroutine that waits. Conn.mu is held.
func (d *direction) signal() {
	if d.waits {
		select {
		case d.wakeUp <- struct{}{}:
		default:
		}
	}
}

// setDeadline sets the deadline of a direction. The zero time is none.
func (c *Conn) setDeadline(d *direction, t time.Time) error {
	until := noDeadline
	if !t.IsZero() {
		until = c.l.g.now() + time.Until(t)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isClosed() {
		return net.ErrClosed
	}
	d.until, d.expired = until, until <= c.l.g.now()
	if d.waits {
		c.setTimer(d)
	}
	return nil
}

// setTimer sets the timer of a wait. Conn.mu is held.
func (c *Conn) setTimer(d *direction) {
	switch left := d.until - c.l.g.now(); {
	case d.until == noDeadline:
		if d.timer != nil {
			d.timer.Stop()
		}
	case d.timer == nil:
		d.timer = time.AfterFunc(left, func() { c.timeOut(d) })
	default:
		d.timer.Reset(left)
	}
}

// timeOut ends a wait if its deadline has passed: it may have been moved.
func (c *Conn) timeOut(d *direction) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if d.until <= c.l.g.now() {
		d.expired = true
		d.signal()
	}
}

// await waits until a direction is ready. The errors are net.ErrClosed and os.ErrDeadlineExceeded.
func (c *Conn) await(d *direction) error {
	c.Detach()
	if err := c.watch(d == &c.write); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		switch {
		case c.isClosed():
			return net.ErrClosed
		case d.expired:
			return os.ErrDeadlineExceeded
		case d.ready:
			return nil
		}
		c.waitLocked(d)
	}
}

// waitLocked waits for a signal. Conn.mu is held before and after.
func (c *Conn) waitLocked(d *direction) {
	if d.wakeUp == nil {
		d.wakeUp = make(chan struct{}, 1)
	}
	d.waits = true
	if d.until != noDeadline {
		c.setTimer(d)
	}
	c.mu.Unlock()
	<-d.wakeUp
	c.mu.Lock()
	d.waits = false
	if d.timer != nil {
		d.timer.Stop()
	}
	select {
	case <-d.wakeUp: // a second signal before this one was seen
	default:
	}
}

// watch registers the socket for events, with out also for room for output.
func (c *Conn) watch(out bool) error {
	if !c.use() {
		return net.ErrClosed
	}
	defer c.done()
	c.mu.Lock()
	op := 0
	switch {
	case !c.state.added:
		op = unix.EPOLL_CTL_ADD
	case out && !c.state.forOut:
		op = unix.EPOLL_CTL_MOD // reports at once what is ready
	}
	c.state.added, c.state.forOut = true, c.state.forOut || out
	both := c.state.forOut
	c.mu.Unlock()
	if op == 0 {
		return nil
	}
	return c.register(op, both)
}

// whileWritable calls f, and again as soon as the socket has room for output, until it returns
// true.
func (c *Conn) whileWritable(f func(fd uintptr) bool) error {
	return c.repeat(&c.write, f)
}

// repeat calls f, and again whenever a direction is ready, until it returns true.
func (c *Conn) repeat(d *direction, f func(fd uintptr) bool) error {
	if !c.use() {
		return net.ErrClosed
	}
	defer c.done()
	for {
		c.mu.Lock()
		expired := d.expired
		d.ready = false // an event after this makes it true again, also during f
		c.mu.Unlock()
		if expired {
			return os.ErrDeadlineExceeded
		}
		if f(uintptr(c.fd)) {
			c.mu.Lock()
			d.ready = true // there may be more
			c.mu.Unlock()
			return nil
		}
		if err := c.await(d); err != nil {
			return err
		}
	}
}

// rawConn is the socket of a Conn as a syscall.RawConn.
type rawConn Conn

var _ syscall.RawConn = (*rawConn)(nil)

// Control implements syscall.RawConn.
func (r *rawConn) Control(f func(fd uintptr)) error {
	return (*Conn)(r).Control(func(fd uintptr) error {
		f(fd)
		return nil
	})
}

// Read implements syscall.RawConn.
func (r *rawConn) Read(f func(fd uintptr) bool) error {
	c := (*Conn)(r)
	return c.repeat(&c.read, f)
}

// Write implements syscall.RawConn.
func (r *rawConn) Write(f func(fd uintptr) bool) error { return (*Conn)(r).whileWritable(f) }
