package gateway

import (
	"bufio"
	"cmp"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"fastdfs-gateway/internal/httpserver"
	"fastdfs-gateway/internal/httpserver/access"
	"fastdfs-gateway/internal/httpserver/clientaddr"
	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/internal/testing/logtest"
	"fastdfs-gateway/tests/storetest"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
)

// networksOf returns the set of these networks.
func networksOf(t *testing.T, prefixes ...string) *clientaddr.Networks {
	t.Helper()
	var list []netip.Prefix
	for _, p := range prefixes {
		list = append(list, netip.MustParsePrefix(p))
	}
	return clientaddr.NewNetworks(list, false)
}

// proxies returns trusted proxies of one network.
func proxies(t *testing.T, network string, method clientaddr.Method) *clientaddr.Proxies {
	t.Helper()
	return &clientaddr.Proxies{Trusted: networksOf(t, network), Method: method}
}

// combinedLog returns an access log and its output.
func combinedLog(t *testing.T) (*AccessLog, *logtest.Buffer) {
	t.Helper()
	var log logtest.Buffer
	lines, err := NewAccessLog(&log, AccessLogOptions{})
	require.NoError(t, err)
	return lines, &log
}

// send writes texts, one after the other, on a new connection, and reads a response.
func (r *running) send(texts ...string) (net.Conn, *http.Response, error) {
	r.t.Helper()
	c := r.dial()
	for _, text := range texts {
		_, err := io.WriteString(c, text)
		require.NoError(r.t, err)
		time.Sleep(time.Millisecond) // so that they arrive in pieces, most of the time
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	return c, resp, err
}

// TestClientOfARequest: the log has the client from the fields of a trusted proxy, by each method.
// From other peers the same fields are ignored.
func TestClientOfARequest(t *testing.T) {
	s := storetest.New(t)
	f := s.Normal("jpg", s.Bytes(10))
	fields := []string{"X-Forwarded-For: 6.6.6.6, 192.0.2.1", "X-Forwarded-For: 127.0.0.9", "X-Real-IP: 192.0.2.2",
		`Forwarded: for=6.6.6.6, for="[2001:db8::3]:80";proto=https`}
	for method, want := range map[clientaddr.Method]string{
		clientaddr.ByForwardedFor: "192.0.2.1", clientaddr.ByRealIP: "192.0.2.2",
		clientaddr.ByForwarded: "2001:db8::3",
	} {
		for trusted, want := range map[string]string{"127.0.0.0/8": want, "10.0.0.0/8": "127.0.0.1"} {
			lines, log := combinedLog(t)
			r := run(t, Options{Store: openLocal(t, s), Access: lines, Proxies: proxies(t, trusted, method)},
				httpserver.Options{})
			require.Contains(t, r.ask("GET", f.URL(), fields...), "200 OK")
			eventually.True(t, func() bool { return strings.HasPrefix(log.String(), want+" ") }, log.String())
		}
	}
}

// TestProxyHeaders: a connection of a trusted proxy begins with a PROXY header, perhaps in pieces.
// The client in the header counts for the log and the limit. A connection without a header is
// closed.
func TestProxyHeaders(t *testing.T) {
	s := storetest.New(t)
	f := s.Normal("jpg", s.Bytes(10))
	lines, log := combinedLog(t)
	r := run(t, Options{Store: openLocal(t, s), Access: lines,
		Proxies: proxies(t, "127.0.0.0/8", clientaddr.ByProxyProtocol)}, httpserver.Options{MaxConnectionsPerIP: 1})
	request := "GET " + f.URL() + " HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: 6.6.6.6\r\n\r\n"
	const v1 = "PROXY TCP4 192.0.2.1 198.51.100.1 56324 443\r\n"
	c, resp, err := r.send(v1[:3], v1[3:20], v1[20:len(v1)-1], "\n"+request[:5], request[5:])
	require.NoError(t, err)
	require.Equal(t, 200, resp.StatusCode)
	require.NoError(t, resp.Body.Close())
	eventually.True(t, func() bool { return strings.HasPrefix(log.String(), "192.0.2.1 ") })
	_, resp, err = r.send("PROXY TCP6 2001:db8::1 ::1 1 1\r\n" + request)
	require.NoError(t, err)
	require.Equal(t, 200, resp.StatusCode, "another client")
	_, resp, err = r.send("PROXY UNKNOWN\r\n" + request)
	require.NoError(t, err)
	require.Equal(t, 200, resp.StatusCode, "the proxy itself")
	eventually.True(t, func() bool { return strings.Contains(log.String(), "\n127.0.0.1 ") })
	for _, none := range []string{request, "PROXY TCP4 x\r\n" + request, "\x16\x03\x01"} {
		_, resp, err = r.send(none)
		require.Error(t, err, "%v", resp)
	}
	require.EqualValues(t, 3, r.server.Stats().Rejected["proxy_header"])
	require.NoError(t, c.Close())
	require.NotContains(t, log.String(), "6.6.6.6")
}

// TestFieldsBehindProxyHeaders: header fields of a proxy with the PROXY protocol are ignored, since
// it may pass on those of the client. The PROXY header itself reports TLS.
func TestFieldsBehindProxyHeaders(t *testing.T) {
	s := storetest.New(t)
	f := s.Normal("jpg", s.Bytes(10))
	r := run(t, Options{Store: openLocal(t, s), HTTPSPort: 443,
		Proxies: proxies(t, "127.0.0.0/8", clientaddr.ByProxyProtocol)}, httpserver.Options{})
	// Version 2 for 192.0.2.1:1, with the TLV of a client with or without TLS.
	header := func(client byte) string {
		return "\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x14\xc0\x00\x02\x01\xc0\x00\x02\x02\x00\x01\x00\x02" +
			"\x20\x00\x05" + string(rune(client)) + "\x00\x00\x00\x00"
	}
	for start, want := range map[string]string{"PROXY TCP4 192.0.2.1 198.51.100.1 56324 443\r\n": "301",
		"PROXY UNKNOWN\r\n": "301", header(0): "301", header(1): "200"} {
		c, resp, err := r.send(start + "GET " + f.URL() + " HTTP/1.1\r\nHost: gw.test\r\n" +
			"X-Forwarded-Proto: https\r\nX-Forwarded-Host: evil.test\r\nForwarded: proto=https;host=evil.test\r\n\r\n")
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, want, strconv.Itoa(resp.StatusCode), "%q", start)
		if want == "301" {
			require.Equal(t, "https://gw.test"+f.URL(), resp.Header.Get("Location"))
		}
		require.NoError(t, c.Close())
	}
}

