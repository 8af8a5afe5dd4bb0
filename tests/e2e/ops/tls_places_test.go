package ops

import (
	"crypto/tls"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
)

// TestTLSSockets: the gateway serves TLS on a unix socket of tls_listen, and on a socket of systemd
// with the name tls_listen.
func TestTLSSockets(t *testing.T) {
	t.Parallel()
	s, dir := storetest.New(t), t.TempDir()
	f := s.Normal("jpg", s.Bytes(100))
	e2e.WriteCertificate(t, dir, "a", nil, 2000*time.Hour, "a.example")
	path := filepath.Join(dir, "tls.sock")
	p := e2e.Serve(t, s, "[gateway]", "tls_listen = unix:"+path, e2e.TLSKeys(dir, "a"), "tls_redirect = true")
	require.Equal(t, path, p.TLSAddress())
	require.Equal(t, http.StatusOK, e2e.Fetch(t, e2e.UnixClient(path), "https://a.example"+f.URL()).StatusCode)
	require.Contains(t, p.Raw("GET /x HTTP/1.1\r\nHost: a.example:8080\r\nConnection: close\r\n\r\n"),
		"Location: https://a.example/x\r\n", "tls_listen has no port")

	files, addresses := tcpSockets(t, 2)
	conf := e2e.WriteConfig(t, s.Config("[gateway]", "listen = 127.0.0.1:1", "tls_listen = 127.0.0.1:2",
		"admin_listen =", e2e.TLSKeys(dir, "a")))
	p = startWith(t, conf, nil, []string{"tls_listen", "listen"}, files...)
	require.Equal(t, addresses[0], p.TLSAddress())
	require.Equal(t, addresses[1], p.Addrs[0])
	require.Equal(t, "a", e2e.Served(t, addresses[0], f.URL(), "a.example"))
	require.Equal(t, f.Content, p.Get(f.URL()).Body)
}

// TestReloadOfHTTP2: a reload changes whether later handshakes negotiate HTTP/2.
func TestReloadOfHTTP2(t *testing.T) {
	t.Parallel()
	s, dir := storetest.New(t), t.TempDir()
	e2e.WriteCertificate(t, dir, "a", nil, 2000*time.Hour, "a.example")
	config := func(value string) string {
		return s.Config(e2e.WithListen([]string{"[gateway]", "tls_listen = 127.0.0.1:0", e2e.TLSKeys(dir, "a"),
			"http2 = " + value})...)
	}
	p := e2e.ServeConfig(t, e2e.WriteConfig(t, config("true")))
	address := p.TLSAddress()
	for _, c := range []struct{ value, want string }{{"true", "h2"}, {"false", "http/1.1"}, {"true", "h2"}} {
		require.NoError(t, os.WriteFile(p.Conf, []byte(config(c.value)), 0o600))
		p.RequireReload(http.StatusOK)
		conn, err := tls.Dial("tcp", address,
			&tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2", "http/1.1"}})
		require.NoError(t, err)
		require.Equal(t, c.want, conn.ConnectionState().NegotiatedProtocol)
		require.NoError(t, conn.Close())
	}
}
