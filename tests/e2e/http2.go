package e2e

import (
	"crypto/tls"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
)

// ServeHTTP2 starts a gateway like Serve, with TLS. Get and Do use HTTP/2 on one connection.
func ServeHTTP2(t *testing.T, s *storetest.Store, lines ...string) *Process {
	t.Helper()
	dir := t.TempDir()
	pool := Certificate(t, dir)
	if !slices.Contains(lines, "[gateway]") {
		lines = append(lines, "[gateway]")
	}
	at := slices.Index(lines, "[gateway]") + 1
	lines = slices.Insert(slices.Clone(lines), at, "tls_cert = "+dir+"/cert.pem", "tls_key = "+dir+"/key.pem")
	p := Serve(t, s, lines...)
	p.TLS = &tls.Config{RootCAs: pool}
	p.HTTP2 = p.HTTP2Client()
	return p
}

// OverHTTP2 returns a second gateway with the configuration of p, with TLS like that of ServeHTTP2.
// The first call starts it.
func (p *Process) OverHTTP2() *Process {
	t := p.T
	t.Helper()
	if p.twin != nil {
		return p.twin
	}
	dir := t.TempDir()
	pool := Certificate(t, dir)
	conf, err := os.ReadFile(p.Conf)
	require.NoError(t, err)
	keys := "[gateway]\ntls_cert = " + dir + "/cert.pem\ntls_key = " + dir + "/key.pem\n"
	text := strings.Replace(string(conf), "[gateway]\n", keys, 1)
	secure := filepath.Join(filepath.Dir(p.Conf), "http2.conf")
	require.NoError(t, os.WriteFile(secure, []byte(text), 0o600))
	h := ServeConfig(t, secure)
	h.TLS = &tls.Config{RootCAs: pool}
	h.HTTP2 = h.HTTP2Client()
	p.twin = h
	return h
}

// HTTP2Client returns a client for HTTP/2 only, with a new connection.
func (p *Process) HTTP2Client() *http.Client {
	p.T.Helper()
	var protocols http.Protocols
	protocols.SetHTTP2(true)
	transport := &http.Transport{TLSClientConfig: p.TLS.Clone(), Protocols: &protocols, DisableCompression: true}
	p.T.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// DialTLS opens a TLS connection to the first address, and requires that ALPN selects the protocol.
func (p *Process) DialTLS(protocol string) net.Conn {
	p.T.Helper()
	config := p.TLS.Clone()
	config.NextProtos = []string{protocol}
	c, err := tls.Dial("tcp", p.Addrs[0], config)
	require.NoError(p.T, err)
	p.T.Cleanup(func() { _ = c.Close() })
	require.NoError(p.T, c.SetDeadline(time.Now().Add(Timeout)))
	require.Equal(p.T, protocol, c.ConnectionState().NegotiatedProtocol)
	return c
}
