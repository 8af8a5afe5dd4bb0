package ops

import (
	"bufio"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
)

// TestTLSBesidePlain: a gateway serves plain and TLS listeners. It chooses the certificate by the
// name and by the kind of key that the client accepts, rejects versions of TLS that are too old,
// and shows when certificates expire, in metrics and on the status page.
func TestTLSBesidePlain(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	f := s.Normal("jpg", s.Bytes(100_000))
	dir := t.TempDir()
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	e2e.WriteCertificate(t, dir, "a", nil, 2000*time.Hour, "a.example", "www.a.example")
	e2e.WriteCertificate(t, dir, "b", nil, 100*time.Hour, "*.b.example")
	e2e.WriteCertificate(t, dir, "rsa", rsaKey, 2000*time.Hour, "a.example")
	keys := e2e.TLSKeys(dir, "a", "b", "rsa")
	p := e2e.Serve(t, s, "[gateway]", "tls_listen = 127.0.0.1:0", keys)
	address := p.TLSAddress()
	require.NotEqual(t, p.Addrs[0], address)
	require.Equal(t, f.Content, p.Get(f.URL()).Body)
	for name, want := range map[string]string{"a.example": "a", "WWW.a.example": "a", "": "a", "other.example": "a",
		"x.b.example": "b", "b.example": "a", "x.y.b.example": "a"} {
		require.Equal(t, want, e2e.Served(t, address, f.URL(), name), name)
	}
	old := &tls.Config{ServerName: "a.example", MaxVersion: tls.VersionTLS12,
		CipherSuites: []uint16{tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256}}
	state, err := e2e.Hello(t, address, f.URL(), old)
	require.NoError(t, err)
	require.Equal(t, "rsa", state.PeerCertificates[0].Subject.CommonName)
	_, err = e2e.Hello(t, address, f.URL(), &tls.Config{MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10})
	require.Error(t, err)
	require.Contains(t, p.Raw("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"), " 400 ", "a plain listener")

	end := p.Metric(`fdfs_gateway_certificate_expiry_timestamp_seconds{name="a.example"}`)
	require.InDelta(t, time.Now().Add(2000*time.Hour).Unix(), end, 3600)
	require.Positive(t, p.Metric(`fdfs_gateway_certificate_expiry_timestamp_seconds{name="*.b.example"}`))
	_, page := p.AdminGet("/status.json")
	require.Contains(t, page, "The certificate of *.b.example ends in 4 d")

	require.NoError(t, os.WriteFile(p.Conf, []byte(s.Config(e2e.WithListen([]string{"[gateway]",
		"tls_listen = 127.0.0.1:0", e2e.TLSKeys(dir, "rsa", "b"), "tls_min_version = 1.3"})...)), 0o600))
	p.RequireReload(http.StatusOK)
	require.Equal(t, "rsa", e2e.Served(t, address, f.URL(), "a.example"))
	_, err = e2e.Hello(t, address, f.URL(), old)
	require.Error(t, err, "TLS 1.2")
	require.NoError(t, os.WriteFile(p.Conf, []byte(s.Config(e2e.WithListen(nil)...)), 0o600))
	p.RequireReload(http.StatusOK)
	_, err = net.Dial("tcp", address)
	require.Error(t, err)
	require.Equal(t, http.StatusOK, p.Get(f.URL()).StatusCode)
	_, text := p.AdminGet("/metrics")
	require.NotContains(t, text, "certificate_expiry")
}

