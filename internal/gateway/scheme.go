package gateway

import (
	"bytes"
	"crypto/tls"
	"net"
)

// scheme returns "https" for a request that came by TLS, and "http" for any other. A trusted proxy
// knows it better.
func (r *request) scheme() string {
	switch {
	case bytes.EqualFold(r.proto, []byte("https")):
		return "https"
	case bytes.EqualFold(r.proto, []byte("http")):
		return "http"
	case byTLS(r.ctx.Conn()):
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
