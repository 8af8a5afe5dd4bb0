package guard

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"fastdfs-gateway/internal/process/panics"
	"fastdfs-gateway/internal/process/sys"
)

// Conn is a net.Conn whose Read hands out canonical request heads; the
// package comment says what a reader can rely on. Writing goes straight to
// the wrapped connection. Read must not be called from two goroutines at
// once; Close may be called from any.
type Conn struct {
	net.Conn // the wrapped connection

	g      *Guard
	raw    syscall.RawConn // nil when the wrapped connection shows no socket
	closed atomic.Bool
	idle   atomic.Int64 // nanoseconds of the guard's clock at which the wait for a request began; or busy, or taken

	// mu guards what follows. Read holds it all the time, also while it
	// waits for the network; Close only tries to take it.
	mu sync.Mutex

	in      *buffer // nil, or what was read from the network
	r, w    int     // in.b[r:w] is not consumed yet
	out     *buffer // nil, or a head that had to be written anew
	pending []byte  // the rest of a head to hand out, part of in or out

	head     head      // the request that is being read
	deadline time.Time // the read deadline that the connection has now
	idling   bool      // the deadline for waiting for this request is set
	timing   bool      // ReadTimeout runs for this request
	used     bool      // a request was handed on or refused
	done     bool      // no further request is read
	unread   bool      // bytes were left unread on purpose

	readSocket func(fd uintptr) bool // readFD, kept to save making it anew
	n          int                   // result of readFD
	errno      error                 // result of readFD
}

var _ net.Conn = (*Conn)(nil)

// NetConn returns the wrapped connection.
func (c *Conn) NetConn() net.Conn { return c.Conn }

// Values of Conn.idle besides times, which are positive.
const (
	busy    = 0  // a request is being answered
	claimed = -1 // ClaimIdle has claimed the connection
)

// IdleSince returns when the wait for a request began, or when the first byte of one that is not
// complete came. Times of Conns of one Guard can be compared. ok is false while a request is
// answered.
func (c *Conn) IdleSince() (since time.Duration, ok bool) {
	at := c.idle.Load()
	return time.Duration(at), at > 0
}

// ClaimIdle claims a connection that has been idle since then for its caller, who closes it:
// closing cuts no answer, and no request is handed on any more. It is false when a request has come
// meanwhile.
func (c *Conn) ClaimIdle(since time.Duration) bool {
	return since > 0 && c.idle.CompareAndSwap(int64(since), claimed)
}

// markIdle sets the beginning of the wait, except on a connection that is taken.
func (c *Conn) markIdle(now time.Time) {
	if was := c.idle.Load(); was != claimed {
		c.idle.CompareAndSwap(was, max(int64(now.Sub(c.g.began)), 1))
	}
}

// markBusy ends the wait. It is false when ClaimIdle was first.
func (c *Conn) markBusy() bool {
	was := c.idle.Load()
	return was != claimed && c.idle.CompareAndSwap(was, busy)
}

// Read copies the rest of the head that is being handed out to p, or reads
// and checks the next request first when there is none. It returns io.EOF when
// the client has left, has been idle for too long, or was refused; the
// rejection is written by then. Other errors do not occur.
func (c *Conn) Read(p []byte) (n int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer func() {
		if v := recover(); v != nil {
			panics.Report(v, "reading a request")
			c.done, c.pending = true, nil
			n, err = 0, io.EOF
		}
	}()
	if len(p) == 0 {
		return 0, nil
	}
	if len(c.pending) == 0 && !c.next() {
		c.release()
		return 0, io.EOF
	}
	n = copy(p, c.pending)
	c.pending = c.pending[n:]
	if len(c.pending) == 0 {
		c.release()
	}
	return n, nil
}

// release gives back the buffers that hold nothing any more.
func (c *Conn) release() {
	c.g.put(&c.out)
	if c.done {
		c.unread = c.unread || c.r < c.w
		c.r = c.w
	}
	if c.r == c.w {
		c.r, c.w = 0, 0
		c.g.put(&c.in)
	}
}

// next reads the next request and makes its head pending. It reports false
// when there is no further one.
func (c *Conn) next() bool {
	if c.done || c.closed.Load() {
		c.done = true
		return false
	}
	c.idling, c.timing = false, false
	c.head = head{}
	err := c.readHead()
	if err == nil {
		err = c.takeHead()
	}
	if !c.markBusy() {
		c.done, c.pending = true, nil
		return false
	}
	if err == nil {
		c.used = true
		return true
	}
	c.done = true
	if e, ok := err.(*Error); ok {
		if e.Line == nil && c.in != nil {
			e.Line = firstLine(c.in.b[c.r:c.w])
		}
		c.reject(e)
	}
	return false
}

// readHead reads until c.head is complete at in.b[r:]. After an error other than *Error there is no
// client to answer.
func (c *Conn) readHead() error {
	for {
		if c.r < c.w {
			if err := c.skipBlankLines(); err != nil {
				return err
			}
		}
		if c.r < c.w {
			done, err := c.head.feed(c.in.b[c.r:c.w])
			if err != nil {
				return err
			}
			if done {
				return nil
			}
		}
		if err := c.fill(); err != nil {
			return c.readFailed(err, "request head")
		}
	}
}

