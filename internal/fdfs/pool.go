package fdfs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"fastdfs-gateway/internal/i18n"
	"fastdfs-gateway/internal/process/sys"

	"golang.org/x/sys/unix"
)

// PoolOptions bound the connections to one server. The zero value of each field means its default.
type PoolOptions struct {
	MaxOpen     int           // connections in use; further requests wait; default 64
	MaxWaiting  int           // requests that wait for a connection; further ones fail; default 1024
	MaxIdle     int           // idle connections that are kept; default 8
	IdleTimeout time.Duration // after which an idle connection is closed; default 60 s
	// ConnectTimeout bounds a connection attempt, and the time until the host of a connection
	// acknowledges a request: a host that was switched off does neither. Default 5 s.
	ConnectTimeout time.Duration
	NetworkTimeout time.Duration // for each read and write; default 30 s
	// Lost is called when a request has failed on an idle connection, after the Pool has closed the
	// other ones. It closes those in further Pools of the same server. Default: nothing.
	Lost func()
}

func (o PoolOptions) withDefaults() PoolOptions {
	o.MaxOpen = cmp.Or(max(o.MaxOpen, 0), 64)
	o.MaxWaiting = cmp.Or(max(o.MaxWaiting, 0), 1024)
	o.MaxIdle = cmp.Or(max(o.MaxIdle, 0), 8)
	o.IdleTimeout = cmp.Or(max(o.IdleTimeout, 0), time.Minute)
	o.ConnectTimeout = cmp.Or(max(o.ConnectTimeout, 0), 5*time.Second)
	o.NetworkTimeout = cmp.Or(max(o.NetworkTimeout, 0), 30*time.Second)
	return o
}

// Pool has the connections to one tracker or storage. It is safe for concurrent use.
//
//	reply, err := pool.Call(ctx, fdfs.CmdFileInfo, 0, fdfs.AppendFile(nil, id), 128)
//
// A connection returns to the pool only after a complete reply, else it is closed. An idle
// connection is tested by peeking at the socket before it is used; a request that fails on it
// before the first byte of the reply, other than by the network timeout, is repeated on another
// connection. The other idle connections are closed before: after the server has moved, or a
// firewall on the way has lost its state, each of them would cost the time for which the kernel
// waits for an acknowledgement.
type Pool struct {
	addr  string
	o     PoolOptions
	limit *Limit // of the connections in use

	mu     sync.Mutex // guards the fields below
	idle   []*Conn    // the longest idle first
	closed bool
}

// ErrFull means that all connections to a server are in use, and either too many requests wait or
// none became free within the connect timeout, or before the context ended.
var ErrFull = errors.New("all connections are in use")

// ErrClosed means that the Pool is closed.
var ErrClosed = errors.New("connection pool is closed")

// maxErrorBody bounds the body of a reply with a status other than 0 that is read in order to keep
// the connection.
const maxErrorBody = 4096

// NewPool returns a pool for the server at addr, host:port. It makes no connection yet.
func NewPool(addr string, o PoolOptions) *Pool {
	o = o.withDefaults()
	return &Pool{addr: addr, o: o, limit: NewLimit(o)}
}

// Addr returns the server's address.
func (p *Pool) Addr() string { return p.addr }

// Close closes idle connections. Busy ones are closed when they are released.
func (p *Pool) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.CloseIdle()
}

// CloseIdle closes idle connections.
func (p *Pool) CloseIdle() {
	p.mu.Lock()
	idle := p.idle
	p.idle = nil
	p.mu.Unlock()
	for _, c := range idle {
		c.quit()
	}
}

// Sweep closes connections that have been idle for too long. The owner calls it from time to time.
func (p *Pool) Sweep(now time.Time) {
	var old []*Conn
	p.mu.Lock()
	for len(p.idle) > 0 && now.Sub(p.idle[0].since) > p.o.IdleTimeout {
		old, p.idle = append(old, p.idle[0]), p.idle[1:]
	}
	p.mu.Unlock()
	for _, c := range old {
		c.quit()
	}
}

// Call sends a request and returns the body of the reply. A status other than 0 is a StatusError,
// a body of more than limit bytes ErrProtocol.
func (p *Pool) Call(ctx context.Context, cmd Command, flags byte, body []byte, limit int64) ([]byte, error) {
	c, h, err := p.Request(ctx, cmd, flags, body)
	if err != nil {
		return nil, err
	}
	defer c.Release()
	if h.Length > limit {
		return nil, fmt.Errorf("%w: %s promises %d bytes for command %d, at most %d are expected", ErrProtocol, p.addr,
			h.Length, cmd, limit)
	}
	reply := make([]byte, h.Length)
	if _, err := io.ReadFull(c, reply); err != nil {
		return nil, i18n.Errorf("cannot read the reply of %s: %w", p.addr, err)
	}
	return reply, nil
}

