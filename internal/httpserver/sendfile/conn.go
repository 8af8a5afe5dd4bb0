// Package sendfile sends responses: bytes from memory, and parts of shared files by sendfile(2),
// which does not copy them through the process. A client that does not read cannot hold a
// connection forever.
//
//	conn, err := sendfile.NewConn(tcp, sendfile.Pace{MinRate: 1024, Window: 30 * time.Second})
//	pieces := []sendfile.Piece{{Offset: 0, Length: 4096}}
//	body := &sendfile.Body{Conn: conn, Direct: true, File: file, Pieces: pieces}
//	n, err := body.WriteTo(conn)
//	body.Close()
//
// ExampleBody is a whole program.
//
// The time of a whole response has no limit. A client is dropped when its host has acknowledged
// less than MinRate bytes per second over a Window in which the gateway had bytes for it. Bytes in
// the socket buffer of this host do not count: that buffer holds megabytes, and a slow but healthy
// client empties it only every few minutes.
package sendfile

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	"fastdfs-gateway/internal/content"
	"fastdfs-gateway/internal/process/sys"

	"golang.org/x/sys/unix"
)

// ErrSlowClient is the error of a write to a client that takes bytes more slowly than Pace allows.
var ErrSlowClient = errors.New("client reads too slowly")

// errNoSendfile is the error if the kernel cannot send from this file, or not now. The caller
// copies the bytes instead.
var errNoSendfile = errors.New("sendfile is not supported for this file")

// chunk bounds the bytes of one sendfile(2) call, and of one copy without sendfile. So a call for a
// fast client does not keep a thread in the kernel for long.
const chunk = 256 << 10

// Pace is the least rate of a client. The zero value never drops a client.
type Pace struct {
	MinRate int64         // bytes per second
	Window  time.Duration // over which the rate is measured
}

// Conn is a stream socket whose writes are paced. Reads use the inner connection. One goroutine may
// write at a time.
type Conn struct {
	net.Conn
	raw  syscall.RawConn
	pace Pace
	tcp  bool // only then sendfile(2) is used

	// State of the current write, in fields so that the callbacks below need no closures.
	buf      []byte
	behind   []byte      // sent after buf, by the same call if the socket accepts both
	more     atomic.Bool // further bytes follow the next Write at once (MSG_MORE)
	last     bool        // the next Write is followed by CloseWrite or Close, see Last
	file     int
	source   content.Descriptor // of file; nil = unknown
	offset   int64
	left     int64
	burst    int64 // sent by SendFile since the last yield
	pages    pages // advice to the kernel about the file
	err      error
	inWindow bool        // the write deadline is the end of a window
	bounded  atomic.Bool // the caller has set a write deadline
	taken    int64       // bytes that the client had acknowledged at the start of the window

	written atomic.Int64 // bytes that the socket accepted since the connection began

	room int // result of roomStep

	abandoned atomic.Bool

	writeStep, fileStep, roomStep func(fd uintptr) bool
}

// NewConn wraps a TCP or unix stream connection.
func NewConn(inner net.Conn, pace Pace) (*Conn, error) {
	sc, ok := inner.(syscall.Conn)
	if !ok {
		return nil, fmt.Errorf("cannot send to a %T: it is no socket", inner)
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("cannot get the socket of %s: %w", inner.RemoteAddr(), err)
	}
	c := &Conn{Conn: inner, raw: raw, pace: pace}
	_, c.tcp = inner.RemoteAddr().(*net.TCPAddr)
	c.writeStep, c.fileStep, c.roomStep = c.tryWrite, c.trySendfile, c.tryRoom
	return c, nil
}

// detach calls Detach of an eventloop.Conn, since the calling goroutine may take long.
func (c *Conn) detach() {
	if loop, ok := c.Conn.(interface{ Detach() }); ok {
		loop.Detach()
	}
}

// CloseWrite ends the sending direction; the client reads the end of the stream.
func (c *Conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// Last announces that the caller closes the connection, or its sending direction, after the next
// response. The kernel then sends the end of the stream in the packet of the last bytes.
func (c *Conn) Last() { c.last = true }

// brief bounds the bytes of a connection that Brief leaves to the kernel to deliver after Close.
const brief = 64 << 10

// Brief reports whether so few bytes were written that Close need not wait until the client has
// them. A client that does not read then costs no more than its socket buffer, for the time for
// which the kernel keeps a socket without a process (tcp_orphan_retries, tcp(7)).
func (c *Conn) Brief() bool { return c.written.Load() <= brief }

// SetWriteDeadline implements net.Conn. Until it is called with the zero time, the deadline bounds
// writes in place of the pace.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	c.bounded.Store(!t.IsZero())
	return c.Conn.SetWriteDeadline(t)
}

