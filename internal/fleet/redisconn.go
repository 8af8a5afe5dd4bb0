package fleet

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sys/unix"
)

// dialer returns a function that connects to Redis. dialed is called with each connection, unless
// it is nil.
func (o *Options) dialer(dialed func(net.Conn)) func(ctx context.Context, network, address string) (net.Conn, error) {
	dial := redis.NewDialer(&redis.Options{DialTimeout: o.Timeout, TLSConfig: o.TLS})
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		if dialed != nil {
			dialed(conn)
		}
		if c, ok := conn.(*tls.Conn); ok {
			conn = redisConn{c}
		}
		return conn, nil
	}
}

// redisConn is a TLS connection to Redis whose failed writes return the alert of the server. With
// TLS 1.3 the client's handshake is over before the server has checked the client's certificate
// (RFC 8446 section 2). A server that rejects it sends an alert and closes, so the first write may
// fail with a reset, which does not name the cause, while the alert is still unread.
type redisConn struct{ *tls.Conn }

// alertTimeout bounds the read of an alert. A read of a reset connection returns at once.
const alertTimeout = time.Second

// Write implements net.Conn.
func (c redisConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if !errors.Is(err, unix.ECONNRESET) && !errors.Is(err, unix.EPIPE) {
		return n, err
	}
	if c.SetReadDeadline(time.Now().Add(alertTimeout)) != nil {
		return n, err
	}
	_, cause := c.Read(make([]byte, 1))
	var alert *net.OpError
	if errors.As(cause, &alert) && alert.Op == "remote error" { // as crypto/tls names an alert
		return n, cause
	}
	return n, err
}
