package redistest

import (
	"net"
	"strconv"
	"sync"
	"testing"
	"time"
)

// Relay passes TCP connections on to a target and breaks them on demand. Its address stays the same
// all the time. Its methods may be called from any goroutine.
type Relay struct {
	t      testing.TB
	target string
	port   int
	wg     sync.WaitGroup // every goroutine of the relay

	mu       sync.Mutex // guards what follows
	changed  *sync.Cond // on mu: hung, mute, blown or closed has changed
	listener net.Listener
	conns    map[net.Conn]struct{} // both ends of every pair
	hung     bool                  // nothing passes
	mute     bool                  // requests pass, answers do not
	closed   bool
	delay    time.Duration
	fuse     int  // pieces until the relay cuts itself; 0 = it does not
	blown    bool // the last of these is on its way: no other passes before the cut
}

// NewRelay starts a relay to an address of TCP. It is closed when the test ends.
func NewRelay(t testing.TB, target string) *Relay {
	t.Helper()
	r := &Relay{t: t, target: target, conns: make(map[net.Conn]struct{})}
	r.changed = sync.NewCond(&r.mu)
	r.mu.Lock()
	defer r.mu.Unlock()
	for range portTries {
		port, err := takePort()
		if err != nil {
			t.Fatal(err)
		}
		if r.port = port; r.listen() == nil {
			t.Cleanup(r.Close)
			return r
		}
		givePort(port)
	}
	t.Fatal("no port for the relay")
	return nil
}

// listen starts to accept connections; the caller holds mu.
func (r *Relay) listen() error {
	l, err := net.Listen("tcp4", r.Addr())
	if err != nil {
		return err
	}
	r.listener = l
	r.wg.Go(func() { r.accept(l) })
	return nil
}

// Addr returns the relay's address, which clients use in place of the target's.
func (r *Relay) Addr() string { return "127.0.0.1:" + strconv.Itoa(r.port) }

// Cut drops all connections and refuses new ones until Restore.
func (r *Relay) Cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cut()
}

func (r *Relay) cut() {
	r.fuse, r.blown = 0, false
	r.changed.Broadcast()
	if r.listener != nil {
		r.listener.Close()
		r.listener = nil
	}
	r.drop()
}

// drop closes all connections; the caller holds mu.
func (r *Relay) drop() {
	for c := range r.conns {
		// Without lingering the other side sees a reset, not an orderly end.
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		c.Close()
	}
}

// Drop drops the connections that are open now and accepts new ones, as a restarted middle box
// does. Those that are just being connected stay.
func (r *Relay) Drop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drop()
}

// Hang accepts connections and passes nothing until Restore, which then delivers what has waited: a
// network that loses every packet for a while.
func (r *Relay) Hang() { r.set(true, false) }

// Mute passes what clients send and withholds the answers until Restore: commands run and their
// clients do not learn of it.
func (r *Relay) Mute() { r.set(false, true) }

func (r *Relay) set(hung, mute bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hung, r.mute = hung, mute
	r.changed.Broadcast()
}

// CutAfter cuts the relay when n more pieces have passed, in either direction: a crash at a chosen
// step of a conversation. 0 takes it back.
func (r *Relay) CutAfter(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fuse, r.blown = n, false
	r.changed.Broadcast()
}

// Restore ends Cut, Hang and Mute; the delay stays.
func (r *Relay) Restore() {
	r.set(false, false)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.listener != nil || r.closed {
		return
	}
	var err error
	for range portTries {
		if err = r.listen(); err == nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	r.t.Errorf("cannot listen on the relay's port again: %v", err)
}

// Delay holds each piece that a client sends for d; 0 = not at all.
func (r *Relay) Delay(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.delay = d
}

// Close ends the relay and waits for its goroutines. The end of the test does it too.
func (r *Relay) Close() {
	r.mu.Lock()
	if !r.closed {
		givePort(r.port)
	}
	r.closed = true
	r.cut()
	r.changed.Broadcast()
	r.mu.Unlock()
	r.wg.Wait()
}

func (r *Relay) accept(l net.Listener) {
	for {
		client, err := l.Accept()
		if err != nil {
			return
		}
		r.wg.Go(func() { r.connect(l, client) })
	}
}

// connect passes bytes between a client, which the listener has accepted, and the target until one
// of them ends.
func (r *Relay) connect(l net.Listener, client net.Conn) {
	defer client.Close()
	server, err := net.DialTimeout("tcp4", r.target, waitBudget)
	if err != nil {
		return
	}
	defer server.Close()
	if !r.add(l, client, server) {
		return
	}
	defer r.remove(client, server)
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.pass(server, client, false)
	}()
	r.pass(client, server, true)
	<-done
}

// add notes a pair, unless the relay was cut since the listener has accepted it, be it restored
// again or not.
func (r *Relay) add(l net.Listener, conns ...net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.listener != l {
		return false
	}
	for _, c := range conns {
		r.conns[c] = struct{}{}
	}
	return true
}

func (r *Relay) remove(conns ...net.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range conns {
		delete(r.conns, c)
	}
}

// pass copies one direction and closes both ends when it is over, which ends the other direction as
// well.
func (r *Relay) pass(from, to net.Conn, request bool) {
	defer from.Close()
	defer to.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 && r.gate(request) {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
			r.passed()
		}
		if err != nil {
			return
		}
	}
}

// passed cuts the relay after its last piece.
func (r *Relay) passed() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.blown {
		r.cut()
	}
}

// gate holds a piece for as long as the relay's state wants it; false means that the relay is
// closed. Pieces are counted before they pass, and behind the last one all others wait for the cut:
// so no client gets an answer to it.
func (r *Relay) gate(request bool) bool {
	r.mu.Lock()
	d := r.delay
	r.mu.Unlock()
	if request && d > 0 {
		time.Sleep(d)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for !r.closed && (r.hung || r.blown || r.mute && !request) {
		r.changed.Wait()
	}
	if r.fuse > 0 && !r.closed {
		r.fuse--
		r.blown = r.fuse == 0
	}
	return !r.closed
}
