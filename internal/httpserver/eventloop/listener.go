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

	"golang.org/x/sys/unix"
)

// Listener accepts the connections of a listening socket. The loops take turns: a loop accepts
// waiting connections, makes the socket report further ones to the next loop, and serves those that
// it has accepted. So a connection whose request has arrived needs no event.
type Listener struct {
	g      *Group
	accept func(*Conn)
	addr   net.Addr
	socket syscall.RawConn
	places []place // one for each loop
	log    *slog.Logger

	mu     sync.Mutex // guards the fields below
	turn   int        // index in places of the loop that accepts
	closed bool
	pause  time.Duration // after the next failure
	timer  *time.Timer   // ends the pause; nil = none yet
	done   chan struct{} // closed by Close

	// Functions for socket.Control, stored to save allocations, and their results.
	take, arm func(fd uintptr)
	fd        int
	from      unix.RawSockaddrAny
	err       error
}

// place is the entry of a Listener in one loop.
type place struct {
	l     *loop
	index uint32          // in the table of the loop
	event unix.EpollEvent // at least one connection waits; reported once for each passTurn
}

// Pauses after a failure, such as a lack of descriptors.
const (
	acceptPause    = 5 * time.Millisecond
	maxAcceptPause = time.Second
)

// Listen passes the connections of an open socket (a syscall.Conn such as *net.TCPListener) to
// accept, until Close. The caller calls Close before it closes ln. accept may serve the connection.
// Connections inherit the options of the socket, such as TCP_NODELAY.
func (g *Group) Listen(ln net.Listener, log *slog.Logger, accept func(*Conn)) (*Listener, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil, net.ErrClosed
	}
	if len(g.loops) == 0 {
		if err := g.start(); err != nil {
			return nil, err
		}
	}
	conn, ok := ln.(syscall.Conn)
	if !ok {
		return nil, fmt.Errorf("cannot accept on %s: a %T is no socket", ln.Addr(), ln)
	}
	socket, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	n := &Listener{g: g, accept: accept, addr: ln.Addr(), socket: socket, log: log, pause: acceptPause,
		done: make(chan struct{})}
	n.take = func(fd uintptr) { n.fd, n.err = acceptNoWait(int(fd), &n.from) }
	n.arm = func(fd uintptr) { n.err = n.places[n.turn].control(unix.EPOLL_CTL_MOD, fd) }
	if err := n.register(g.loops); err != nil {
		n.unregister()
		return nil, err
	}
	g.listeners[n] = struct{}{}
	return n, nil
}

// register adds the socket to all loops, and arms it for one of them.
func (n *Listener) register(loops []*loop) (err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, l := range loops {
		p := place{l: l}
		var generation uint32
		l.mu.Lock()
		p.index, generation = l.table.addEntry(entry{listener: n})
		l.mu.Unlock()
		p.event = *event(unix.EPOLLONESHOT, p.index, generation)
		n.places = append(n.places, p)
		of := &n.places[len(n.places)-1]
		errSocket := n.socket.Control(func(fd uintptr) { err = of.control(unix.EPOLL_CTL_ADD, fd) })
		if err = errors.Join(errSocket, err); err != nil {
			return err
		}
		of.event.Events |= unix.EPOLLIN // for passTurn; until then the loop gets no event
	}
	return n.passTurn()
}

// unregister ends the events of the socket. Closing the socket does not end them, since another
// process may have it open.
func (n *Listener) unregister() {
	for i := range n.places {
		p := &n.places[i]
		_ = n.socket.Control(func(fd uintptr) { _ = p.control(unix.EPOLL_CTL_DEL, fd) })
		p.l.mu.Lock()
		p.l.table.remove(p.index)
		p.l.mu.Unlock()
	}
}

// control changes the registration of the socket in the loop.
func (p *place) control(op int, fd uintptr) error { return p.l.control(op, int(fd), &p.event) }

// passTurn makes the socket report connections, those that wait already included, to the next loop.
// mu is held.
func (n *Listener) passTurn() error {
	n.turn = (n.turn + 1) % len(n.places)
	if err := n.socket.Control(n.arm); err != nil {
		return err
	}
	return n.err
}

// Done returns a channel that Close closes.
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
	n.unregister()
	close(n.done)
}

// acceptBatch bounds the connections that a loop accepts in one turn.
const acceptBatch = 16

// acceptSome accepts connections for the leader of this number, which serves them next.
func (n *Listener) acceptSome(l *loop, number uint64) {
	var room [acceptBatch]*Conn
	batch := n.takeTurn(l, room[:0])
	l.mu.Lock()
	leads := l.leader == number
	for i := len(batch) - 1; i >= 0 && leads; i-- {
		l.accepted = append(l.accepted, accepted{batch[i], n})
	}
	l.mu.Unlock()
	if leads {
		return
	}
	for _, c := range batch { // another goroutine leads, and may be waiting for events
		l.g.running.Go(func() { c.passTo(n.accept, "accepting a connection", l, number) })
	}
}

// takeTurn accepts connections, and passes the turn to the next loop.
func (n *Listener) takeTurn(l *loop, batch []*Conn) []*Conn {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil
	}
	for len(batch) < cap(batch) {
		if err := n.socket.Control(n.take); err != nil {
			return batch // the socket is closed
		}
		if n.err == unix.ECONNABORTED || n.err == unix.EINTR {
			continue
		}
		if n.err != nil {
			break
		}
		n.pause = acceptPause
		batch = append(batch, n.g.newConn(l, n.fd, n.addr, &n.from))
	}
	if n.err != nil && n.err != unix.EAGAIN {
		n.log.Warn("cannot accept connections", "address", n.addr.String(),
			"err", os.NewSyscallError("accept", n.err), "next_try", n.pause.String())
		n.timer = time.AfterFunc(n.pause, n.resume)
		n.pause = min(2*n.pause, maxAcceptPause)
	} else if n.passTurn() != nil {
		n.timer = time.AfterFunc(maxAcceptPause, n.resume)
	}
	return batch
}

// resume accepts again after a pause.
func (n *Listener) resume() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.closed && n.passTurn() != nil {
		n.timer = time.AfterFunc(maxAcceptPause, n.resume)
	}
}
