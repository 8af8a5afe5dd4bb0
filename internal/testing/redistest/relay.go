package redistest

import (
	"bytes"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"
)

// End is one of the two ends of a relayed connection.
type End int

// The ends.
const (
	Client End = iota // the end that has connected to the relay
	Target            // the end that the relay has connected to
)

func (e End) other() End { return Target - e }

// Relay forwards TCP connections to a target and breaks them on demand. Its address never changes.
// Its methods may be called from any goroutine.
type Relay struct {
	t      testing.TB
	target string
	port   int
	wg     sync.WaitGroup // every goroutine of the relay

	mu       sync.Mutex // guards all below
	changed  *sync.Cond // on mu: hung, mute, blown, closed or the lost of a pair has changed
	listener net.Listener
	pairs    map[*pair]struct{}
	hung     bool // nothing passes
	mute     bool // requests pass, replies do not
	closed   bool
	delays   [2]delay // of the pieces to each end
	fuse     int      // pieces until the relay cuts itself; 0 = never
	blown    bool     // the last of these pieces is in transit: no other passes before the cut
}

// delay is the time for which a piece is held: between least and most.
type delay struct{ least, most time.Duration }

// pair is a relayed connection.
type pair struct {
	conns [2]net.Conn // of each end
	lost  [2]bool     // guarded by Relay.mu: bytes to that end, and the end of the stream, are lost
}

// NewRelay starts a relay to a TCP address. The end of the test closes it.
func NewRelay(t testing.TB, target string) *Relay {
	t.Helper()
	r := &Relay{t: t, target: target, pairs: make(map[*pair]struct{})}
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

// Cut drops all connections and rejects new ones until Restore.
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
	for p := range r.pairs {
		reset(p.conns[Client])
		reset(p.conns[Target])
	}
}

// reset closes a connection. Without lingering the other side receives a reset (RST), not an
// orderly end.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	c.Close()
}

// HalfClose ends one direction of all open connections: the end to receives an orderly end of the
// stream, and its own bytes still arrive. The other end is not notified, and its further bytes are
// lost.
func (r *Relay) HalfClose(to End) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for p := range r.pairs {
		p.lost[to] = true
		if tcp, ok := p.conns[to].(*net.TCPConn); ok {
			_ = tcp.CloseWrite() // it may be closed already
		}
	}
	r.changed.Broadcast()
}

// Strand resets all open connections at the end gone. The other end is not notified: its
// connections stay open, receive nothing, and lose the bytes that it sends.
func (r *Relay) Strand(gone End) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for p := range r.pairs {
		p.lost = [2]bool{true, true}
		reset(p.conns[gone])
	}
	r.changed.Broadcast()
}

// Drop resets the open connections and accepts new ones, as a middlebox after a restart.
// Connections that are being established stay.
func (r *Relay) Drop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drop()
}

// Hang accepts connections and passes nothing until Restore, which then delivers the waiting bytes,
// as a network that loses every packet for a while.
func (r *Relay) Hang() { r.set(true, false) }

// Mute passes the bytes of clients and withholds the replies until Restore: commands run, and their
// clients get no result.
func (r *Relay) Mute() { r.set(false, true) }

func (r *Relay) set(hung, mute bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hung, r.mute = hung, mute
	r.changed.Broadcast()
}

// CutAfter cuts the relay after n more pieces, in either direction, as a crash at a chosen step of
// a protocol. 0 cancels it.
func (r *Relay) CutAfter(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fuse, r.blown = n, false
	r.changed.Broadcast()
}

// Restore ends Cut, Hang and Mute; delays stay.
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

// Delay holds each piece from a client for d; 0 = no delay.
func (r *Relay) Delay(d time.Duration) { r.setDelays(delay{}, delay{d, d}) }

// DelayBoth holds each piece, in either direction, for a time from least to most. As on a long
// line, the order stays and many pieces are in transit at a time.
func (r *Relay) DelayBoth(least, most time.Duration) {
	r.setDelays(delay{least, most}, delay{least, most})
}

func (r *Relay) setDelays(toClient, toTarget delay) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.delays = [2]delay{Client: toClient, Target: toTarget}
}

// Close ends the relay and waits for its goroutines. The end of the test calls it too.
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
	p := &pair{conns: [2]net.Conn{Client: client, Target: server}}
	if !r.addPair(l, p) {
		return
	}
	defer r.remove(p)
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.pass(p, Target)
	}()
	r.pass(p, Client)
	<-done
}

// addPair adds a pair, unless the relay was cut after the listener accepted the client. A Restore
// since then changes nothing.
func (r *Relay) addPair(l net.Listener, p *pair) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.listener != l {
		return false
	}
	r.pairs[p] = struct{}{}
	return true
}

func (r *Relay) remove(p *pair) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.pairs, p)
}

// piece is the result of one read, with the time of its delivery.
type piece struct {
	bytes []byte
	due   time.Time
}

const (
	maxPiece  = 32 << 10 // bytes
	maxPieces = 1024     // in transit in one direction
)

// pass copies the bytes to one end. After the last one it closes both ends, which ends the other
// direction as well, unless the bytes to this end are lost.
func (r *Relay) pass(p *pair, to End) {
	pieces, done := make(chan piece, maxPieces), make(chan struct{})
	go func() {
		defer close(done)
		r.deliver(p, to, pieces)
	}()
	buf := make([]byte, maxPiece)
	for due := (time.Time{}); ; {
		n, err := p.conns[to.other()].Read(buf)
		if n > 0 {
			if next := r.due(p, to); next.After(due) {
				due = next
			}
			pieces <- piece{bytes.Clone(buf[:n]), due}
		}
		if err != nil {
			break
		}
	}
	close(pieces)
	<-done
	r.endPair(p, to)
}

// deliver writes pieces to one end when they are due. After a failure it discards the others.
func (r *Relay) deliver(p *pair, to End, pieces <-chan piece) {
	for piece := range pieces {
		time.Sleep(time.Until(piece.due))
		if !r.gate(p, to) {
			continue
		}
		if _, err := p.conns[to].Write(piece.bytes); err != nil {
			r.endPair(p, to)
			continue
		}
		r.passed()
	}
}

// endPair closes both ends after the last piece to one of them, unless the bytes to that end are
// lost.
func (r *Relay) endPair(p *pair, to End) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !p.lost[to] {
		p.conns[Client].Close()
		p.conns[Target].Close()
	}
}

// due returns the time of delivery of a piece that was just read. It waits while nothing passes, so
// that no more is read and the sender waits too.
func (r *Relay) due(p *pair, to End) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.flows(p, to)
	d := r.delays[to]
	return time.Now().Add(d.least + rand.N(d.most-d.least+1))
}

// flows waits while nothing passes to an end. It returns false if the bytes to that end are lost,
// or the relay is closed. The caller holds mu.
func (r *Relay) flows(p *pair, to End) bool {
	for !r.closed && !p.lost[to] && (r.hung || r.blown || r.mute && to == Client) {
		r.changed.Wait()
	}
	return !r.closed && !p.lost[to]
}

// passed cuts the relay after the last piece of CutAfter.
func (r *Relay) passed() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.blown {
		r.cut()
	}
}

// gate waits until a piece may pass. It returns false if the piece is lost, or the relay is closed.
// Pieces are counted before they pass, and after the last one all others wait for the cut, so no
// client gets a reply to that one.
func (r *Relay) gate(p *pair, to End) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.flows(p, to) {
		return false
	}
	if r.fuse > 0 {
		r.fuse--
		r.blown = r.fuse == 0
	}
	return true
}