// TestProxyHeaderLimit: a second busy connection of one client gets 429.
func TestProxyHeaderLimit(t *testing.T) {
	s := storetest.New(t)
	f := s.Normal("mp4", s.Bytes(32<<20))
	r := run(t, Options{Store: openLocal(t, s), Proxies: proxies(t, "127.0.0.0/8", clientaddr.ByProxyProtocol)},
		httpserver.Options{MaxConnectionsPerIP: 1})
	ask := func(client string) int {
		_, resp, err := r.send("PROXY TCP4 " + client + " 198.51.100.1 1 1\r\nGET " + f.URL() +
			" HTTP/1.1\r\nHost: h\r\n\r\n")
		require.NoError(t, err)
		if resp.StatusCode != 200 {
			require.True(t, resp.Close)
			require.NotEmpty(t, resp.Header.Get("Retry-After"))
		}
		return resp.StatusCode
	}
	require.Equal(t, 200, ask("192.0.2.1"))
	require.Equal(t, 200, ask("192.0.2.2"))
	require.Equal(t, 429, ask("192.0.2.1"))
	require.EqualValues(t, 1, r.server.Stats().Rejected["per_ip"])
}

// TestConnectionsOfProxies: connections of a trusted proxy are of many clients, and have no limit
// per address. Connections of other peers have it.
func TestConnectionsOfProxies(t *testing.T) {
	s := storetest.New(t)
	f := s.Normal("mp4", s.Bytes(32<<20))
	for trusted, want := range map[string]int{"127.0.0.0/8": 200, "10.0.0.0/8": 429} {
		r := run(t, Options{Store: openLocal(t, s), Proxies: proxies(t, trusted, clientaddr.ByForwardedFor)},
			httpserver.Options{MaxConnectionsPerIP: 1})
		for _, status := range []int{200, want} {
			_, resp, err := r.send("GET " + f.URL() + " HTTP/1.1\r\nHost: h\r\n\r\n")
			require.NoError(t, err)
			require.Equal(t, status, resp.StatusCode, trusted)
		}
	}
}

