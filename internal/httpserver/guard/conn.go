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
)

// Conn is a net.Conn whose Read returns canonical request heads, with the guarantees of the package
// comment. Writes go directly to the wrapped connection. One goroutine at a time may call Read; any
// may call Close.
type Conn struct {
	net.Conn // the wrapped connection

	g      *Guard
	below  net.Conn // below TLS if Conn is a tls.Conn, else Conn
	socket Socket   // nil if the wrapped connection is no Socket
	sender Sender   // nil if below is no Sender
	park   bool     // set by Park
	closed atomic.Bool
	idle   atomic.Int64 // start of the wait for a request, in ns of the guard's clock; or busy, or claimed

	// mu guards the fields below. Read holds it all the time, also while it waits for the network;
	// Close only tries to take it.
	mu sync.Mutex

	in      *buffer // nil, or bytes read from the network
	r, w    int     // in.b[r:w] is not consumed yet
	out     *buffer // nil, or a rewritten head
	pending []byte  // the rest of the current head, part of in or out

	head     head      // of the request that is being read
	deadline time.Time // the current read deadline of the connection
	idling   bool      // the deadline for waiting for this request is set
	timing   bool      // ReadTimeout runs for this request
	used     bool      // a request was passed on or rejected
	done     bool      // no further request is read
	final    bool      // the head of the last request announced that no further one follows
	unread   bool      // bytes were left unread on purpose
	parked   bool      // the last call returned because no request had begun, see Park
}

// Socket is a connection that can be read without waiting, such as an eventloop.Conn.
type Socket interface {
	Readable() bool                // ReadNow may return anything but EAGAIN
	ReadNow(p []byte) (int, error) // the error is EAGAIN if no bytes can be read
	AwaitInput() error             // waits until Readable
}

// Sender is a connection that knows its client, such as a sendfile.Conn. Close need not wait for a
// client that was dropped, nor, after few bytes, for one that takes them. Behind any other
// connection, Close lingers only if bytes were left unread on purpose.
type Sender interface {
	Abandoned() bool       // the client was dropped
	Brief() bool           // few bytes were written
	Unacknowledged() int64 // bytes that the client's host does not have
	HasInput() bool        // the socket holds unread bytes
}

// Park makes Next and Read return where they would wait for the first byte of a request. Parked
// returns true then, and the next call of Next or Read continues. Park is called before all other
// methods, on a Conn that wraps a Socket.
func (c *Conn) Park() { c.park = true }

// Parked reports whether the last call of Next or Read returned because no request had begun. Only
// the reader may call it.
func (c *Conn) Parked() bool { return c.parked }

var _ net.Conn = (*Conn)(nil)

// Values of Conn.idle besides times, which are positive.
const (
	busy    = 0  // a request is being served
	claimed = -1 // ClaimIdle has claimed the connection
)

// IdleSince returns the start of the wait for a request, or the arrival of the first byte of an
// incomplete one. Times of Conns of one Guard are comparable. ok is false while a request is
// served.
func (c *Conn) IdleSince() (since time.Duration, ok bool) {
	at := c.idle.Load()
	return time.Duration(at), at > 0
}

// IdleFor returns the time since the wait for a request began; 0 while one is served.
func (c *Conn) IdleFor() time.Duration {
	at := c.idle.Load()
	if at <= 0 {
		return 0
	}
	return max(time.Since(c.g.began)-time.Duration(at), 1)
}

// ClaimIdle claims the connection for the caller, which closes it, if it has been idle since the
// time that IdleSince returned: no response is cut, and no further request is passed on. It returns
// false if a request has arrived meanwhile.
func (c *Conn) ClaimIdle(since time.Duration) bool {
	return since > 0 && c.idle.CompareAndSwap(int64(since), claimed)
}

// MarkIdle begins a wait for a request, for a server that reads the wrapped connection itself.
func (c *Conn) MarkIdle() { c.markIdle(time.Now()) }

// markIdle sets the beginning of the wait, except on a claimed connection.
func (c *Conn) markIdle(now time.Time) {
	if was := c.idle.Load(); was != claimed {
		c.idle.CompareAndSwap(was, max(int64(now.Sub(c.g.began)), 1))
	}
}

// MarkBusy ends the wait for a request; false if ClaimIdle was first.
func (c *Conn) MarkBusy() bool {
	was := c.idle.Load()
	return was != claimed && c.idle.CompareAndSwap(was, busy)
}

// Next reads and checks the next request, unless the head of one is pending, and reports whether
// Read returns a head now. If not, the client has disconnected, was idle for too long, or was
// rejected, with the response written; or no request has begun, see Park.
func (c *Conn) Next() (ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.await()
}

// await is Next with mu held.
func (c *Conn) await() (ok bool) {
	defer func() {
		if v := recover(); v != nil {
			panics.Report(v, "reading a request")
			c.done, c.pending, ok = true, nil, false
		}
		if !ok {
			c.releaseBuffers()
		}
	}()
	return len(c.pending) > 0 || c.next()
}

