package httpserver

import (
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"

	"fastdfs-gateway/internal/httpserver/clientaddr"
	"fastdfs-gateway/internal/httpserver/proxyproto"
)

// proxyHeader is the header of the PROXY protocol that a connection of a trusted proxy begins with.
// The first Read reads the header, below TLS, within the time for the first request. A connection
// that waits for its header counts for MaxConnections, is evicted like any idle one, and blocks no
// other one.
type proxyHeader struct {
	c      *conn
	once   sync.Once
	err    error // set by once
	client atomic.Pointer[proxiedAddr]
}

// proxiedAddr is the address of a client that a header names; invalid for a client without one.
type proxiedAddr struct {
	netip.AddrPort
	tls     bool // the client has a TLS connection to the proxy
	tooMany bool // MaxConnectionsPerIP was reached: requests are rejected
}

var _ net.Addr = (*proxiedAddr)(nil)

// Network implements net.Addr.
func (*proxiedAddr) Network() string { return "tcp" }

// setPeer sets block or proxy of a new connection by the address of its socket. A trusted proxy has
// connections of many clients, so these do not count for its address.
func (c *conn) setPeer(peer netip.Addr) {
	p := c.s.handler().Limits().Proxies
	if !p.Trusts(peer) {
		c.block = c.s.countedBlock(peer)
		return
	}
	if p.Method != clientaddr.ByProxyProtocol {
		return
	}
	c.proxy = &proxyHeader{c: c}
}

// Read implements net.Conn. The header comes before TLS.
func (c *conn) Read(p []byte) (int, error) {
	if c.proxy != nil {
		if err := c.proxy.await(); err != nil {
			return 0, err
		}
	}
	return c.Conn.Read(p)
}

// Readable implements guard.Socket.
func (c *conn) Readable() bool { return c.socket.Readable() }

// AwaitInput implements guard.Socket.
func (c *conn) AwaitInput() error { return c.socket.AwaitInput() }

// ReadNow implements guard.Socket. It waits for the rest of a header that has begun.
func (c *conn) ReadNow(p []byte) (int, error) {
	if c.proxy != nil {
		if err := c.proxy.await(); err != nil {
			return 0, err
		}
	}
	return c.socket.ReadNow(p)
}

// RemoteAddr returns the address of the client: that of the header, or of the socket.
func (c *conn) RemoteAddr() net.Addr {
	if c.proxy != nil {
		if client := c.proxy.client.Load(); client != nil {
			return client
		}
	}
	return c.Conn.RemoteAddr()
}

// await reads the header on the first call. Later calls return the same error.
func (h *proxyHeader) await() error {
	h.once.Do(func() {
		header, err := proxyproto.Read(h.c.Conn)
		if err == nil && header.Proxied {
			err = h.setClient(&proxiedAddr{AddrPort: header.Source, tls: header.TLS})
		}
		if errors.Is(err, proxyproto.ErrHeader) {
			s := h.c.s
			s.counters.rejected[noProxyHeader].Add(1)
			s.limited.Warn("a trusted proxy sends no valid PROXY protocol header, its connection is closed",
				"address", h.c.Conn.RemoteAddr().String(), "err", err)
		}
		h.err = err
	})
	return h.err
}

// setClient counts the connection for the address of its client.
func (h *proxyHeader) setClient(a *proxiedAddr) error {
	s := h.c.s
	replaced, reason, err := s.countClient(h.c, s.countedBlock(a.Addr()))
	if err != nil {
		return err
	}
	if reason != nil {
		s.counters.rejected[reason.reason].Add(1)
		a.tooMany = true
	}
	h.client.Store(a)
	if replaced != nil {
		_ = replaced.Close() // an error means that the client has closed it
	}
	return nil
}

// countClient counts an open connection for an address too, or returns the limit that it exceeds.
// replaced is the evicted connection, which the caller closes.
func (s *Server) countClient(c *conn, block netip.Addr) (replaced *conn, broken *limit, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, open := s.all.conns[c]; !open { // evicted meanwhile
		return nil, nil, net.ErrClosed
	}
	if own := s.perIP[block]; own != nil && len(own.conns) >= s.perIPLimit() {
		if replaced = own.evictIdle(); replaced == nil {
			return nil, tooManyPerIP, nil
		}
		s.counters.evicted[tooManyPerIP.reason].Add(1)
		s.removeLocked(replaced)
	}
	c.block = block
	s.addPerIP(c)
	return replaced, nil, nil
}