// SetDeadline implements net.Conn. The deadline bounds writes like that of SetWriteDeadline.
func (c *Conn) SetDeadline(t time.Time) error {
	c.bounded.Store(!t.IsZero())
	return c.Conn.SetDeadline(t)
}

// Write sends all of p and of behind, or returns an error. The result counts bytes of p only.
func (c *Conn) Write(p []byte) (int, error) {
	c.buf = p
	err := c.send(c.writeStep)
	n := len(p) - len(c.buf)
	c.buf = nil
	return n, err
}

// Record is the size of the content of a TLS record in bytes (RFC 8446 section 5.1). crypto/tls
// writes each record by itself.
const Record = 16 << 10

// WriteRecords writes p to w, a TLS connection above c, or the buffer of one that holds begun
// bytes. All records but the last one are sent with MSG_MORE, so that the end of a record does not
// end a packet.
func (c *Conn) WriteRecords(w io.Writer, begun int, p []byte) (n int, err error) {
	if last := (begun+len(p)-1)%Record + 1; len(p) > last {
		c.more.Store(true)
		n, err = w.Write(p[:len(p)-last])
		c.more.Store(false)
		if err != nil {
			return n, err
		}
		p = p[n:]
	}
	m, err := w.Write(p)
	return n + m, err
}

// cork makes the kernel send full packets only (TCP_CORK, tcp(7)), until a call without on.
// Failures have no effect on the bytes.
func (c *Conn) cork(on bool) {
	value := 0
	if on {
		value = 1
	}
	_ = c.raw.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_CORK, value) })
}

// SendFile sends length bytes of the open file fd from offset by sendfile(2). It ignores the offset
// of the descriptor, so one descriptor can serve many connections. It returns the number of bytes
// sent, with an error if that is less than length: errNoSendfile if the rest has to be copied, or
// ErrSource and io.ErrUnexpectedEOF for a shorter file.
func (c *Conn) SendFile(fd int, offset, length int64) (int64, error) {
	if !c.tcp {
		return 0, errNoSendfile
	}
	c.file, c.offset, c.left, c.burst = fd, offset, length, 0
	c.pages.beginTransfer(offset, length)
	err := c.send(c.fileStep)
	c.pages.endTransfer(fd, c.offset)
	return length - c.left, err
}

// waitRoom waits until the socket accepts bytes, and returns its room: a multiple of minRoom, at
// most chunk. A copy takes its buffer after this wait, so a client that does not read holds none.
func (c *Conn) waitRoom() (int, error) {
	err := c.send(c.roomStep)
	return c.room, err
}

// minRoom is the size of a write when the room is small or unknown: one record of TLS.
const minRoom = Record

// tryRoom is a step of waitRoom.
func (c *Conn) tryRoom(fd uintptr) bool {
	poll := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
	if n, err := unix.Poll(poll[:], 0); err == nil && n == 0 {
		return c.failed("poll", unix.EAGAIN)
	}
	c.room = minRoom
	size, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUF)
	if err != nil {
		return true // the next write returns the error
	}
	queued, err := unix.IoctlGetInt(int(fd), unix.TIOCOUTQ)
	if err == nil { // the kernel counts its own structures too: about half of the buffer is for bytes
		c.room = min(max(size/2-queued, minRoom), chunk) / minRoom * minRoom
	}
	return true
}

// send repeats step until it is done, and measures the rate of the client during waits.
func (c *Conn) send(step func(fd uintptr) bool) error {
	for {
		c.err = nil
		err := c.raw.Write(step)
		if err == nil {
			err = c.err
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) || !c.inWindow || c.bounded.Load() {
			c.endWindow()
			if err != nil && c.abandoned.Load() {
				err = ErrSlowClient
			}
			return err
		}
		taken := c.clientTook()
		if float64(taken-c.taken) < float64(c.pace.MinRate)*c.pace.Window.Seconds() {
			c.endWindow()
			c.abandon()
			return ErrSlowClient
		}
		c.beginWindow(taken)
	}
}

// abandon makes the next Close discard unacknowledged bytes, which the kernel would otherwise keep
// for minutes.
func (c *Conn) abandon() {
	c.abandoned.Store(true)
	if tcp, ok := c.Conn.(interface{ SetLinger(seconds int) error }); ok {
		_ = tcp.SetLinger(0) // fails only on a closed connection
	}
}

// Abandon closes a connection at once, and discards unacknowledged bytes.
func (c *Conn) Abandon() error {
	c.abandon()
	return c.Close()
}