// TestTLSRedirect: plain requests are redirected to https at the same host, whatever their method
// and target. Requests over TLS are served, and malformed requests are rejected.
func TestTLSRedirect(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	f := s.Normal("jpg", s.Bytes(1000))
	dir := t.TempDir()
	e2e.WriteCertificate(t, dir, "a", nil, 2000*time.Hour, "a.example")
	p := e2e.Serve(t, s, "[gateway]", "tls_listen = 127.0.0.1:0", e2e.TLSKeys(dir, "a"), "tls_redirect = true")
	address := p.TLSAddress()
	_, port, err := net.SplitHostPort(address)
	require.NoError(t, err)
	require.Equal(t, "a", e2e.Served(t, address, f.URL(), ""))
	for _, c := range []struct {
		request string
		status  int
		want    string // host and target of Location
	}{
		{"GET " + f.URL() + "?token=x&ts=1 HTTP/1.1\r\nHost: a.example", 301, "a.example " + f.URL() + "?token=x&ts=1"},
		{"HEAD /x HTTP/1.1\r\nHost: a.example:8080", 301, "a.example /x"},
		{"POST /x HTTP/1.1\r\nHost: a.example\r\nContent-Length: 0", 308, "a.example /x"},
		{"OPTIONS /x HTTP/1.1\r\nHost: a.example", 308, "a.example /x"},
		{"GET / HTTP/1.1\r\nHost: [::1]:80", 301, "[::1] /"},
		{"GET http://b.example/x HTTP/1.1\r\nHost: a.example", 301, "b.example /x"},
		{"GET /x HTTP/1.1\r\nHost: a/b", 400, ""},
		{"GET /x HTTP/1.1\r\nHost:", 400, ""},
		{"GET /x HTTP/1.0", 400, ""},
		{"GET /x HTTP/1.1", 400, ""},
		{"GET /\x01 HTTP/1.1\r\nHost: a.example", 400, ""},
	} {
		text := p.Raw(c.request + "\r\nConnection: close\r\n\r\n")
		resp, err := http.ReadResponse(bufio.NewReader(strings.NewReader(text)),
			&http.Request{Method: strings.Fields(c.request)[0]})
		require.NoError(t, err, text)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, c.status, resp.StatusCode, "%s\n%s", c.request, text)
		want := ""
		if host, target, ok := strings.Cut(c.want, " "); ok {
			want = "https://" + host + ":" + port + target
		}
		require.Equal(t, want, resp.Header.Get("Location"), c.request)
	}
}

// TestCertificateRenewal: a new pair of certificate and key is served without a reload and without
// a failed request. The old pair stays if the new files do not match.
func TestCertificateRenewal(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	f := s.Normal("jpg", s.Bytes(1000))
	dir := t.TempDir()
	e2e.WriteCertificate(t, dir, "one", nil, 2000*time.Hour, "a.example")
	e2e.WriteCertificate(t, dir, "two", nil, 2000*time.Hour, "a.example")
	link := func(suffix, name string) {
		require.NoError(t, os.Symlink(name+suffix, filepath.Join(dir, "next")))
		require.NoError(t, os.Rename(filepath.Join(dir, "next"), filepath.Join(dir, "live"+suffix)))
	}
	link(".crt", "one")
	link(".key", "one")
	p := e2e.Serve(t, s, "[gateway]", "tls_listen = 127.0.0.1:0", e2e.TLSKeys(dir, "live"))
	address := p.TLSAddress()
	end := e2e.Always(t, 2, func() func() error {
		return func() error {
			_, err := e2e.Hello(t, address, f.URL(), &tls.Config{})
			return err
		}
	})
	link(".crt", "two")
	p.Logged("cannot be read again")
	require.Equal(t, "one", e2e.Served(t, address, f.URL(), "a.example"))
	link(".key", "two")
	eventually.True(t, func() bool { return e2e.Served(t, address, f.URL(), "a.example") == "two" })
	require.NoError(t, os.WriteFile(filepath.Join(dir, "two.crt"), []byte("half"), 0o600))
	eventually.True(t, func() bool { return strings.Count(p.LogText(), "cannot be read again") == 2 })
	require.Equal(t, "two", e2e.Served(t, address, f.URL(), "a.example"))
	p.RequireReload(http.StatusUnprocessableEntity)
	end()
}

// TestPlainOnTLS: plain HTTP on a TLS listener is 400 with a sentence, and a line in the log.
// TLS on a plain one is a line, too. Both are counted.
func TestPlainOnTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	e2e.WriteCertificate(t, dir, "a", nil, 2000*time.Hour, "a.example")
	p := e2e.Serve(t, storetest.New(t), "[gateway]", "tls_listen = 127.0.0.1:0", e2e.TLSKeys(dir, "a"))
	resp := e2e.Fetch(t, http.DefaultClient, "http://"+p.TLSAddress()+"/group1/M00/00/00/x.jpg")
	require.Equal(t, 400, resp.StatusCode)
	require.Equal(t, "this port speaks TLS: use https://\n", string(resp.Body))
	p.Logged("rejected a client: this port speaks TLS")

	_, err := tls.Dial("tcp", p.Addrs[0], &tls.Config{InsecureSkipVerify: true})
	require.Error(t, err)
	p.Logged("this port speaks plain HTTP")
	eventually.True(t, func() bool { return p.Metric(`fdfs_gateway_requests_total{code="400",source="none"}`) == 2 })
}