// Request sends a request and reads the header of the reply. The caller reads the body from the
// connection and then calls Release. With a status other than 0 the error is a StatusError, and
// there is no connection.
func (p *Pool) Request(ctx context.Context, cmd Command, flags byte, body []byte) (*Conn, Header, error) {
	for {
		c, reused, err := p.get(ctx)
		if err != nil {
			return nil, Header{}, err
		}
		h, err := c.exchange(cmd, flags, body)
		if err == nil && h.Status == 0 {
			return c, h, nil
		}
		if err == nil {
			if h.Length <= maxErrorBody {
				_, _ = io.CopyN(io.Discard, c, h.Length) // on failure Release closes the connection
			}
			c.Release()
			return nil, h, StatusError(h.Status)
		}
		c.broken = true
		c.Release()
		if ctx.Err() != nil {
			return nil, h, i18n.Errorf("cannot ask %s: %w", p.addr, context.Cause(ctx))
		}
		if !reused || c.replied || errors.Is(err, os.ErrDeadlineExceeded) {
			return nil, h, i18n.Errorf("cannot ask %s: %w", p.addr, err)
		}
		p.CloseIdle()
		if p.o.Lost != nil {
			p.o.Lost()
		}
	}
}

// get returns an idle connection, or a new one if there is none.
func (p *Pool) get(ctx context.Context) (c *Conn, reused bool, err error) {
	if ctx.Err() != nil {
		return nil, false, i18n.Errorf("cannot ask %s: %w", p.addr, context.Cause(ctx))
	}
	if err := p.limit.Acquire(ctx); err != nil {
		return nil, false, i18n.Errorf("cannot get a connection to %s: %w", p.addr, err)
	}
	c, err = p.takeIdle()
	for c != nil && !c.usable() {
		_ = c.conn.Close() // it is broken or too old
		c, err = p.takeIdle()
	}
	if reused = c != nil; !reused && err == nil {
		c, err = p.dial(ctx)
	}
	if err != nil {
		p.limit.Release()
		return nil, false, err
	}
	c.beginRequest(ctx)
	return c, reused, nil
}

// Limit bounds the requests to one server that use a connection. It is safe for concurrent use.
type Limit struct {
	o       PoolOptions
	used    chan struct{} // holds one value for each connection in use
	waiting atomic.Int64  // requests that wait for a connection
}

// NewLimit returns a limit by MaxOpen, MaxWaiting and ConnectTimeout.
func NewLimit(o PoolOptions) *Limit {
	o = o.withDefaults()
	return &Limit{o: o, used: make(chan struct{}, o.MaxOpen)}
}

// Acquire waits until the caller may use a connection. The use ends with Release. The error is
// ErrFull.
func (l *Limit) Acquire(ctx context.Context) error {
	select {
	case l.used <- struct{}{}:
		return nil
	default:
	}
	defer l.waiting.Add(-1)
	if l.waiting.Add(1) > int64(l.o.MaxWaiting) {
		return ErrFull
	}
	wait := time.NewTimer(l.o.ConnectTimeout)
	defer wait.Stop()
	select {
	case l.used <- struct{}{}:
		return nil
	case <-wait.C:
		return ErrFull
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrFull, context.Cause(ctx))
	}
}

// Release ends the use of a connection.
func (l *Limit) Release() { <-l.used }

// dial makes a connection. It replaces the timeout error of the net package, which is
// context.DeadlineExceeded: from a Pool that error means that the context of the caller has ended.
func (p *Pool) dial(ctx context.Context) (*Conn, error) {
	dialer := net.Dialer{Timeout: p.o.ConnectTimeout}
	conn, err := dialer.DialContext(ctx, "tcp", p.addr)
	var timeout net.Error
	switch {
	case err == nil:
		c := &Conn{pool: p, conn: conn.(*net.TCPConn)}
		if err := sys.SetUserTimeout(c.conn, p.o.ConnectTimeout); err != nil {
			_ = conn.Close() // nothing was sent
			return nil, i18n.Errorf("cannot connect to %s: %w", p.addr, err)
		}
		return c, nil
	case ctx.Err() != nil:
		return nil, i18n.Errorf("cannot connect to %s: %w", p.addr, context.Cause(ctx))
	case errors.As(err, &timeout) && timeout.Timeout():
		return nil, i18n.Errorf("cannot connect to %s within %v: %w", p.addr, p.o.ConnectTimeout,
			os.ErrDeadlineExceeded)
	}
	return nil, i18n.Errorf("cannot connect: %w", err) // err contains the address
}