// Read copies the rest of the current head to p. Without a rest it first reads the next request, as
// Next does. The only error is io.EOF, for each case in which Next returns false.
func (c *Conn) Read(p []byte) (n int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(p) == 0 {
		return 0, nil
	}
	if !c.await() {
		return 0, io.EOF
	}
	n = copy(p, c.pending)
	c.pending = c.pending[n:]
	if len(c.pending) == 0 {
		c.releaseBuffers()
	}
	return n, nil
}

// releaseBuffers returns empty buffers to their pools.
func (c *Conn) releaseBuffers() {
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

// next reads the next request and makes its head pending; false if there is none.
func (c *Conn) next() bool {
	c.idling, c.timing, c.parked = c.parked, false, false
	if c.done || c.closed.Load() {
		c.done = true
		return false
	}
	c.head = head{}
	err := c.readHead()
	if err == errNoRequest {
		c.parked = true
		return false
	}
	if err == nil {
		err = c.takeHead()
	}
	if !c.MarkBusy() {
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

// readHead reads until c.head is complete at in.b[r:]. An error other than *Error has no response.
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

// skipBlankLines drops empty lines before a request line (RFC 9112 section 2.2): some clients send
// one after a body.
func (c *Conn) skipBlankLines() error {
	if c.head.scan > 0 {
		return nil // within a request line
	}
	for b := c.in.b[c.r:c.w]; len(b) > 0; b = c.in.b[c.r:c.w] {
		switch {
		case b[0] == '\n':
			c.r++
		case b[0] == '\r' && len(b) == 1:
			return nil // perhaps the first half of a line end
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

// takeHead consumes the complete head at in.b[r:] and its body, and makes the head, rewritten if
// necessary, pending.
func (c *Conn) takeHead() error {
	h := &c.head
	b := c.in.b[c.r : c.r+h.end]
	c.r += h.end
	if h.expect100 && h.body.kind != bodyNone && c.r == c.w {
		// The client waits for 100 (Continue) before it sends the body. No body is needed, so the
		// client gets the final response (RFC 9110 section 10.1.1). The connection ends after it,
		// since the client may send the body nevertheless.
		h.last, h.rewrite, h.body.kind, c.unread = true, true, bodyNone, true
	}
	c.done, c.final = c.done || h.last, h.close || h.http10 && !h.keep
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

// fill reads at least one byte from the network to in.b[w:], after making room.
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

// makeRoom moves a partial head to the start of its buffer, or to a large buffer, which has room
// for every valid head.
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

// setDeadline sets the read deadline of the current wait. The deadline of a request is set once,
// after its first bytes: a client that sends single bytes cannot extend it.
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
	} else if !c.used {
		d = c.g.opts.ReadTimeout
	}
	c.idling = true
	now := time.Now()
	c.markIdle(now)
	return c.readUntil(now, d)
}

// readUntil sets a deadline d from now, unless the current one differs from it by at most an eighth
// of d and a second: this saves a timer per request on a busy connection.
func (c *Conn) readUntil(now time.Time, d time.Duration) error {
	want := now.Add(d)
	slack := min(time.Second, d/8)
	if diff := want.Sub(c.deadline); -slack <= diff && diff <= slack {
		return nil
	}
	c.deadline = want
	return c.Conn.SetReadDeadline(want)
}

// errNoRequest is the error of a read that would wait for the first byte of a request.
var errNoRequest = errors.New("no request has begun")

// readSome reads once to in.b[w:], and takes a buffer if c has none. For a Socket it takes the
// buffer only when the socket is readable. After Park it returns errNoRequest in place of a wait
// for the first byte of a request.
func (c *Conn) readSome() (int, error) {
	for {
		if c.socket != nil && !c.socket.Readable() {
			if c.park && c.r == c.w && c.head.end == 0 && c.head.blanks == 0 {
				return 0, errNoRequest
			}
			if c.w == 0 {
				c.g.put(&c.in)
			}
			if err := c.socket.AwaitInput(); err != nil {
				return 0, err
			}
		}
		if c.in == nil {
			c.in = c.g.take(&c.g.small)
		}
		if c.socket == nil {
			return c.Conn.Read(c.in.b[c.w:])
		}
		n, err := c.socket.ReadNow(c.in.b[c.w:])
		if err != syscall.EAGAIN {
			return n, err
		}
	}
}

// readFailed returns an *Error if part of a request has arrived and the deadline has passed or the
// input has ended, and err otherwise.
func (c *Conn) readFailed(err error, what string) error {
	if c.r == c.w && c.head.end == 0 {
		return err
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &Error{Status: 408, Reason: what + " did not arrive in time"}
	case errors.Is(err, io.EOF):
		return &Error{Status: 400, Reason: what + " is incomplete"}
	}
	return err
}
