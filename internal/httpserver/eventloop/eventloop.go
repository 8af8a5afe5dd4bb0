// Package eventloop serves many stream sockets with few goroutines: a connection without a request
// has neither a goroutine nor a buffer.
//
//	loops := eventloop.New(serve)
//	ln, err := loops.Listen(socket, log, accept) // accept(c) may call serve(c)
//
// A Group has one loop per processor, and each loop has a leader: the goroutine that waits for the
// events of its connections and calls serve for them, one after the other. serve reads with ReadNow
// and parks the connection when no bytes are there to read; the loop calls serve again later. A
// goroutine that is about to wait hands its loop over to a new leader (leader/followers: Schmidt et
// al., Pattern-Oriented Software Architecture 2, 2000) and continues as an ordinary goroutine. So a
// connection is also a net.Conn whose Read and Write wait. A leader that has not returned for
// stealAfter, for example because of a slow disk, loses its loop in the same way.
//
// Waiting for events does not occupy a thread: the epoll instance of a loop is itself polled by the
// runtime.
package eventloop

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Group is a set of loops. Use New to make one.
type Group struct {
	serve func(*Conn)
	began time.Time // zero of the clock of deadlines
	watch watchdog

	sweepEvery time.Duration

	mu        sync.Mutex // guards the fields below
	loops     []*loop    // empty until the first Listen
	listeners map[*Listener]struct{}
	closed    bool

	running sync.WaitGroup
}

// New returns a group. It calls serve for a parked connection that has bytes to read, has ended, or
// is past its read deadline. The loops start with the first Listen.
func New(serve func(*Conn)) *Group {
	g := &Group{serve: serve, began: time.Now(), sweepEvery: sweepEvery,
		listeners: make(map[*Listener]struct{})}
	g.watch.every = stealAfter
	return g
}

// start starts the loops. mu is held.
func (g *Group) start() error {
	var list []*loop
	for range runtime.GOMAXPROCS(0) {
		l, err := newLoop(g)
		if err != nil {
			return errors.Join(err, closeAll(list))
		}
		list = append(list, l)
	}
	for _, l := range list {
		g.running.Go(func() { l.lead(1) })
	}
	g.watch.init(list)
	g.running.Go(g.watch.run)
	g.running.Go(g.sweep)
	g.loops = list
	return nil
}

func closeAll(list []*loop) (err error) {
	for _, l := range list {
		err = errors.Join(err, l.epoll.Close())
	}
	return err
}

// CloseListeners ends accepting. Listen fails from now on.
func (g *Group) CloseListeners() {
	g.mu.Lock()
	g.closed = true
	open := slices.Collect(maps.Keys(g.listeners))
	g.mu.Unlock()
	for _, l := range open {
		l.Close()
	}
}

// Close ends the loops. The caller has closed the listeners and all connections.
func (g *Group) Close() error {
	g.mu.Lock()
	loops := g.loops
	g.mu.Unlock()
	if len(loops) == 0 {
		return nil
	}
	g.watch.stop()
	err := closeAll(loops)
	g.running.Wait()
	return err
}

// now returns the time by the clock of deadlines.
func (g *Group) now() time.Duration { return time.Since(g.began) }

// loop is an epoll instance with its connections.
type loop struct {
	g       *Group
	epoll   *os.File
	fd      int
	raw     syscall.RawConn
	poll    func(fd uintptr) bool // takeEvents, stored to save an allocation
	yielded time.Duration         // time of the leader's last yield; only the leader uses it

	mu      sync.Mutex // guards the fields below; only a waiting leader uses events and n without it
	leader  uint64     // number of the leader
	turns   uint64     // events and new connections handled, for the watchdog
	waiting bool       // the leader waits for events
	events  [128]unix.EpollEvent
	n       int // number of events of the last wait
	next    int // index of the first of these that is not handled
	table   table

	accepted []accepted // new connections, served before events; the last one is the first to be served
}

// accepted is a new connection of a listener.
type accepted struct {
	c  *Conn
	ln *Listener
}

func newLoop(g *Group) (*loop, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	if err = unix.SetNonblock(fd, true); err != nil { // the runtime then polls it like a socket
		_ = unix.Close(fd)
		return nil, os.NewSyscallError("fcntl", err)
	}
	l := &loop{g: g, epoll: os.NewFile(uintptr(fd), "epoll"), fd: fd, leader: 1}
	if l.raw, err = l.epoll.SyscallConn(); err != nil {
		return nil, fmt.Errorf("cannot poll: %w", err)
	}
	l.poll = l.takeEvents
	return l, nil
}

// lead handles events as the leader of this number, until another goroutine leads or the loop ends.
func (l *loop) lead(number uint64) {
	for {
		c, ln, ok := l.nextEvent(number)
		if !ok {
			return
		}
		switch {
		case ln == nil:
			c.passTo(l.g.serve, "serving a connection", l, number)
		case c == nil:
			ln.acceptSome(l, number)
		default:
			c.passTo(ln.accept, "accepting a connection", l, number)
		}
	}
}

// handOver starts another leader if the one of this number still leads and is not waiting for
// events.
func (l *loop) handOver(number uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.leader == number && !l.waiting {
		l.replaceLeader()
	}
}

// replaceLeader starts another leader. mu is held. The goroutines that call it are counted in
// Group.running.
func (l *loop) replaceLeader() {
	l.leader++
	l.turns++
	next := l.leader
	l.g.running.Go(func() { l.lead(next) })
}

// nextEvent waits for the next event that a leader has to handle: of a parked connection, of a
// listener, or a new connection of a listener. ok is false if another goroutine leads or the loop
// has ended.
func (l *loop) nextEvent(number uint64) (c *Conn, ln *Listener, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.leader == number {
		if n := len(l.accepted); n > 0 {
			c, ln = l.accepted[n-1].c, l.accepted[n-1].ln
			l.accepted = l.accepted[:n-1]
			l.turns++
			return c, ln, true
		}
		if l.next == l.n {
			if !l.awaitEvents() {
				return nil, nil, false
			}
			l.g.watch.wake()
		}
		e := &l.events[l.next]
		l.next++
		l.turns++
		switch to := l.table.get(e); {
		case to.conn != nil && to.conn.wake(e.Events):
			return to.conn, nil, true
		case to.listener != nil:
			return nil, to.listener, true
		}
	}
	return nil, nil, false
}

// yieldAfter is the time after which a leader that always finds events yields to other goroutines
// of its processor. The runtime would preempt the leader after 10 ms. A yield costs a wake-up of an
// idle processor, too much for each batch of events.
const yieldAfter = 500 * time.Microsecond

// awaitEvents waits for events; false at the end of the loop. mu is held before and after.
func (l *loop) awaitEvents() bool {
	l.n, l.next, l.waiting = 0, 0, true
	l.mu.Unlock()
	if now := l.g.now(); now-l.yielded >= yieldAfter {
		l.yielded = now
		runtime.Gosched()
	}
	err := l.raw.Read(l.poll)
	l.mu.Lock()
	l.waiting = false
	return err == nil
}

// takeEvents takes events without waiting; false if there are none.
func (l *loop) takeEvents(fd uintptr) bool {
	n, err := epollNoWait(fd, l.events[:])
	if err != nil {
		return false // EINTR: the runtime polls again
	}
	l.n = n
	return n > 0
}

// control changes the registration of a descriptor.
func (l *loop) control(op, fd int, e *unix.EpollEvent) error {
	return os.NewSyscallError("epoll_ctl", unix.EpollCtl(l.fd, op, fd, e))
}
