package eventloop

import (
	"io"
	"math"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"fastdfs-gateway/internal/process/panics"
	"fastdfs-gateway/internal/process/sys"

	"golang.org/x/sys/unix"
)

// Conn is a connected stream socket. It is a net.Conn whose Read and Write wait, and it may be
// parked between two requests.
//
// One goroutine at a time may read, and one may write. Any goroutine may call the other methods.
type Conn struct {
	Owner any // of serve; set before the first Park

	l                 *loop
	fd                int
	index, generation uint32                      // in the table of the loop
	local             net.Addr                    // of the listener
	own               atomic.Pointer[net.TCPAddr] // cached result of LocalAddr; nil = not called yet
	remote            net.TCPAddr
	ip                [16]byte // of remote
	isTCP             bool

	users atomic.Int64 // number of calls that use fd, plus closing after Close

	// The loop that the goroutine which serves the connection leads, and its number as a leader;
	// nil = it leads none. Another goroutine that has to wait meanwhile, such as a writer beside a
	// reader, may hand the loop over.
	lead   atomic.Pointer[loop]
	number atomic.Uint64

	waiting atomic.Pointer[waiting] // nil = no goroutine has waited yet

	mu      sync.Mutex // guards the fields below
	added   bool       // the epoll instance watches the socket
	ending  bool       // the client has closed its sending side, or the connection is broken
	ready   bool       // a read may return anything but EAGAIN
	watch   *watch     // of OnDisconnect; nil = none
	parked  bool
	expired bool          // the read deadline has passed
	until   time.Duration // the read deadline by the clock of the group; noDeadline = none
}

const noDeadline = time.Duration(math.MaxInt64)

// closing marks Conn.users after Close.
const closing = 1 << 32

var _ net.Conn = (*Conn)(nil)