// TestSchemeAndHost: a trusted proxy decides the scheme and the host, with values that are valid in
// a URL.
func TestSchemeAndHost(t *testing.T) {
	for fields, want := range map[string]string{
		"":                                              "http://gw.test",
		"X-Forwarded-Proto: https":                      "https://gw.test",
		"X-Forwarded-Proto: HTTPS":                      "https://gw.test",
		"X-Forwarded-Proto: https, http":                "http://gw.test",
		"X-Forwarded-Proto: gopher":                     "http://gw.test",
		"X-Forwarded-Host: a.example:8443":              "http://a.example:8443",
		"X-Forwarded-Host: evil.test, a.example":        "http://a.example",
		"X-Forwarded-Host: [2001:db8::1]":               "http://[2001:db8::1]",
		"X-Forwarded-Host: a.example/path":              "http://gw.test",
		"X-Forwarded-Host: user@a.example":              "http://gw.test",
		"Forwarded: for=1.1.1.1;proto=https":            "http://gw.test", // not the method in use
		"X-Forwarded-Host: a.test\x01":                  "http://gw.test",
		"X-Forwarded-Host: " + strings.Repeat("a", 300): "http://gw.test",
	} {
		for trusted, expected := range map[string]string{"0.0.0.0/32": want, "10.0.0.0/8": "http://gw.test"} {
			r := newRequest(NewHandler(Options{Proxies: proxies(t, trusted, clientaddr.ByForwardedFor)}))
			r.x = newExchange("gw.test", fields)
			r.ctx = &r.x.Ctx
			r.findClient()
			require.Equal(t, expected, r.scheme()+"://"+string(r.hostField()), "%s, %s is trusted", fields, trusted)
		}
	}
}

// TestHealthPath: health_path is served before every rule, without a line in the log and without a
// count.
func TestHealthPath(t *testing.T) {
	s := storetest.New(t)
	lines, log := combinedLog(t)
	var broken atomic.Bool
	ready := func() error {
		if broken.Load() {
			return io.ErrUnexpectedEOF
		}
		return nil
	}
	r := run(t, Options{Store: openLocal(t, s), Access: lines, HealthPath: "/health",
		Ready: ready, Rules: &Rules{Deny: networksOf(t, "127.0.0.0/8")}}, httpserver.Options{})
	require.Contains(t, r.ask("GET", "/health"), "HTTP/1.1 200 OK")
	require.Contains(t, r.ask("GET", "/health?x=1"), "ready\n")
	require.NotContains(t, r.ask("HEAD", "/health"), "ready")
	broken.Store(true)
	response := r.ask("GET", "/health")
	require.Contains(t, response, "HTTP/1.1 503 ")
	require.NotContains(t, response, io.ErrUnexpectedEOF.Error())
	require.Empty(t, log.String())
	require.Zero(t, testutil.CollectAndCount(r.handler.o.Metrics.requestsTotal))
	require.Contains(t, r.ask("GET", "/health/x"), "HTTP/1.1 403 ")
	require.Contains(t, r.ask("POST", "/health"), "HTTP/1.1 403 ")
}