// takeIdle returns the most recently used connection, nil if there is none.
func (p *Pool) takeIdle() (*Conn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, ErrClosed
	}
	if len(p.idle) == 0 {
		return nil, nil
	}
	c := p.idle[len(p.idle)-1]
	p.idle = p.idle[:len(p.idle)-1]
	return c, nil
}

// Conn is a connection during one request and its reply. Only one goroutine may use it.
type Conn struct {
	pool    *Pool
	conn    *net.TCPConn
	since   time.Time // begin of the idle time
	left    int64     // unread bytes of the reply
	replied bool      // a byte of the reply has been received
	broken  bool
	ctx     context.Context // of the request: Read has no such parameter
	stop    func() bool     // ends the watch of ctx
}

// beginRequest closes the connection when ctx ends, so that reads and writes fail at once.
func (c *Conn) beginRequest(ctx context.Context) {
	c.left, c.replied, c.broken, c.ctx = 0, false, false, ctx
	c.stop = context.AfterFunc(ctx, func() { _ = c.conn.Close() })
}

// exchange sends a request and reads the header of the reply.
func (c *Conn) exchange(cmd Command, flags byte, body []byte) (Header, error) {
	packet := Header{Length: int64(len(body)), Command: cmd,
		Status: flags}.AppendTo(make([]byte, 0, HeaderSize+len(body)))
	if err := c.conn.SetWriteDeadline(time.Now().Add(c.pool.o.NetworkTimeout)); err != nil {
		return Header{}, err
	}
	if _, err := c.conn.Write(append(packet, body...)); err != nil {
		return Header{}, err
	}
	var head [HeaderSize]byte
	c.left = HeaderSize
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return Header{}, err
	}
	h, err := ParseReply(head)
	if err != nil {
		c.broken = true
		return h, err
	}
	c.left = h.Length
	return h, nil
}

// Read reads from the body of the reply. It returns io.EOF at the end, io.ErrUnexpectedEOF if the
// server closes the connection before, the cause of the context if that has ended, and
// os.ErrDeadlineExceeded if nothing was received for the network timeout.
func (c *Conn) Read(b []byte) (int, error) {
	if c.left == 0 {
		return 0, io.EOF
	}
	if err := c.conn.SetReadDeadline(time.Now().Add(c.pool.o.NetworkTimeout)); err != nil {
		return 0, c.fail(err)
	}
	n, err := c.conn.Read(b[:min(int64(len(b)), c.left)])
	c.left -= int64(n)
	c.replied = c.replied || n > 0
	if err != nil {
		return n, c.fail(err)
	}
	return n, nil
}

// fail marks the connection as broken and returns the cause.
func (c *Conn) fail(err error) error {
	c.broken = true
	if c.ctx.Err() != nil {
		return context.Cause(c.ctx)
	}
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// Release returns the connection to the pool. Call it once; the connection must not be used
// afterwards. If the reply was not read completely, the connection is closed.
func (c *Conn) Release() {
	p := c.pool
	defer p.limit.Release()
	if canceled := !c.stop(); c.broken || canceled || c.left > 0 {
		_ = c.conn.Close() // its reply is not needed
		return
	}
	c.since, c.ctx = time.Now(), nil
	p.mu.Lock()
	keep := !p.closed && len(p.idle) < p.o.MaxIdle
	if keep {
		p.idle = append(p.idle, c)
	}
	p.mu.Unlock()
	if !keep {
		c.quit()
	}
}

// quit sends CmdQuit, as FastDFS clients do, and closes the connection.
func (c *Conn) quit() {
	_ = c.conn.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = c.conn.Write(Header{Command: CmdQuit}.AppendTo(nil)) // optional
	_ = c.conn.Close()
}

// usable reports whether an idle connection can be used: it is not too old, the server has not
// closed it, and there are no unexpected bytes to read.
func (c *Conn) usable() bool {
	if time.Since(c.since) > c.pool.o.IdleTimeout || c.conn.SetDeadline(time.Time{}) != nil {
		return false
	}
	raw, err := c.conn.SyscallConn()
	if err != nil {
		return false
	}
	quiet := false
	err = raw.Control(func(fd uintptr) {
		var b [1]byte
		_, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		quiet = err == unix.EAGAIN
	})
	return err == nil && quiet
}
