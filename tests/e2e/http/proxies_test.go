package http

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

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

// haproxyTCP has as arguments: what to listen on, the gateway, the source address, the option that
// sends the header.
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
	dir, address := t.TempDir(), lab.Address(lab.Port())
	conf := filepath.Join(dir, "haproxy.cfg")
	require.NoError(t, os.WriteFile(conf, fmt.Appendf(nil, haproxyTCP, address, gateway, proxyAddress, option), 0o600))
	p, err := lab.Start(address, filepath.Join(dir, "log"), lab.Listens(address), "haproxy", "-db", "-f", conf)
	require.NoError(t, err)
	t.Cleanup(p.Stop)
	return address
}

// withTLS returns the keys of a certificate.
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

// proxied returns a dialer of connections that begin with the header of a proxy.
func proxied(client string) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, address)
		if err == nil {
			_, err = io.WriteString(c, "PROXY TCP4 "+client+" 198.51.100.1 56324 443\r\n")
		}
		return c, err
	}
}

// fetch reads a whole response.
func fetch(t *testing.T, client *http.Client, url string) e2e.Response {
	t.Helper()
	resp, err := client.Get(url)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return e2e.Response{Response: resp, Body: body}
}

// protocols are those of clients, with the scheme of URLs and the keys of the listener.
func protocols(t *testing.T) map[string][2]string {
	secure := withTLS(t)
	return map[string][2]string{"HTTP/1.1": {"http", ""}, "HTTP/1.1 by TLS": {"https", secure},
		"HTTP/2.0": {"https", secure}}
}

// TestBehindHAProxy: with both versions of the PROXY protocol, by each protocol of clients, the log
// has the client behind the proxy, for each request of a connection. Large files go by sendfile
// still.
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
				resp := fetch(t, client, url+f.URL())
				require.Equal(t, 200, resp.StatusCode)
				require.Equal(t, name[:len("HTTP/n.n")], resp.Proto)
				require.True(t, bytes.Equal(f.Content, resp.Body))
			}
			require.Equal(t, name == "HTTP/1.1", p.Metric("fdfs_gateway_sendfile_bytes_total") >= 4<<20)
			direct := fetch(t, clientFrom(t, "127.0.210.9", false), protocol[0]+"://"+p.Addrs[0]+small.URL())
			require.Equal(t, 200, direct.StatusCode, "a client without proxy")
			eventually.True(t, func() bool {
				text, _ := os.ReadFile(log)
				return strings.Count(string(text), clientAddress+" - - [") == 3 &&
					strings.Contains(string(text), "127.0.210.9 - - [")
			}, "%s, %s", option, name)
		}
	}
}

// TestProxyHeader: in pieces within read_timeout; missing from the proxy, or sent by another host,
// it ends the connection. A connection that waits for its header blocks no other.
func TestProxyHeader(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	f := s.Normal("jpg", s.Bytes(1000))
	p := e2e.Serve(t, s, "[gateway]", "trusted_proxies = "+proxyAddress, "client_address = proxy-protocol")
	request := e2e.Request(http.MethodGet, f.URL(), "Connection: close")
	const header = "PROXY TCP4 192.0.2.1 198.51.100.1 56324 443\r\n"
	from := func(address string, pieces ...string) string {
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
		c, err := dialer.Dial("tcp", p.Addrs[0])
		require.NoError(t, err)
		defer c.Close()
		require.NoError(t, c.SetDeadline(time.Now().Add(e2e.Timeout)))
		for _, piece := range pieces {
			_, err = io.WriteString(c, piece)
			require.NoError(t, err)
			time.Sleep(time.Millisecond) // a packet of its own, most of the time
		}
		got, _ := io.ReadAll(c) // a reset has no response either
		return string(got)
	}
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(proxyAddress)}}
	silent, err := dialer.Dial("tcp", p.Addrs[0])
	require.NoError(t, err)
	defer silent.Close()
	require.Contains(t, from(proxyAddress, header+request), "HTTP/1.1 200 ")
	require.Contains(t, from(proxyAddress, append(strings.Split(header, ""), request)...), "HTTP/1.1 200 ")
	require.Contains(t, from(clientAddress, request), "HTTP/1.1 200 ")
	require.Empty(t, from(proxyAddress, request))
	require.Empty(t, from(proxyAddress, "PROXY TCP4 192.0.2.1\r\n"+request))
	require.NotContains(t, from(clientAddress, header+request), " 200 ")
	require.EqualValues(t, 2, p.Metric(`fdfs_gateway_connections_refused_total{reason="proxy_header"}`))
}

