package ops

import (
	"bufio"
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"fastdfs-gateway/internal/testing/certtest"
	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
)

// certificate writes a self-signed certificate for the names to dir/name.crt, and its key to
// dir/name.key. ends is the time until the certificate expires.
func certificate(t *testing.T, dir, name string, key crypto.Signer, ends time.Duration, names ...string) {
	t.Helper()
	now := time.Now()
	certtest.New(t, certtest.Order{Name: name, Hosts: names, Key: key, Begin: now.Add(-240 * time.Hour),
		End: now.Add(ends)}).Write(t, filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key"))
}

// tlsKeys returns tls_cert and tls_key for the certificates of these names in dir.
func tlsKeys(dir string, names ...string) string {
	certs, keys := make([]string, len(names)), make([]string, len(names))
	for i, name := range names {
		certs[i], keys[i] = filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
	}
	return "tls_cert = " + strings.Join(certs, ", ") + "\ntls_key = " + strings.Join(keys, ", ")
}

var tlsLine = regexp.MustCompile(`msg=serving address=(\S+) tls=true`)

// tlsAddress waits until the gateway serves TLS, and returns the last address.
func tlsAddress(p *e2e.Process) (address string) {
	p.T.Helper()
	eventually.True(p.T, func() bool {
		for _, m := range tlsLine.FindAllStringSubmatch(p.LogText(), -1) {
			address = m[1]
		}
		return address != ""
	})
	return address
}

// hello connects by TLS, requests a file, and returns the state of the connection after the
// response, with which session tickets have arrived.
func hello(t *testing.T, address, url string, config *tls.Config) (tls.ConnectionState, error) {
	t.Helper()
	config.InsecureSkipVerify = true // the test looks at the certificate
	d := tls.Dialer{NetDialer: &net.Dialer{Timeout: e2e.Timeout}, Config: config}
	conn, err := d.DialContext(context.Background(), "tcp", address)
	if err != nil {
		return tls.ConnectionState{}, err
	}
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(e2e.Timeout)))
	if _, err := io.WriteString(conn, e2e.Request(http.MethodGet, url, "Connection: close")); err != nil {
		return tls.ConnectionState{}, err
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return tls.ConnectionState{}, err
	}
	require.Equal(t, http.StatusOK, resp.StatusCode)
	_, err = io.Copy(io.Discard, resp.Body)
	return conn.(*tls.Conn).ConnectionState(), err
}

// served returns the common name of the certificate that a client receives.
func served(t *testing.T, address, url, name string) string {
	t.Helper()
	state, err := hello(t, address, url, &tls.Config{ServerName: name})
	require.NoError(t, err)
	return state.PeerCertificates[0].Subject.CommonName
}

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
	certificate(t, dir, "a", nil, 2000*time.Hour, "a.example", "www.a.example")
	certificate(t, dir, "b", nil, 100*time.Hour, "*.b.example")
	certificate(t, dir, "rsa", rsaKey, 2000*time.Hour, "a.example")
	keys := tlsKeys(dir, "a", "b", "rsa")
	p := e2e.Serve(t, s, "[gateway]", "tls_listen = 127.0.0.1:0", keys)
	address := tlsAddress(p)
	require.NotEqual(t, p.Addrs[0], address)
	require.Equal(t, f.Content, p.Get(f.URL()).Body)
	for name, want := range map[string]string{"a.example": "a", "WWW.a.example": "a", "": "a", "other.example": "a",
		"x.b.example": "b", "b.example": "a", "x.y.b.example": "a"} {
		require.Equal(t, want, served(t, address, f.URL(), name), name)
	}
	old := &tls.Config{ServerName: "a.example", MaxVersion: tls.VersionTLS12,
		CipherSuites: []uint16{tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256}}
	state, err := hello(t, address, f.URL(), old)
	require.NoError(t, err)
	require.Equal(t, "rsa", state.PeerCertificates[0].Subject.CommonName)
	_, err = hello(t, address, f.URL(), &tls.Config{MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10})
	require.Error(t, err)
	require.Contains(t, p.Raw("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"), " 400 ", "a plain listener")

	end := p.Metric(`fdfs_gateway_certificate_expiry_timestamp_seconds{name="a.example"}`)
	require.InDelta(t, time.Now().Add(2000*time.Hour).Unix(), end, 3600)
	require.Positive(t, p.Metric(`fdfs_gateway_certificate_expiry_timestamp_seconds{name="*.b.example"}`))
	_, page := p.AdminGet("/status.json")
	require.Contains(t, page, "The certificate of *.b.example ends in 4 d")

	require.NoError(t, os.WriteFile(p.Conf, []byte(s.Config(e2e.WithListen([]string{"[gateway]",
		"tls_listen = 127.0.0.1:0", tlsKeys(dir, "rsa", "b"), "tls_min_version = 1.3"})...)), 0o600))
	requireReload(p, http.StatusOK)
	require.Equal(t, "rsa", served(t, address, f.URL(), "a.example"))
	_, err = hello(t, address, f.URL(), old)
	require.Error(t, err, "TLS 1.2")
	require.NoError(t, os.WriteFile(p.Conf, []byte(s.Config(e2e.WithListen(nil)...)), 0o600))
	requireReload(p, http.StatusOK)
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
	certificate(t, dir, "a", nil, 2000*time.Hour, "a.example")
	p := e2e.Serve(t, s, "[gateway]", "tls_listen = 127.0.0.1:0", tlsKeys(dir, "a"), "tls_redirect = true")
	address := tlsAddress(p)
	_, port, err := net.SplitHostPort(address)
	require.NoError(t, err)
	require.Equal(t, "a", served(t, address, f.URL(), ""))
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
	certificate(t, dir, "one", nil, 2000*time.Hour, "a.example")
	certificate(t, dir, "two", nil, 2000*time.Hour, "a.example")
	link := func(suffix, name string) {
		require.NoError(t, os.Symlink(name+suffix, filepath.Join(dir, "next")))
		require.NoError(t, os.Rename(filepath.Join(dir, "next"), filepath.Join(dir, "live"+suffix)))
	}
	link(".crt", "one")
	link(".key", "one")
	p := e2e.Serve(t, s, "[gateway]", "tls_listen = 127.0.0.1:0", tlsKeys(dir, "live"))
	address := tlsAddress(p)
	end := e2e.Always(t, 2, func() func() error {
		return func() error {
			_, err := hello(t, address, f.URL(), &tls.Config{})
			return err
		}
	})
	link(".crt", "two")
	eventually.True(t, func() bool { return strings.Contains(p.LogText(), "cannot be read again") })
	require.Equal(t, "one", served(t, address, f.URL(), "a.example"))
	link(".key", "two")
	eventually.True(t, func() bool { return served(t, address, f.URL(), "a.example") == "two" })
	require.NoError(t, os.WriteFile(filepath.Join(dir, "two.crt"), []byte("half"), 0o600))
	eventually.True(t, func() bool { return strings.Count(p.LogText(), "cannot be read again") == 2 })
	require.Equal(t, "two", served(t, address, f.URL(), "a.example"))
	requireReload(p, http.StatusUnprocessableEntity)
	end()
}
