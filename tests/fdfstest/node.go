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

// Node is one server of a cluster, a tracker or a storage, with its address, its faults and its
// counts. All its methods may be called at any time and from any goroutine, except from OnUnknown.
type Node struct {
	name   string
	port   *reservation
	handle func(Request) reply

	life  sync.Mutex     // held by Kill, Silence, Revive and end; guards ended
	ended bool           // the cluster was closed; guarded by life
	wait  sync.WaitGroup // goroutines: one that accepts, and one for each connection

	mu          sync.Mutex         // guards all below
	listener    net.Listener       // nil when killed or silent
	silence     *silence           // not nil when silent
	ctx         context.Context    // ends when the node is killed, and with it the waits of its connections
	cancel      context.CancelFunc // nil when killed
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

// Name returns the name of the node: t1, t2 .. for trackers and s1, s2 .. for storages.
func (n *Node) Name() string { return n.name }

// Addr returns the host:port that the node listens on, which never changes.
func (n *Node) Addr() string { return n.port.addr.String() }

// AddrPort returns Addr in parsed form.
func (n *Node) AddrPort() netip.AddrPort { return n.port.addr }

// Partition begins or ends a partition of the node. During it connections are accepted, but no byte
// is sent, not even of replies in progress. Requests of that time get their replies after its end,
// if the client has not left.
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

// Kill closes the listener and all connections, and returns when the goroutines have ended. New
// connections are refused. A killed node stays so until Revive.
func (n *Node) Kill() {
	n.life.Lock()
	defer n.life.Unlock()
	n.stop()
}

// Silence makes the node behave as a host that is switched off: an attempt to connect gets no
// reply, not even "connection refused", so only the timeout of the client ends it. Open connections
// stall as in a Partition, and as after Lose: bytes to them are not acknowledged. Revive ends the
// silence, Kill too. A killed node can be made silent.
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

// Lose drops all further bytes from the clients of open connections, until Revive ends a silence of
// the node. The clients are not notified, as after a firewall has lost the state of the
// connections. New connections work.
func (n *Node) Lose() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.lose()
}

// lose is Lose; mu must be held.
func (n *Node) lose() error {
	for c := range n.conns {
		if err := DropReceived(c.tcp); err != nil && !errors.Is(err, net.ErrClosed) {
			return fmt.Errorf("cannot lose connections of %s: %w", n.name, err)
		}
	}
	return nil
}

// Revive makes a killed or silent node listen on its address again. For other nodes it does
// nothing.
func (n *Node) Revive() error {
	n.life.Lock()
	defer n.life.Unlock()
	if n.ended {
		return fmt.Errorf("cannot revive %s: %w", n.name, ErrClosed)
	}
	return n.start()
}

// ErrClosed is the error of Revive and Silence for a node of a closed cluster.
var ErrClosed = errors.New("the cluster is closed")

// end kills the node for good and releases its address.
func (n *Node) end() {
	n.life.Lock()
	defer n.life.Unlock()
	n.stop()
	if !n.ended {
		n.port.close()
	}
	n.ended = true
}

// start starts the node, or ends its silence; life must be held.
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
			_ = receive(c.tcp) // the connection may be closed
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

// stop stops the node and waits for its goroutines; life must be held.
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

// admit adds a connection to the node, or returns nil if the node was killed.
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