// TestForwardedFields: the fields of a proxy decide the client in the log and the scheme of
// redirects; those of others mean nothing.
func TestForwardedFields(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	f := s.Normal("jpg", s.Bytes(1000))
	for method, field := range map[string]string{
		"x-forwarded-for": "X-Forwarded-For: 6.6.6.6, 192.0.2.1, " + proxyAddress, "x-real-ip": "X-Real-IP: 192.0.2.1",
		"forwarded": `Forwarded: for=6.6.6.6, for="192.0.2.1:80";proto=https`,
	} {
		log := filepath.Join(t.TempDir(), "access.log")
		p := e2e.Serve(t, s, "[gateway]", "trusted_proxies = 127.0.210.0/30", "client_address = "+method,
			"access_log = "+log, "[access]", "deny = 192.0.2.66")
		for source, want := range map[string]string{proxyAddress: "192.0.2.1", "127.0.210.9": "127.0.210.9"} {
			client := clientFrom(t, source, false)
			for value, status := range map[string]int{"": 200, "66": 403} {
				req, err := http.NewRequest(http.MethodGet, "http://"+p.Addrs[0]+f.URL(), nil)
				require.NoError(t, err)
				name, text, _ := strings.Cut(field, ": ")
				if value != "" {
					text = strings.Replace(text, "192.0.2.1", "192.0.2."+value, 1)
				}
				req.Header.Set(name, text)
				resp, err := client.Do(req)
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				if source != proxyAddress {
					status = 200
				}
				require.Equal(t, status, resp.StatusCode, "%s from %s", method, source)
			}
			eventually.True(t, func() bool {
				text, _ := os.ReadFile(log)
				return strings.Contains(string(text), "\n"+want+" - - [") || strings.HasPrefix(string(text), want+" ")
			}, "%s from %s", method, source)
		}
		text, err := os.ReadFile(log)
		require.NoError(t, err)
		require.NotContains(t, string(text), "6.6.6.6")
	}
}

// TestHealthPath: balancers ask on the listener for files, without a line in the log.
func TestHealthPath(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	f := s.Normal("jpg", s.Bytes(1000))
	log := filepath.Join(t.TempDir(), "access.log")
	p := e2e.Serve(t, s, "http.anti_steal.check_token = true", "http.anti_steal.secret_key = GoldenSecret-2024",
		"[gateway]", "health_path = /health", "access_log = "+log, "[access]", "deny = 127.0.0.0/8")
	require.Equal(t, 200, p.Get("/health").StatusCode)
	require.Equal(t, 403, p.Get(f.URL()).StatusCode)
	require.NoError(t, os.Rename(s.Root(storetest.Group, 0)+"/data", s.Root(storetest.Group, 0)+"/gone"))
	eventually.True(t, func() bool { return p.Get("/health").StatusCode == 503 })
	code, _ := p.AdminGet("/readyz")
	require.Equal(t, 503, code)
	require.NoError(t, os.Rename(s.Root(storetest.Group, 0)+"/gone", s.Root(storetest.Group, 0)+"/data"))
	eventually.True(t, func() bool { return p.Get("/health").StatusCode == 200 })
	text, err := os.ReadFile(log)
	require.NoError(t, err)
	require.NotContains(t, string(text), "/health")
}

