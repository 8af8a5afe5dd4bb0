package eventloop

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"fastdfs-gateway/internal/process/panics"

	"golang.org/x/sys/unix"
)

// Listener accepts the connections of a listening socket.
type Listener struct {
	g      *Group
	accept func(*Conn)
	addr   net.Addr
	socket syscall.RawConn
	l      *loop
	index  uint32 // in the table of the loop
	event  *unix.EpollEvent
	log    *slog.Logger

	mu     sync.Mutex // guards the fields below
	closed bool
	pause  time.Duration // of the next failure
	timer  *time.Timer
	done   chan struct{} // closed by Close

	// The result of takeOne, which take stores to save an allocation.
	take func(fd uintptr)
	fd   int
	from unix.RawSockaddrAny
	err  error
}

// Pauses after a failure, as a lack of descriptors.
const (
	acceptPause    = 5 * time.Millisecond
	maxAcceptPause = time.Second
)

// Listen passes the connections of an open socket (a syscall.Conn, as *net.TCPListener) to accept,
// until Close, which comes before ln is closed. accept may serve the connection.
func (g *Group) Listen(ln net.Listener, log *slog.Logger, accept func(*Conn)) (*Listener, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil, net.ErrClosed
	}
	g.started = true
	loops, err := g.loops()
	if err != nil {
		return nil, err
	}
	conn, ok := ln.(syscall.Conn)
	if !ok {
		return nil, fmt.Errorf("cannot accept on %s: a %T is no socket", ln.Addr(), ln)
	}
	socket, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	n := &Listener{g: g, accept: accept, addr: ln.Addr(), socket: socket, l: loops[0], log: log,
		pause: acceptPause, done: make(chan struct{})}
	n.take = n.takeOne
	if err := n.setNoDelay(); err != nil {
		return nil, err
	}
	n.l.mu.Lock()
	var generation uint32
	n.index, generation = n.l.table.add(entry{listener: n})
	n.l.mu.Unlock()
	n.event = event(unix.EPOLLIN, n.index, generation)
	g.listeners[n] = struct{}{}
	if err := n.register(unix.EPOLL_CTL_ADD); err != nil {
		delete(g.listeners, n)
		n.l.mu.Lock()
		n.l.table.remove(n.index)
		n.l.mu.Unlock()
		return nil, err
	}
	return n, nil
}

// setNoDelay sets TCP_NODELAY, which connections inherit (tcp(7)): a response is never held back
// until the client has acknowledged a part of it. The net package does so for each connection.
func (n *Listener) setNoDelay() (err error) {
	if _, tcp := n.addr.(*net.TCPAddr); !tcp {
		return nil
	}
	errSocket := n.socket.Control(func(fd uintptr) {
		err = os.NewSyscallError("setsockopt", unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NODELAY, 1))
	})
	return errors.Join(errSocket, err)
}

// register begins or ends the events of the socket.
func (n *Listener) register(op int) (err error) {
	errSocket := n.socket.Control(func(fd uintptr) { err = n.l.control(op, int(fd), n.event) })
	return errors.Join(errSocket, err)
}

// Done is closed by Close.
func (n *Listener) Done() <-chan struct{} { return n.done }

// Close ends accepting. Further calls do nothing.
func (n *Listener) Close() {
	n.g.mu.Lock()
	delete(n.g.listeners, n)
	n.g.mu.Unlock()
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return
	}
	n.closed = true
	if n.timer != nil {
		n.timer.Stop()
	}
	n.l.mu.Lock()
	n.l.table.remove(n.index)
	n.l.mu.Unlock()
	// Another process may have the socket open, so closing it does not end the events.
	_ = n.register(unix.EPOLL_CTL_DEL) // it is not registered during a pause
	close(n.done)
}

// acceptBatch bounds the connections that are accepted in a row while other events wait.
const acceptBatch = 16

// acceptSome accepts connections as the leader of this number.
func (n *Listener) acceptSome(lead *loop, number uint64) {
	for range acceptBatch {
		c, err := n.acceptOne()
		switch {
		case err == unix.EAGAIN, err == net.ErrClosed:
			return
		case err == unix.ECONNABORTED, err == unix.EINTR:
			continue
		case err != nil:
			n.failed(err)
			return
		}
		n.pass(c, lead, number)
	}
}

// pass calls accept. A panic there is a bug, and closes the connection.
func (n *Listener) pass(c *Conn, lead *loop, number uint64) {
	c.ledBy(lead, number)
	c.ready = c.l == lead // else its own loop serves it, as soon as it is parked
	defer func() {
		if p := recover(); p != nil {
			panics.Report(p, "accepting a connection")
			_ = c.Close()
		}
	}()
	n.accept(c)
}

// acceptOne accepts one connection for the loop whose turn it is.
func (n *Listener) acceptOne() (*Conn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil, net.ErrClosed
	}
	if err := n.socket.Control(n.take); err != nil {
		return nil, net.ErrClosed
	}
	if n.err != nil {
		return nil, n.err
	}
	n.pause = acceptPause
	loops, _ := n.g.loops() // they run
	return n.g.newConn(loops[int(n.g.next.Add(1))%len(loops)], n.fd, n.addr, &n.from), nil
}

// takeOne calls accept4. Listener.mu is held.
func (n *Listener) takeOne(fd uintptr) { n.fd, n.err = acceptNoWait(int(fd), &n.from) }

// failed stops accepting for a pause.
func (n *Listener) failed(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return
	}
	n.log.Warn("cannot accept connections", "address", n.addr.String(), "err", os.NewSyscallError("accept", err),
		"next_try", n.pause.String())
	_ = n.register(unix.EPOLL_CTL_DEL) // on failure the next attempt comes at once
	n.timer = time.AfterFunc(n.pause, n.resume)
	n.pause = min(2*n.pause, maxAcceptPause)
}

// resume accepts again after a pause.
func (n *Listener) resume() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return
	}
	if err := n.register(unix.EPOLL_CTL_ADD); err != nil {
		n.timer = time.AfterFunc(maxAcceptPause, n.resume)
	}
}
