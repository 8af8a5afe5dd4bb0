package gateway

import (
	"crypto/tls"
	"net"
)

// scheme returns "https" for a request that came by TLS, and "http" for any other.
func (r *request) scheme() string {
	if byTLS(r.ctx.Conn()) {
		return "https"
	}
	return "http"
}

// byTLS reports whether a connection, or one that it wraps, is encrypted.
func byTLS(c net.Conn) bool {
	for {
		switch c.(type) {
		case *tls.Conn, *stream:
			return true
		}
		outer, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			return false
		}
		c = outer.NetConn()
	}
}
