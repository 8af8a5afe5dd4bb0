package fleet

import (
	"crypto/tls"
	"net"
	"testing"
	"time"

	"fastdfs-gateway/internal/testing/redistest"

	"github.com/stretchr/testify/require"
)

// TestAlertBehindReset: if the server rejects the client certificate and resets the connection
// before the client, whose handshake is over, has written, the error of the write has the alert of
// the server.
func TestAlertBehindReset(t *testing.T) {
	a := redistest.NewAuthority(t)
	pair, err := tls.LoadX509KeyPair(a.Issue("127.0.0.1"))
	require.NoError(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = listener.Close() }()
	closed := make(chan error, 1)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			closed <- err
			return
		}
		_ = tls.Server(conn, &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAnyClientCert}).
			Handshake()
		_ = conn.(*net.TCPConn).SetLinger(0) // resets
		closed <- conn.Close()
	}()
	o := Options{Timeout: 10 * time.Second, TLS: tlsOf(t, a, nil)}
	conn, err := o.dialer(nil)(t.Context(), "tcp", listener.Addr().String())
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	require.NoError(t, <-closed)

	_, err = conn.Write([]byte("PING\r\n"))
	require.ErrorContains(t, err, "certificate required")
	_, err = conn.Write([]byte("PING\r\n"))
	require.ErrorContains(t, err, "certificate required", "again")
}
