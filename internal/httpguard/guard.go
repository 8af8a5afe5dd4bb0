package httpguard

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Sizes and limits that have no option: operators do not need to change them.
const (
	smallBuffer = 4 << 10 // first buffer of a request; nearly every head fits
	headSlack   = 64      // what a canonical head may be longer than its original, besides line ends

	maxMethod     = 32                                // longer than any registered method
	lineOverhead  = maxMethod + len("  HTTP/1.1\r\n") // request line without its target
	maxBlankLines = 8                                 // empty lines before a request line
)

// Options sets the bounds of a Guard. The zero value of each field means the
// default that is named beside it.
type Options struct {
	// MaxTarget bounds the request target in bytes; a longer one is answered
	// with 414. Default 8 KiB.
	MaxTarget int

	// MaxHead bounds a whole head in bytes, from the request line to the
	// empty line; a longer one is answered with 431. Default 16 KiB.
	MaxHead int

	// MaxFields bounds the number of header field lines, and that of trailer
	// field lines; more are answered with 431. Default 100.
	MaxFields int

	// MaxDiscard bounds a request body in bytes; a longer one is answered
	// with 413 without reading it. Default 64 KiB.
	MaxDiscard int64

	// ReadTimeout is the time for a whole request, head and body, from its
	// first byte; it ends in 408. Default 10s.
	ReadTimeout time.Duration

	// IdleTimeout is the time between two requests on a connection; it ends
	// in closing without an answer. Default 75s.
	IdleTimeout time.Duration

	// MaxIdle, when not nil, bounds both times for which a connection may be
	// idle, between requests and before the first one; it is called when such a time begins.
	MaxIdle func() time.Duration

	// OnRefuse, when not nil, is called for each refused request after the answer was written, for
	// the access log and metrics. It runs on the goroutine that reads the connection and must not
	// use it otherwise than for its addresses.
	OnRefuse func(conn net.Conn, e *Error)
}

func (o Options) withDefaults() Options {
	setDefault(&o.MaxTarget, 8<<10)
	setDefault(&o.MaxHead, 16<<10)
	setDefault(&o.MaxFields, 100)
	setDefault(&o.MaxDiscard, 64<<10)
	setDefault(&o.ReadTimeout, 10*time.Second)
	setDefault(&o.IdleTimeout, 75*time.Second)
	return o
}

func setDefault[T int | int64 | time.Duration](v *T, def T) {
	if *v <= 0 {
		*v = def
	}
}

// maxLine is the longest request line with its line end, in bytes.
func (o *Options) maxLine() int { return o.MaxTarget + lineOverhead }

// maxInput is the most of a head that can lie in a buffer before it is
// either complete or refused, in bytes.
func (o *Options) maxInput() int { return max(o.MaxHead, o.maxLine()) }

// Guard makes Conns that share limits and buffers. It is safe for concurrent
// use. Use New to make one.
type Guard struct {
	opts  Options
	began time.Time // the clock of IdleSince counts from here
	small sync.Pool // of *buffer with smallBuffer bytes
	large sync.Pool // of *buffer with room for the longest head

	held atomic.Int64 // buffers that are out of the pools
}

// New returns a Guard with the bounds of opts.
func New(opts Options) *Guard {
	g := &Guard{opts: opts.withDefaults(), began: time.Now()}
	size := g.ReadBufferSize()
	g.small.New = func() any { return &buffer{b: make([]byte, smallBuffer), pool: &g.small} }
	g.large.New = func() any { return &buffer{b: make([]byte, size), pool: &g.large} }
	return g
}

// ReadBufferSize returns the size in bytes of the longest head that a Conn of
// this Guard hands out: the server's own read buffer must be at least as big.
func (g *Guard) ReadBufferSize() int {
	lines := g.opts.MaxFields + 2 // LF becomes CR LF
	return max(g.opts.maxInput()+lines+headSlack, 2*smallBuffer)
}

// Buffers returns how many buffers are in use at the moment.
func (g *Guard) Buffers() int { return int(g.held.Load()) }

// Wrap returns a guarded connection. When conn gives access to its socket
// (it has SyscallConn, as *net.TCPConn and *net.UnixConn do), reading goes
// through that, so that waiting needs no buffer: a wrapper whose own Read
// method must be called has to hide SyscallConn.
func (g *Guard) Wrap(conn net.Conn) *Conn {
	c := &Conn{Conn: conn, g: g, raw: rawConn(conn)}
	c.markIdle(time.Now())
	if c.raw != nil {
		c.readSocket = c.readFD
	}
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

// put gives *b back to its pool and forgets it; an empty *b is left alone.
func (g *Guard) put(b **buffer) {
	if *b == nil {
		return
	}
	g.held.Add(-1)
	(*b).pool.Put(*b)
	*b = nil
}