// skipBlankLines drops empty lines in front of a request line (RFC 9112
// section 2.2): some clients send one behind a body.
func (c *Conn) skipBlankLines() error {
	if c.head.scan > 0 {
		return nil // within a request line
	}
	for b := c.in.b[c.r:c.w]; len(b) > 0; b = c.in.b[c.r:c.w] {
		switch {
		case b[0] == '\n':
			c.r++
		case b[0] == '\r' && len(b) == 1:
			return nil // perhaps half of a line end
		case b[0] == '\r' && b[1] == '\n':
			c.r += 2
		default:
			return nil
		}
		if c.head.blanks++; c.head.blanks > maxBlankLines {
			return badRequest("too many empty lines before the request line")
		}
	}
	return nil
}

// takeHead consumes the complete head at in.b[r:], reads the body that
// belongs to it, and makes the head, as it came or written anew, pending.
func (c *Conn) takeHead() error {
	h := &c.head
	b := c.in.b[c.r : c.r+h.end]
	c.r += h.end
	if h.expect100 && h.body.kind != bodyNone && c.r == c.w {
		// The client waits for 100 (Continue) before it sends the body. The body is not needed, so
		// it gets the final answer instead (RFC 9110 section 10.1.1); the connection ends with it,
		// for the client may send the body all the same.
		h.last, h.rewrite, h.body.kind, c.unread = true, true, bodyNone, true
	}
	if h.last {
		c.done = true
	}
	if !h.rewrite {
		c.pending = b
		return nil
	}
	c.out = c.g.take(&c.g.large)
	c.pending = h.appendCanonical(c.out.b[:0], b)
	if err := c.discardBody(); err != nil {
		if e, ok := err.(*Error); ok {
			e.Line = firstLine(c.pending)
		}
		c.pending = nil
		return err
	}
	return nil
}

// fill reads once from the network behind in.b[:w] and makes room for it.
func (c *Conn) fill() error {
	if c.r == c.w {
		c.r, c.w = 0, 0
	} else if c.w == len(c.in.b) {
		c.makeRoom()
	}
	if err := c.setDeadline(); err != nil {
		return err
	}
	n, err := c.readSome()
	c.w += n
	if n > 0 {
		return nil
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return err
}

// makeRoom moves a partial head to the front of its buffer, or to a large
// buffer, which has room for any head that is not refused.
func (c *Conn) makeRoom() {
	b := c.in.b[c.r:c.w]
	if c.r > 0 {
		c.w = copy(c.in.b, b)
		c.r = 0
		return
	}
	if len(c.in.b) != smallBuffer {
		panic("BUG: guard: a head outgrew the large buffer")
	}
	in := c.g.take(&c.g.large)
	c.w = copy(in.b, b)
	c.g.put(&c.in)
	c.in = in
}

// setDeadline sets the read deadline of the current wait. While a request is under way its deadline
// stays as it was at its first byte: a client that sends single bytes cannot extend it.
func (c *Conn) setDeadline() error {
	if c.timing {
		return nil
	}
	d := c.g.opts.IdleTimeout
	if c.r < c.w || c.head.end > 0 {
		c.timing = true
		d = c.g.opts.ReadTimeout
	} else if c.idling {
		return nil // empty lines do not renew the idle time
	} else {
		if !c.used {
			d = c.g.opts.ReadTimeout
		}
		if c.g.opts.MaxIdle != nil {
			d = min(d, c.g.opts.MaxIdle())
		}
	}
	c.idling = true
	now := time.Now()
	c.markIdle(now)
	return c.readUntil(now, d)
}

// readUntil sets a deadline d from now, except where the one that is set
// already is nearly the same: on a busy connection that saves a timer a
// request.
func (c *Conn) readUntil(now time.Time, d time.Duration) error {
	want := now.Add(d)
	slack := min(time.Second, d/8)
	if diff := want.Sub(c.deadline); -slack <= diff && diff <= slack {
		return nil
	}
	c.deadline = want
	return c.Conn.SetReadDeadline(want)
}

// readSome reads at least one byte to in.b[w:], taking a buffer when there is
// none. On a socket the buffer is taken only when there is something to read.
func (c *Conn) readSome() (int, error) {
	if c.raw == nil {
		if c.in == nil {
			c.in = c.g.take(&c.g.small)
		}
		return c.Conn.Read(c.in.b[c.w:])
	}
	c.n, c.errno = 0, nil
	if err := c.raw.Read(c.readSocket); err != nil {
		return 0, err
	}
	if c.n == 0 && c.errno == nil {
		return 0, io.EOF
	}
	return c.n, c.errno
}

// readFD is called by RawConn.Read; false means: call again when there is
// something to read.
func (c *Conn) readFD(fd uintptr) bool {
	if c.in == nil {
		c.in = c.g.take(&c.g.small)
	}
	c.n, c.errno = sys.ReadNoWait(fd, c.in.b[c.w:])
	if c.errno != syscall.EAGAIN {
		return true
	}
	if c.w == 0 {
		c.g.put(&c.in)
	}
	return false
}

// readFailed turns a failed read into a refusal where there is a request to
// refuse, and returns err itself where there is none.
func (c *Conn) readFailed(err error, what string) error {
	if c.r == c.w && c.head.end == 0 {
		return err
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &Error{Status: 408, Reason: what + " did not arrive in time", Err: err}
	case errors.Is(err, io.EOF):
		return &Error{Status: 400, Reason: what + " is incomplete", Err: io.ErrUnexpectedEOF}
	}
	return err
}
