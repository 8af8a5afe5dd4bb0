package http

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/storetest"
)

// proxied returns a dial function for connections that begin with the header of a proxy.
func proxied(client string) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, address)
		if err == nil {
			_, err = io.WriteString(c, "PROXY TCP4 "+client+" 198.51.100.1 56324 443\r\n")
		}
		return c, err
	}
}

// TestSendRate: the send_rate of a section applies to the files of that section only, over
// HTTP/1.1, TLS and HTTP/2. The response ends when the client leaves, and a stop sends the rest at
// once.
func TestSendRate(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	content := s.Bytes(1 << 20)
	url := func(group, ext string) string { return s.In(group, 0, ext, content).URL() }
	dir := t.TempDir()
	e2e.WriteCertificate(t, dir, "a", nil, time.Hour, "a.example")
	p := e2e.Serve(t, s, "[gateway]", "min_send_rate = 1MB", "shutdown_timeout = 5m", "tls_listen = 127.0.0.1:0",
		e2e.TLSKeys(dir, "a"), "[access group2/ mp4]", "send_rate = 100", "send_rate_after = 256KB")
	q := &e2e.Process{T: t, Addrs: []string{p.TLSAddress()}, TLS: &tls.Config{InsecureSkipVerify: true}}
	secure := &http.Client{Transport: &http.Transport{TLSClientConfig: q.TLS}}
	var slow []*http.Response // of the limited section
	for base, client := range map[string]*http.Client{"http://" + p.Addrs[0]: {Transport: &http.Transport{}},
		"https://" + q.Addrs[0]: secure, "https://a.example": toAddress(q)} {
		for _, other := range []string{url(storetest.Group, "mp4"), url(storetest.Other, "jpg")} {
			require.NoError(t, e2e.GetWhole(client, base+other, content))
		}
		for range 2 {
			resp, err := client.Get(base + url(storetest.Other, "mp4"))
			require.NoError(t, err)
			_, err = io.ReadFull(resp.Body, make([]byte, 256<<10))
			require.NoError(t, err)
			slow = append(slow, resp)
		}
	}
	requests := func() float64 { return p.Metric("fdfs_gateway_open_files") }
	eventually.True(t, func() bool { return requests() <= 6 }, "the others have ended")
	require.Equal(t, 6.0, requests(), "at 100 bytes a second")
	for i := 0; i < 6; i += 2 {
		require.NoError(t, slow[i].Body.Close())
	}
	eventually.True(t, func() bool { return requests() == 3 }, "the clients have left")
	require.NoError(t, p.Cmd.Process.Signal(syscall.SIGTERM))
	for i := 1; i < 6; i += 2 {
		rest, err := io.ReadAll(slow[i].Body)
		require.NoError(t, err)
		require.True(t, bytes.Equal(content[256<<10:], rest), "at a stop the rest is sent at once")
		require.NoError(t, slow[i].Body.Close())
	}
	p.AwaitExit()
}

// toAddress returns a client for HTTP/2 that connects to the gateway, whatever host the URL names.
func toAddress(p *e2e.Process) *http.Client {
	client := p.HTTP2Client()
	client.Transport.(*http.Transport).DialContext = e2e.DialTo("tcp", p.Addrs[0])
	return client
}