// TestAccessRules: a change of [access] is applied by reload, and counts of clients survive it.
func TestAccessRules(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	f := s.Normal("jpg", s.Bytes(1000))
	const rates = "requests_per_second = 0.01\nrequests_burst = 3\n"
	conf := e2e.WriteConfig(t, s.Config("[gateway]", "listen = 127.0.0.1:0", "admin_listen = 127.0.0.1:0", "[access]",
		rates))
	page := filepath.Join(filepath.Dir(conf), "no.txt") // in a folder that Landlock leaves open
	require.NoError(t, os.WriteFile(page, []byte("ask us first"), 0o600))
	p := e2e.ServeConfig(t, conf)
	for range 3 {
		require.Equal(t, 200, p.Do(http.MethodHead, f.URL()).StatusCode)
	}
	limited := p.Get(f.URL())
	require.Equal(t, 429, limited.StatusCode)
	require.NotEmpty(t, limited.Header.Get("Retry-After"))
	reload := func(lines string) {
		text := s.Config("[gateway]", "listen = 127.0.0.1:0", "admin_listen = 127.0.0.1:0", "[access]", lines)
		require.NoError(t, os.WriteFile(conf, []byte(text), 0o600))
		code, body := p.AdminPost("/reload", "")
		require.Equal(t, 200, code, body)
	}
	reload(rates + "referers = none\n")
	require.Equal(t, 429, p.Get(f.URL()).StatusCode)
	reload("referers = none, *.good.test\nreferer_file = " + page + "\n")
	require.Equal(t, f.Content, p.Get(f.URL()).Body)
	require.Equal(t, f.Content, p.Get(f.URL(), "Referer: https://www.good.test/").Body)
	hotlink := p.Get(f.URL(), "Referer: https://evil.test/")
	require.Equal(t, 200, hotlink.StatusCode)
	require.Equal(t, "ask us first", string(hotlink.Body))
	require.EqualValues(t, 1, p.Metric(`fdfs_gateway_access_refused_total{reason="referer"}`))
}

// TestSendRate: a response takes its time, over TLS and HTTP/2 too, a client that leaves ends it,
// and a stop does not wait for it.
func TestSendRate(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	f := s.Normal("mp4", s.Bytes(1<<20))
	for name, protocol := range protocols(t) {
		p := e2e.Serve(t, s, "[gateway]", protocol[1], "[access]", "send_rate = 512KB", "send_rate_after = 256KB")
		began := time.Now()
		resp := fetch(t, clientFrom(t, clientAddress, name == "HTTP/2.0"), protocol[0]+"://"+p.Addrs[0]+f.URL())
		require.Equal(t, name[:len("HTTP/n.n")], resp.Proto)
		require.True(t, bytes.Equal(f.Content, resp.Body))
		const least = 1350 * time.Millisecond // 768 KB at the rate, less a tenth
		took := time.Since(began)
		require.GreaterOrEqual(t, took, least, name)
		t.Logf("%s: %v", name, took)
		byKernel := func() bool { return p.Metric("fdfs_gateway_sendfile_bytes_total") >= 1<<20 }
		if name == "HTTP/1.1" {
			eventually.True(t, byKernel)
		} else {
			require.False(t, byKernel())
		}
	}
	slow := e2e.Serve(t, s, "[gateway]", "min_send_rate = 1MB", "[access]", "send_rate = 100")
	_, c := slow.Download(f)
	require.NoError(t, c.Close())
	eventually.True(t, func() bool { return slow.Metric("fdfs_gateway_connections") == 0 })
	c = slow.Dial()
	_, err := io.WriteString(c, e2e.Request(http.MethodGet, f.URL()))
	require.NoError(t, err)
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	require.NoError(t, err)
	require.NoError(t, slow.Cmd.Process.Signal(syscall.SIGTERM))
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.True(t, bytes.Equal(f.Content, body), "at a stop the rest is sent at once")
	slow.AwaitExit()
}