// newConn makes the connection of a socket.
func (g *Group) newConn(l *loop, fd int, local net.Addr, from *unix.RawSockaddrAny) *Conn {
	c := &Conn{l: l, fd: fd, local: local, until: noDeadline, ready: true}
	if a, ok := tcpAddr(from); ok {
		c.isTCP, c.ip = true, a.Addr().As16()
		c.remote = net.TCPAddr{IP: c.ip[:], Port: int(a.Port()), Zone: a.Addr().Zone()}
		if a.Addr().Is4() {
			c.remote.IP = c.ip[12:]
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	c.index, c.generation = l.table.addEntry(entry{conn: c})
	return c
}

// use keeps the descriptor open until done. It returns false after Close.
func (c *Conn) use() bool {
	for {
		n := c.users.Load()
		if n >= closing {
			return false
		}
		if c.users.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (c *Conn) done() {
	if c.users.Add(-1) != closing {
		return
	}
	// A failure of close(2) has no remedy.
	if w := c.waiting.Load(); w != nil {
		_ = w.file.Close()
	} else {
		_ = sys.CloseSocket(c.fd)
	}
}

// passTo calls f for the connection, on the goroutine that leads the loop under this number. A
// panic there is a bug, and closes the connection.
func (c *Conn) passTo(f func(*Conn), what string, l *loop, number uint64) {
	c.number.Store(number)
	c.lead.Store(l)
	defer func() {
		if p := recover(); p != nil {
			panics.Report(p, what)
			_ = c.Close()
		}
	}()
	f(c)
}

// Close closes the socket and ends the waits of other goroutines. A second Close does nothing.
func (c *Conn) Close() error {
	for {
		n := c.users.Load()
		if n >= closing {
			return nil
		}
		if c.users.CompareAndSwap(n, n+closing+1) {
			break
		}
	}
	c.l.mu.Lock()
	c.l.table.remove(c.index)
	c.l.mu.Unlock()
	c.mu.Lock()
	c.parked = false
	if w := c.waiting.Load(); w != nil {
		_ = w.file.SetDeadline(time.Unix(1, 0)) // ends all waits; the file is open
	}
	c.mu.Unlock()
	c.done()
	return nil
}

// isClosed reports whether Close was called.
func (c *Conn) isClosed() bool { return c.users.Load() >= closing }

// Park passes the connection to its loop, whose group serves it as soon as bytes can be read or its
// read deadline has passed. The caller must not use the connection after that. Park returns false
// if one of these is the case already, or the connection is closed: the caller keeps the
// connection, and its next read returns bytes or the error.
func (c *Conn) Park() bool {
	if !c.use() {
		return false
	}
	defer c.done()
	c.mu.Lock()
	if c.ready || c.expired || c.isClosed() {
		c.mu.Unlock()
		return false
	}
	add := !c.added
	c.added, c.parked = true, true
	c.lead.Store(nil)
	c.mu.Unlock()
	// From here on another goroutine may serve the connection.
	if add {
		if err := c.register(); err != nil {
			return !c.unpark()
		}
	}
	return true
}

// unpark takes the connection back from its loop, which cannot watch it; false if another goroutine
// serves it already.
func (c *Conn) unpark() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.parked
	c.parked, c.added, c.expired = false, false, c.expired || was
	return was
}

// register adds the socket to the epoll instance, which then reports input.
func (c *Conn) register() error {
	const events = unix.EPOLLIN | unix.EPOLLRDHUP | unix.EPOLLET&math.MaxUint32
	return c.l.control(unix.EPOLL_CTL_ADD, c.fd, event(events, c.index, c.generation))
}

// wake records events, and reports whether the connection was parked and has to be served now.
func (c *Conn) wake(events uint32) (serve bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if events&(unix.EPOLLHUP|unix.EPOLLERR|unix.EPOLLRDHUP) != 0 {
		c.ending = true
		c.disconnected()
	}
	c.ready = true
	serve, c.parked = c.parked, false
	return serve
}

// expire unparks the connection if its read deadline has passed; the caller serves it then.
func (c *Conn) expire(now time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.parked || c.until > now {
		return false
	}
	c.parked, c.expired = false, true
	return true
}

// Detach makes the calling goroutine, which serves the connection, an ordinary one: another
// goroutine leads its loop. Callers use it before any operation that may take long.
func (c *Conn) Detach() {
	if l := c.lead.Swap(nil); l != nil {
		l.handOver(c.number.Load()) // does nothing if another goroutine leads already
	}
}

// Leave ends the relation of the connection to the loop that its goroutine leads. A leader calls it
// before it passes the connection to another goroutine.
func (c *Conn) Leave() { c.lead.Store(nil) }

// Readable reports whether ReadNow may return anything but EAGAIN.
func (c *Conn) Readable() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ready || c.expired || c.isClosed()
}

// ReadNow reads without waiting. If no bytes are there to read, the error is unix.EAGAIN, or
// os.ErrDeadlineExceeded if the read deadline has passed. So bytes that arrived in time are not
// lost if this process was late.
func (c *Conn) ReadNow(p []byte) (n int, err error) {
	if !c.use() {
		return 0, net.ErrClosed
	}
	defer c.done()
	c.mu.Lock()
	expired, ready := c.expired, c.ready || c.expired
	c.ready = false
	c.mu.Unlock()
	switch {
	case !ready:
		return 0, unix.EAGAIN
	case len(p) == 0:
		return 0, nil
	}
	n, err = sys.ReadNoWait(uintptr(c.fd), p)
	c.mu.Lock()
	// A short read has emptied the socket, and further bytes cause an event. The end of the stream
	// may have caused its event already.
	if err != unix.EAGAIN && (n == len(p) || n == 0 || err != nil || c.ending) {
		c.ready = true
	}
	c.mu.Unlock()
	switch {
	case err == unix.EAGAIN && expired:
		return 0, os.ErrDeadlineExceeded
	case err == unix.EAGAIN:
		return 0, err
	}
	return readResult(n, err)
}

// readResult converts the result of read(2) to that of io.Reader.
func readResult(n int, err error) (int, error) {
	switch {
	case err != nil:
		return 0, os.NewSyscallError("read", err)
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

// CloseWrite ends the sending direction; the client reads the end of the stream.
func (c *Conn) CloseWrite() error {
	return c.Control(func(fd uintptr) error {
		return os.NewSyscallError("shutdown", unix.Shutdown(int(fd), unix.SHUT_WR))
	})
}

// SetLinger sets the time in seconds for which the kernel sends after Close; with 0 it discards all
// unacknowledged bytes.
func (c *Conn) SetLinger(seconds int) error {
	return c.Control(func(fd uintptr) error {
		return os.NewSyscallError("setsockopt", unix.SetsockoptLinger(int(fd), unix.SOL_SOCKET, unix.SO_LINGER,
			&unix.Linger{Onoff: 1, Linger: int32(seconds)}))
	})
}

// Control calls f with the descriptor.
func (c *Conn) Control(f func(fd uintptr) error) error {
	if !c.use() {
		return net.ErrClosed
	}
	defer c.done()
	return f(uintptr(c.fd))
}

// LocalAddr implements net.Conn.
func (c *Conn) LocalAddr() net.Addr {
	tcp, ok := c.local.(*net.TCPAddr)
	if !ok || !tcp.IP.IsUnspecified() {
		return c.local
	}
	if own := c.own.Load(); own != nil {
		return own
	}
	own := tcp // the result if the call fails
	_ = c.Control(func(fd uintptr) error {
		if a, err := unix.Getsockname(int(fd)); err == nil {
			own = addrOf(a, own)
		}
		return nil
	})
	c.own.Store(own)
	return own
}

// RemoteAddr implements net.Conn.
func (c *Conn) RemoteAddr() net.Addr {
	if c.isTCP {
		return &c.remote
	}
	return &net.UnixAddr{Net: "unix"}
}
