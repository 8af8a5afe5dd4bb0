package eventloop

import (
	"net"
	"os"
	"syscall"
	"time"

	"fastdfs-gateway/internal/process/sys"

	"golang.org/x/sys/unix"
)

// waiting is the socket of a connection whose goroutine has to wait for input in the middle of a
// request, or for room for output. The runtime polls the socket like any one of the net package, in
// addition to the loop.
type waiting struct {
	file    *os.File // closes the descriptor
	raw     syscall.RawConn
	in, out half

	// The step, the buffer and the result of Read.
	readOnce func(fd uintptr) bool
	p        []byte
	n        int
	err      error
}

// half is one direction of a waiting socket, which one goroutine uses at a time.
type half struct {
	f    func(fd uintptr) bool // true = done
	step func(fd uintptr) bool // calls f, and Detach if a wait follows; stored to save an allocation
}

// init prepares step.
func (h *half) init(c *Conn) {
	h.step = func(fd uintptr) bool {
		if h.f(fd) {
			return true
		}
		c.Detach()
		return false
	}
}

// wait returns the socket for waits. The first call creates it.
func (c *Conn) wait() (*waiting, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.waiting.Load()
	if w == nil {
		w = &waiting{file: os.NewFile(uintptr(c.fd), "socket")}
		var err error
		if w.raw, err = w.file.SyscallConn(); err != nil {
			return nil, err // only for a nil file
		}
		w.readOnce = w.read
		w.in.init(c)
		w.out.init(c)
		c.waiting.Store(w) // from here on, done closes the file
		if c.until != noDeadline {
			if err := w.file.SetReadDeadline(time.Now().Add(c.until - c.l.g.now())); err != nil {
				return nil, err
			}
		}
	}
	if c.isClosed() { // Close may have looked for w too early
		return nil, net.ErrClosed
	}
	return w, nil
}

// Read implements net.Conn.
func (c *Conn) Read(p []byte) (n int, err error) {
	if n, err = c.ReadNow(p); err != unix.EAGAIN {
		return n, err
	}
	if !c.use() {
		return 0, net.ErrClosed
	}
	defer c.done()
	w, err := c.wait()
	if err != nil {
		return 0, err
	}
	w.p, w.in.f = p, w.readOnce
	err = c.ended(w.raw.Read(w.in.step))
	n, failed := w.n, w.err
	w.p, w.n, w.err = nil, 0, nil
	if err != nil {
		return 0, err
	}
	return readResult(n, failed)
}

// read is the step of Read.
func (w *waiting) read(fd uintptr) bool {
	w.n, w.err = sys.ReadNoWait(fd, w.p)
	return w.err != unix.EAGAIN
}

// ended returns the error of a wait: net.ErrClosed if Close ended the wait.
func (c *Conn) ended(err error) error {
	if err != nil && c.isClosed() {
		return net.ErrClosed
	}
	return err
}

// AwaitInput waits until ReadNow may return anything but EAGAIN.
func (c *Conn) AwaitInput() error {
	err := c.repeat(false, func(fd uintptr) bool {
		_, _, err := unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
		return err != unix.EAGAIN
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ready = true
	return err
}

// Write implements net.Conn.
func (c *Conn) Write(p []byte) (n int, err error) {
	var failed error
	err = c.repeat(true, func(fd uintptr) bool {
		for n < len(p) && failed == nil {
			var sent int
			sent, failed = sys.SendNoWait(fd, p[n:], nil, unix.MSG_NOSIGNAL)
			if failed == unix.EAGAIN {
				failed = nil
				return false
			}
			n += max(sent, 0)
		}
		return true
	})
	if err == nil && failed != nil {
		err = os.NewSyscallError("send", failed)
	}
	return n, err
}

// repeat calls f until f returns true. Before each further call it waits for input, or, with out,
// for room for output.
func (c *Conn) repeat(out bool, f func(fd uintptr) bool) error {
	if !c.use() {
		return net.ErrClosed
	}
	defer c.done()
	if c.waiting.Load() == nil && f(uintptr(c.fd)) {
		return nil
	}
	w, err := c.wait()
	if err != nil {
		return err
	}
	if out {
		w.out.f = f
		return c.ended(w.raw.Write(w.out.step))
	}
	w.in.f = f
	return c.ended(w.raw.Read(w.in.step))
}

// SetDeadline implements net.Conn.
func (c *Conn) SetDeadline(t time.Time) error {
	if err := c.SetReadDeadline(t); err != nil {
		return err
	}
	return c.SetWriteDeadline(t)
}

// SetReadDeadline implements net.Conn.
func (c *Conn) SetReadDeadline(t time.Time) error {
	if !c.use() {
		return net.ErrClosed
	}
	defer c.done()
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.l.g.now()
	c.until = noDeadline
	if !t.IsZero() {
		c.until = now + time.Until(t)
	}
	c.expired = c.until <= now
	if w := c.waiting.Load(); w != nil && !c.isClosed() {
		return w.file.SetReadDeadline(t)
	}
	return nil
}

// SetWriteDeadline implements net.Conn.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	if !c.use() {
		return net.ErrClosed
	}
	defer c.done()
	if t.IsZero() && c.waiting.Load() == nil {
		return nil
	}
	w, err := c.wait()
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isClosed() { // the deadline ends all waits
		return net.ErrClosed
	}
	return w.file.SetWriteDeadline(t)
}

// SyscallConn returns the socket. Its Read and Write wait like those of the connection.
func (c *Conn) SyscallConn() (syscall.RawConn, error) { return (*rawConn)(c), nil }

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
func (r *rawConn) Read(f func(fd uintptr) bool) error { return (*Conn)(r).repeat(false, f) }

// Write implements syscall.RawConn.
func (r *rawConn) Write(f func(fd uintptr) bool) error { return (*Conn)(r).repeat(true, f) }