// Unacknowledged returns the number of bytes that the client's host has not acknowledged.
func (c *Conn) Unacknowledged() int64 {
	queued := 0
	_ = c.raw.Control(func(fd uintptr) { // 0 on failure
		if n, err := unix.IoctlGetInt(int(fd), unix.TIOCOUTQ); err == nil {
			queued = n
		}
	})
	return int64(queued)
}

// HasInput reports whether the socket holds unread bytes: the connection is not idle, its reader
// has just not run yet.
func (c *Conn) HasInput() bool {
	n := 0
	err := c.raw.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.TIOCINQ) }) // 0 on failure
	return err == nil && n > 0
}

// Abandoned reports whether the client was dropped. Close need not wait for such a client.
func (c *Conn) Abandoned() bool { return c.abandoned.Load() }

// tryWrite is a step of Write. It returns false if Write has to wait until the socket accepts more.
func (c *Conn) tryWrite(fd uintptr) bool {
	flags := unix.MSG_NOSIGNAL
	if c.more.Load() || c.last {
		flags |= unix.MSG_MORE
	}
	for len(c.buf)+len(c.behind) > 0 {
		n, err := sys.SendNoWait(fd, c.buf, c.behind, flags)
		if n > 0 {
			c.written.Add(int64(n))
			first := min(n, len(c.buf))
			c.buf, c.behind = c.buf[first:], c.behind[n-first:]
		}
		if err != nil {
			return c.failed("send", err)
		}
	}
	return true
}

// turn bounds the bytes that one connection sends before other goroutines run.
const turn = 8 << 20

// trySendfile is a step of SendFile.
func (c *Conn) trySendfile(fd uintptr) bool {
	for c.left > 0 {
		c.pages.about(c.file, c.offset, c.left)
		n, err := c.sendfileOnce(fd, int(min(c.left, chunk)))
		if n > 0 {
			c.left -= int64(n)
			c.written.Add(int64(n))
			if c.burst += int64(n); c.burst >= turn && c.left > 0 {
				c.burst = 0
				c.detach()
				runtime.Gosched()
			}
			continue
		}
		switch err {
		case nil:
			c.err = fmt.Errorf("%w: %w", ErrSource, io.ErrUnexpectedEOF) // the file is shorter now
			return true
		case unix.EAGAIN, unix.EPIPE, unix.ECONNRESET, unix.ETIMEDOUT:
			return c.failed("sendfile", err)
		default: // an error of the file or of the socket: a copy fails with the right one
			c.err = errNoSendfile
			return true
		}
	}
	return true
}

// sendfileOnce sends up to length bytes. If they may have to be read from disk, it uses a system
// call that the scheduler of the runtime sees; with guarded it sends nothing then.
func (c *Conn) sendfileOnce(fd uintptr, length int) (int, error) {
	if !c.pages.resident && !seen.lately(c.file, c.offset) {
		if !cachedPage(c.file, c.offset+int64(length)-1) {
			if c.pages.guarded {
				return 0, unix.ENOSYS
			}
			c.detach()
			if err := await(c.source, c.offset, int64(length), bodyTime); err != nil {
				return 0, err
			}
			return sys.Retry(func() (int, error) { return unix.Sendfile(int(fd), c.file, &c.offset, length) })
		}
		seen.note(c.file, c.offset)
	}
	return sys.SendfileNoWait(fd, c.file, &c.offset, length)
}

// failed returns the result of a step after an error: false, for a wait, if the socket is full.
func (c *Conn) failed(call string, err error) bool {
	if err == unix.EAGAIN {
		if !c.inWindow && c.pace.MinRate > 0 && !c.bounded.Load() {
			c.beginWindow(c.clientTook())
		}
		return false
	}
	c.err = os.NewSyscallError(call, err)
	return true
}

// beginWindow starts a measurement. The current wait ends after one window at the latest.
func (c *Conn) beginWindow(taken int64) {
	c.inWindow, c.taken = true, taken
	c.err = c.Conn.SetWriteDeadline(time.Now().Add(c.pace.Window))
}

func (c *Conn) endWindow() {
	if c.inWindow && !c.bounded.Load() {
		_ = c.Conn.SetWriteDeadline(time.Time{}) // fails only on a closed connection
	}
	c.inWindow = false
}

// clientTook returns the number of bytes that the client's host has acknowledged.
func (c *Conn) clientTook() int64 {
	_, taken := c.Progress()
	return taken
}

// Progress returns the number of written bytes that the client's host has not acknowledged, and of
// those that it has. Any goroutine may call it.
func (c *Conn) Progress() (lacks, taken int64) {
	lacks = c.Unacknowledged() // first: a write meanwhile makes taken too large, not too small
	return lacks, c.written.Load() - lacks
}
