package fdfstest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
)

// Node is one server of a cluster, a tracker or a storage: where it listens, what is
// wrong with it and what it has done. All its methods may be called at any time and from any
// goroutine, except from OnUnknown.
type Node struct {
	name   string
	port   *reservation
	handle func(Request) reply

	life  sync.Mutex     // held by Kill, Revive and the end, which wait for goroutines; guards ended
	ended bool           // the cluster was closed; guarded by life
	wait  sync.WaitGroup // the goroutines of this life: one that accepts and one a connection

	mu          sync.Mutex         // guards all below
	listener    net.Listener       // nil when dead or silent
	silence     *silence           // not nil when silent
	ctx         context.Context    // of this life: ends the waiting of its connections
	cancel      context.CancelFunc // nil when dead
	conns       map[*conn]struct{}
	rules       *rules
	partitioned bool
	tally       tally
}

func newNode(name string, port *reservation) *Node {
	n := &Node{name: name, port: port, conns: map[*conn]struct{}{}, rules: &rules{}}
	n.tally.reset()
	return n
}

// Name is the node's name: t1, t2 .. for trackers and s1, s2 .. for storages.
func (n *Node) Name() string { return n.name }

// Addr is the host:port that the node listens on; it stays the same for good.
func (n *Node) Addr() string { return n.port.addr.String() }

// AddrPort is Addr in parsed form.
func (n *Node) AddrPort() netip.AddrPort { return n.port.addr }

// Partition cuts the node off, or heals the cut: connections are accepted, but no byte is
// sent, not even of replies under way. Requests of that time get their replies when the cut is
// healed, if the client is still there.
func (n *Node) Partition(cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.partitioned = cut
}

func (n *Node) isPartitioned() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.partitioned
}

// Kill closes the listener and all connections and returns when that is done. New connections
// are refused. A dead node stays dead until Revive.
func (n *Node) Kill() {
	n.life.Lock()
	defer n.life.Unlock()
	n.stop()
}

// Silence makes the node like a host that is switched off: there is no reply to an attempt to
// connect, not even "connection refused", so that only the client's own time limit ends it.
// Connections that are open stall as under Partition, and as after Lose: bytes to them are not
// acknowledged. Revive ends it, Kill too. A dead node can be made silent.
func (n *Node) Silence() error {
	n.life.Lock()
	defer n.life.Unlock()
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ended {
		return fmt.Errorf("cannot silence %s: %w", n.name, ErrClosed)
	}
	n.closeListener()
	quiet, err := newSilence(n.port.addr)
	if err != nil {
		return fmt.Errorf("cannot silence %s: %w", n.name, err)
	}
	n.silence, n.partitioned = quiet, true
	return n.lose()
}

// Lose makes all that clients send on connections that are open get lost, for good. The clients are
// not told, as where a firewall has forgotten the connections. New connections work.
func (n *Node) Lose() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.lose()
}

// lose drops what comes on connections that are open; mu must be held.
func (n *Node) lose() error {
	for c := range n.conns {
		if err := DropReceived(c.tcp); err != nil && !errors.Is(err, net.ErrClosed) {
			return fmt.Errorf("cannot lose connections of %s: %w", n.name, err)
		}
	}
	return nil
}

// Revive makes a dead or silent node listen on its address again, and does nothing to other nodes.
func (n *Node) Revive() error {
	n.life.Lock()
	defer n.life.Unlock()
	if n.ended {
		return fmt.Errorf("cannot revive %s: %w", n.name, ErrClosed)
	}
	return n.start()
}

// ErrClosed is the error for reviving a node of a cluster that was closed.
var ErrClosed = errors.New("the cluster is closed")

// end kills the node for good and gives up its address.
func (n *Node) end() {
	n.life.Lock()
	defer n.life.Unlock()
	n.stop()
	if !n.ended {
		n.port.close()
	}
	n.ended = true
}

// start begins a life, or ends the silence of one; life must be held.
func (n *Node) start() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listener != nil {
		return nil
	}
	if n.silence != nil {
		n.silence.close()
		n.silence, n.partitioned = nil, false
		for c := range n.conns {
			_ = receive(c.tcp) // it may have been closed
		}
	}
	listener, err := again(func() (net.Listener, error) { return net.Listen("tcp", n.Addr()) })
	if err != nil {
		return fmt.Errorf("cannot listen for %s: %w", n.name, err)
	}
	if n.cancel == nil {
		n.ctx, n.cancel = context.WithCancel(context.Background())
	}
	ctx := n.ctx
	n.listener = listener
	n.wait.Go(func() { n.accept(ctx, listener) })
	return nil
}

// stop ends a life and waits for its goroutines; life must be held.
func (n *Node) stop() {
	n.mu.Lock()
	n.closeListener()
	if n.cancel != nil {
		n.cancel()
		n.cancel = nil
	}
	for c := range n.conns {
		c.tcp.Close()
	}
	n.mu.Unlock()
	n.wait.Wait()
}

// closeListener ends listening and silence; mu must be held.
func (n *Node) closeListener() {
	if n.listener != nil {
		n.listener.Close()
		n.listener = nil
	}
	if n.silence != nil {
		n.silence.close()
		n.silence, n.partitioned = nil, false
	}
}

func (n *Node) accept(ctx context.Context, listener net.Listener) {
	for {
		tcp, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // the client had left before it was accepted
		}
		c := n.admit(ctx, tcp.(*net.TCPConn))
		if c == nil {
			tcp.Close()
			return
		}
		n.wait.Go(c.serve)
	}
}

// admit enters a connection into the books, or gives nil when the life has ended.
func (n *Node) admit(ctx context.Context, tcp *net.TCPConn) *conn {
	n.mu.Lock()
	defer n.mu.Unlock()
	if ctx.Err() != nil {
		return nil
	}
	n.tally.accepted++
	c := &conn{ctx: ctx, node: n, tcp: tcp, in: bufio.NewReader(tcp)}
	n.conns[c] = struct{}{}
	return c
}

func (n *Node) dismiss(c *conn) {
	c.tcp.Close()
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.conns, c)
}
