package guard

import (
	"cmp"
	"crypto/tls"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// MaxFields is the number of header field lines that a request may have, and of trailer field
// lines: more are 431.
const MaxFields = 100

// Other limits of a request, with the status of a request that exceeds them.
const (
	maxTarget     = 8 << 10  // bytes of the target: 414
	maxHead       = 16 << 10 // bytes of a head, from the request line to the empty line: 431
	maxDiscard    = 64 << 10 // bytes of a body: 413, as soon as its length or a chunk size exceeds it
	maxMethod     = 32       // longer than any registered method: 501
	maxBlankLines = 8        // empty lines before a request line: 400

	maxLine = maxMethod + maxTarget + len("  HTTP/1.1\r\n") // the request line: 414
)

const smallBuffer = 4 << 10 // first buffer of a request; nearly every head fits

// ReadBufferSize bounds the length of a head of a Conn in bytes: the read buffer of the server must
// be at least as large. A canonical head may be longer than the original, since LF becomes CR LF,
// and Host and Connection fields are added.
const ReadBufferSize = maxHead + MaxFields + 64

// Options configure a Guard. The zero value of each field is its documented default.
type Options struct {
	// ReadTimeout is the time for a whole request, head and body, from its
	// first byte; it ends in 408. Default 10s.
	ReadTimeout time.Duration

	// IdleTimeout is the time between two requests on a connection, which is then closed without a
	// response. Default 75s.
	IdleTimeout time.Duration

	// OnReject, when not nil, is called for each rejected request after the response was written,
	// for the access log and metrics. It runs on the goroutine that reads the connection, and may
	// use only the addresses of conn.
	OnReject func(conn net.Conn, e *Error)

	// Page, when not nil, returns the body for a status and its content type; nil = Error.Reason.
	Page func(status int) (body []byte, contentType string)
}

// Guard makes Conns that share timeouts and buffers. It is safe for concurrent use. Use New to make
// one.
type Guard struct {
	opts  Options
	began time.Time // zero of the clock of IdleSince
	small sync.Pool // of *buffer with smallBuffer bytes
	large sync.Pool // of *buffer with ReadBufferSize bytes

	held atomic.Int64 // buffers that are out of the pools
}

// New returns a Guard with the timeouts of opts.
func New(opts Options) *Guard {
	opts.ReadTimeout = cmp.Or(opts.ReadTimeout, 10*time.Second)
	opts.IdleTimeout = cmp.Or(opts.IdleTimeout, 75*time.Second)
	g := &Guard{opts: opts, began: time.Now()}
	g.small.New = func() any { return &buffer{b: make([]byte, smallBuffer), pool: &g.small} }
	g.large.New = func() any { return &buffer{b: make([]byte, ReadBufferSize), pool: &g.large} }
	return g
}

// Wrap returns a guarded connection. A Socket is read only when it is readable, so that a waiting
// connection needs no buffer.
func (g *Guard) Wrap(conn net.Conn) *Conn {
	c := &Conn{Conn: conn, below: conn, g: g}
	c.markIdle(time.Now())
	c.socket, _ = conn.(Socket)
	if secure, ok := conn.(*tls.Conn); ok {
		c.below = secure.NetConn()
	}
	c.sender, _ = c.below.(Sender)
	return c
}

// buffer is pooled by pointer, so that putting it back allocates nothing.
type buffer struct {
	b    []byte
	pool *sync.Pool
}

func (g *Guard) take(pool *sync.Pool) *buffer {
	g.held.Add(1)
	return pool.Get().(*buffer)
}

// put returns *b to its pool and sets it to nil. A nil *b has no effect.
func (g *Guard) put(b **buffer) {
	if *b == nil {
		return
	}
	g.held.Add(-1)
	(*b).pool.Put(*b)
	*b = nil
}
