package fleet

import (
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"

	"fastdfs-gateway/internal/httpserver/clientaddr"
)

// Limits of connections to the listener for peers.
const (
	maxPeerConns    = 1024 // with a finished TLS handshake
	maxHandshakes   = 64   // before
	maxHandshakesIP = 16   // before, of one IPv4 address or one /64 of IPv6
)

// admission bounds the connections to the listener for peers. Connections before the end of their
// TLS handshake may come from other clients. So they have separate limits: at maxHandshakes the
// oldest of them is closed for a new one, at maxHandshakesIP the oldest one of the same address.
type admission struct {
	mu         sync.Mutex  // guards the fields below
	handshakes []*peerConn // the oldest first
	peers      int
}

// peerListener accepts connections below TLS.
type peerListener struct {
	net.Listener
	admission *admission
}

// Accept implements net.Listener.
func (l peerListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	tcp, _ := conn.RemoteAddr().(*net.TCPAddr) // a nil TCPAddr has no address
	c := &peerConn{Conn: conn, admission: l.admission, from: clientaddr.Block(tcp.AddrPort().Addr().Unmap())}
	if oldest := l.admission.addHandshake(c); oldest != nil {
		_ = oldest.Conn.Close() // its handshake fails
	}
	return c, nil
}

// peerConn is a connection that admission counts.
type peerConn struct {
	net.Conn
	admission *admission
	from      netip.Addr // clientaddr.Block of the peer
	peer      bool       // counted as a connection of a peer; guarded by admission.mu
}

// Close implements net.Conn.
func (c *peerConn) Close() error {
	c.admission.remove(c)
	return c.Conn.Close()
}

// addHandshake adds a new connection, and returns the one to be closed for it, or nil.
func (a *admission) addHandshake(c *peerConn) (oldest *peerConn) {
	a.mu.Lock()
	defer a.mu.Unlock()
	own := 0
	for _, other := range a.handshakes {
		if other.from == c.from {
			own++
		}
	}
	at := -1
	switch {
	case own >= maxHandshakesIP:
		at = slices.IndexFunc(a.handshakes, func(other *peerConn) bool { return other.from == c.from })
	case len(a.handshakes) >= maxHandshakes:
		at = 0
	}
	if at >= 0 {
		oldest = a.handshakes[at]
		a.handshakes = slices.Delete(a.handshakes, at, at+1)
	}
	a.handshakes = append(a.handshakes, c)
	return oldest
}

// promote counts a connection whose handshake has ended as one of a peer. It returns false if the
// limit is reached.
func (a *admission) promote(c *peerConn) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	at := slices.Index(a.handshakes, c)
	if at < 0 {
		return true // promoted before, or closed
	}
	a.handshakes = slices.Delete(a.handshakes, at, at+1)
	c.peer = a.peers < maxPeerConns
	if c.peer {
		a.peers++
	}
	return c.peer
}

// remove ends the count of a closed connection.
func (a *admission) remove(c *peerConn) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if at := slices.Index(a.handshakes, c); at >= 0 {
		a.handshakes = slices.Delete(a.handshakes, at, at+1)
	}
	if c.peer {
		c.peer = false
		a.peers--
	}
}

// changed is the ConnState function of the server. A connection leaves StateNew at the end of its
// handshake.
func (a *admission) changed(conn net.Conn, state http.ConnState) {
	if state != http.StateActive && state != http.StateIdle {
		return
	}
	if c, ok := conn.(*tls.Conn).NetConn().(*peerConn); ok && !a.promote(c) {
		_ = c.Close() // the peer sees that
	}
}
