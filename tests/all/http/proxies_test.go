package http

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/lab"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
)

// Addresses of the client and the proxy of these tests.
const (
	clientAddress = "127.0.210.1"
	proxyAddress  = "127.0.210.2"
)

// haproxyTCP is a format. Its arguments are the address to listen on, the gateway, the source
// address, and the option that sends the header.
const haproxyTCP = `global
	nbthread 1
defaults
	mode tcp
	timeout connect 1m
	timeout client 1m
	timeout server 1m
frontend front
	bind %[1]s
	default_backend gateway
backend gateway
	server gateway %[2]s source %[3]s %[4]s
`

// startHAProxy starts haproxy in front of the gateway.
func startHAProxy(t *testing.T, gateway, option string) (address string) {
	t.Helper()
	address = lab.Address(lab.Port())
	p, err := lab.RunHAProxy(t.TempDir(), address, fmt.Sprintf(haproxyTCP, address, gateway, proxyAddress, option))
	require.NoError(t, err)
	t.Cleanup(p.Stop)
	return address
}

// withTLS makes a certificate and returns tls_cert and tls_key for it.
func withTLS(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	e2e.Certificate(t, dir)
	return "tls_cert = " + dir + "/cert.pem\ntls_key = " + dir + "/key.pem"
}

// clientFrom returns a client with one connection from an address. With TLS it can use HTTP/2.
func clientFrom(t *testing.T, address string, http2 bool) *http.Client {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}, Timeout: e2e.Timeout}
	transport := &http.Transport{DialContext: dialer.DialContext, DisableCompression: true,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: http2}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: e2e.Timeout}
}

// protocols returns the protocols of clients, each with the scheme of URLs and the keys of the
// listener.
func protocols(t *testing.T) map[string][2]string {
	secure := withTLS(t)
	return map[string][2]string{"HTTP/1.1": {"http", ""}, "HTTP/1.1 by TLS": {"https", secure},
		"HTTP/2.0": {"https", secure}}
}

// TestBehindHAProxy: with both versions of the PROXY protocol, over each protocol of clients, the
// log contains the client behind the proxy for each request of a connection. Over plain HTTP/1.1,
// large files are still sent by sendfile.
func TestBehindHAProxy(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	small, large := s.Normal("jpg", s.Bytes(1000)), s.Normal("mp4", s.Bytes(4<<20))
	for _, option := range []string{"send-proxy", "send-proxy-v2"} {
		for name, protocol := range protocols(t) {
			log := filepath.Join(t.TempDir(), "access.log")
			p := e2e.Serve(t, s, "[gateway]", "trusted_proxies = "+proxyAddress, "client_address = proxy-protocol",
				"access_log = "+log, protocol[1])
			client := clientFrom(t, clientAddress, name == "HTTP/2.0")
			url := protocol[0] + "://" + startHAProxy(t, p.Addrs[0], option)
			for _, f := range []storetest.Object{small, large, small} {
				resp := e2e.Fetch(t, client, url+f.URL())
				require.Equal(t, 200, resp.StatusCode)
				require.Equal(t, name[:len("HTTP/n.n")], resp.Proto)
				require.True(t, bytes.Equal(f.Content, resp.Body))
			}
			require.Equal(t, name == "HTTP/1.1", p.Metric("fdfs_gateway_sendfile_bytes_total") >= 4<<20)
			direct := e2e.Fetch(t, clientFrom(t, "127.0.210.9", false), protocol[0]+"://"+p.Addrs[0]+small.URL())
			require.Equal(t, 200, direct.StatusCode, "a client without proxy")
			eventually.True(t, func() bool {
				text, _ := os.ReadFile(log)
				return strings.Count(string(text), clientAddress+" - - [") == 3 &&
					strings.Contains(string(text), "127.0.210.9 - - [")
			}, "%s, %s", option, name)
		}
	}
}
