package e2e

import (
	"bufio"
	"context"
	"crypto"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"fastdfs-gateway/internal/testing/certtest"
	"fastdfs-gateway/internal/testing/eventually"

	"github.com/stretchr/testify/require"
)

// WriteCertificate writes a self-signed certificate for the names to dir/name.crt, and its key to
// dir/name.key. ends is the time until the certificate expires.
func WriteCertificate(t *testing.T, dir, name string, key crypto.Signer, ends time.Duration, names ...string) {
	t.Helper()
	now := time.Now()
	certtest.New(t, certtest.Order{Name: name, Hosts: names, Key: key, Begin: now.Add(-240 * time.Hour),
		End: now.Add(ends)}).Write(t, filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key"))
}

// TLSKeys returns tls_cert and tls_key for the certificates of these names in dir.
func TLSKeys(dir string, names ...string) string {
	certs, keys := make([]string, len(names)), make([]string, len(names))
	for i, name := range names {
		certs[i], keys[i] = filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
	}
	return "tls_cert = " + strings.Join(certs, ", ") + "\ntls_key = " + strings.Join(keys, ", ")
}

var tlsLine = regexp.MustCompile(`msg=serving address=(\S+) tls=true`)

// TLSAddress waits until the gateway serves TLS, and returns the last address.
func (p *Process) TLSAddress() (address string) {
	p.T.Helper()
	eventually.True(p.T, func() bool {
		for _, m := range tlsLine.FindAllStringSubmatch(p.LogText(), -1) {
			address = m[1]
		}
		return address != ""
	})
	return address
}

// Hello connects by TLS, requests a file, and returns the state of the connection after the
// response, with which session tickets have arrived.
func Hello(t *testing.T, address, url string, config *tls.Config) (tls.ConnectionState, error) {
	t.Helper()
	config.InsecureSkipVerify = true // the test looks at the certificate
	d := tls.Dialer{NetDialer: &net.Dialer{Timeout: Timeout}, Config: config}
	conn, err := d.DialContext(context.Background(), "tcp", address)
	if err != nil {
		return tls.ConnectionState{}, err
	}
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(Timeout)))
	if _, err := io.WriteString(conn, Request(http.MethodGet, url, "Connection: close")); err != nil {
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

// Served returns the common name of the certificate that a client receives.
func Served(t *testing.T, address, url, name string) string {
	t.Helper()
	state, err := Hello(t, address, url, &tls.Config{ServerName: name})
	require.NoError(t, err)
	return state.PeerCertificates[0].Subject.CommonName
}

// UnixClient returns a client that sends every request to a unix socket, whatever host the URL
// names.
func UnixClient(path string) *http.Client {
	return &http.Client{Timeout: Timeout, Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: DialTo("unix", path), TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
}

// GetUnix sends a GET request to a unix socket.
func GetUnix(t testing.TB, path, url string) Response {
	t.Helper()
	return Fetch(t, UnixClient(path), "http://localhost"+url)
}

// DialTo returns a dial function that connects to one address, whatever host the URL names.
func DialTo(network, address string) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
}