// TestRules: each access rule decides as configured, and the rules on addresses come first.
func TestRules(t *testing.T) {
	s := storetest.New(t)
	f := s.Normal("jpg", s.Bytes(10))
	referers, err := access.NewReferers([]string{"none", "good.test"})
	require.NoError(t, err)
	const evil = "Referer: http://evil.test/"
	network := func(prefix string) *clientaddr.Networks { return networksOf(t, prefix) }
	only, page := Rules{Referers: referers}, Rules{Referers: referers, RefererFile: &Page{Body: []byte("x")}}
	for name, tt := range map[string]struct {
		rules         Rules
		method, field string
		want, reason  string
	}{
		"allowed":           {rules: Rules{Allow: network("192.0.2.0/24")}, want: "200"},
		"not allowed":       {rules: Rules{Allow: network("192.0.3.0/24")}, want: "403", reason: deniedByAddress},
		"denied":            {rules: Rules{Deny: network("192.0.2.1/32")}, want: "403", reason: deniedByAddress},
		"not denied":        {rules: Rules{Deny: network("192.0.2.2/32")}, want: "200"},
		"proxy, not client": {rules: Rules{Deny: network("127.0.0.0/8")}, want: "200"},
		"deny wins": {rules: Rules{Allow: network("192.0.2.0/24"), Deny: network("192.0.2.1/32")}, want: "403",
			reason: deniedByAddress},
		"denied OPTIONS": {rules: Rules{Deny: network("192.0.2.1/32")}, method: "OPTIONS", want: "403",
			reason: deniedByAddress},
		"good referer":      {rules: only, field: "Referer: https://GOOD.test:80/a", want: "200"},
		"no referer":        {rules: only, want: "200"},
		"empty referer":     {rules: only, field: "Referer: ", want: "403", reason: deniedByReferer},
		"bad referer":       {rules: only, field: evil, want: "403", reason: deniedByReferer},
		"bad referer, HEAD": {rules: only, field: evil, method: "HEAD", want: "403", reason: deniedByReferer},
		"bad referer, POST": {rules: only, field: evil, method: "POST", want: "405"},
		"file":              {rules: page, field: evil, want: "200", reason: deniedByReferer},
		"address first": {rules: Rules{Referers: referers, Deny: network("192.0.2.1/32")}, field: evil, want: "403",
			reason: deniedByAddress},
	} {
		r := run(t, Options{Store: openLocal(t, s), Rules: &tt.rules,
			Proxies: proxies(t, "127.0.0.0/8", clientaddr.ByRealIP)}, httpserver.Options{})
		fields := []string{"X-Real-IP: 192.0.2.1"}
		if tt.field != "" {
			fields = append(fields, tt.field)
		}
		response := r.ask(cmp.Or(tt.method, "GET"), f.URL(), fields...)
		require.True(t, strings.HasPrefix(response, "HTTP/1.1 "+tt.want), "%s: %.100q", name, response)
		for _, reason := range []string{deniedByAddress, deniedByRate, deniedByReferer} {
			counted := testutil.ToFloat64(r.handler.o.Metrics.rejectedAccess.WithLabelValues(reason))
			require.Equal(t, reason == tt.reason, counted == 1, "%s: %s", name, reason)
		}
	}
}

// TestRequestRate: HEAD requests and 304 responses count for the rate, an IPv6 /64 is one client,
// and Retry-After is the time until the next request is allowed.
func TestRequestRate(t *testing.T) {
	s := storetest.New(t)
	f := s.Normal("jpg", s.Bytes(10))
	r := run(t, Options{Store: openLocal(t, s), Rules: &Rules{Requests: access.NewLimiter(0.01, 3)},
		Proxies: proxies(t, "127.0.0.0/8", clientaddr.ByForwardedFor)}, httpserver.Options{})
	const one, two = "X-Forwarded-For: 2001:db8::1", "X-Forwarded-For: 2001:db8::2"
	require.Contains(t, r.ask("HEAD", f.URL(), one), " 200 ")
	require.Contains(t, r.ask("GET", f.URL(), two, "If-Modified-Since: Fri, 01 Jan 2100 00:00:00 GMT"), " 304 ")
	require.Contains(t, r.ask("GET", "/nothing", one), " 400 ")
	response := r.ask("GET", f.URL(), two)
	require.Contains(t, response, " 429 Too Many Requests\r\n")
	require.Regexp(t, `\r\nRetry-After: (9\d|100)\r\n`, response)
	require.Contains(t, r.ask("GET", f.URL(), "X-Forwarded-For: 2001:db8:0:1::1"), " 200 ", "another /64")
	require.EqualValues(t, 1, testutil.ToFloat64(r.handler.o.Metrics.rejectedAccess.WithLabelValues(deniedByRate)))
}

// newExchange returns a request without a connection, with a Host field and one more.
func newExchange(host, field string) *httpserver.Exchange {
	x := &httpserver.Exchange{}
	x.Ctx.Request.SetRequestURI("/")
	x.Ctx.Request.Header.SetHost(host)
	if name, value, ok := strings.Cut(field, ": "); ok {
		x.Ctx.Request.Header.Set(name, value)
	}
	return x
}
