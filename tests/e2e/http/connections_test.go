package http

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
)

// TestConnectionLimits: when all connections are busy, a further one is rejected with 503, or with
// 429 at the limit of an address. The end of a connection makes room again.
func TestConnectionLimits(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	f, small := s.Normal("mp4", s.Bytes(32<<20)), s.Normal("jpg", s.Bytes(1000))
	for name, tt := range map[string]struct{ key, status, reason string }{
		"all":         {"max_connections = 2", "HTTP/1.1 503 ", "overload"},
		"per address": {"max_connections_per_ip = 2", "HTTP/1.1 429 ", "per_ip"},
	} {
		t.Run(name, func(t *testing.T) {
			p := e2e.Serve(t, s, "[gateway]", tt.key, "shutdown_timeout = 1s", "[access]", "send_rate = 100KB")
			_, first := p.Download(f.URL())
			_, second := p.Download(f.URL())
			for _, c := range []net.Conn{first, second} {
				go func() { _, _ = io.Copy(io.Discard, c) }() // ends with the connection
			}
			rejected := p.Raw(e2e.Request(http.MethodGet, f.URL()))
			require.True(t, strings.HasPrefix(rejected, tt.status), "%.100q", rejected)
			require.Contains(t, rejected, "\r\nRetry-After: ")
			require.Regexp(t, `\r\nDate: \w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT\r\n`, rejected)
			eventually.True(t, func() bool {
				return p.Metric(`fdfs_gateway_connections_refused_total{reason="`+tt.reason+`"}`) == 1
			})
			require.NoError(t, first.Close())
			eventually.True(t, func() bool { return p.Metric("fdfs_gateway_connections") == 1 })
			eventually.True(t, func() bool { return p.Sends(small.URL()) })
		})
	}
}

// TestIdleConnectionsMakeRoom: if idle clients hold all connections, other clients get a response
// at once, on connections that replace idle ones. A download that began before is not aborted.
func TestIdleConnectionsMakeRoom(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	small, large := s.Normal("jpg", s.Bytes(1000)), s.Normal("mp4", s.Bytes(32<<20))
	for name, tt := range map[string]struct{ key, send, reason string }{
		"nothing sent":         {"max_connections = 24", "", "overload"},
		"idle after a request": {"max_connections = 24", e2e.Request(http.MethodHead, small.URL()), "overload"},
		"half of a head": {"max_connections = 24", "GET " + small.URL() + " HTTP/1.1\r\nHost: h\r\nX-A: ",
			"overload"},
		"half of a body": {"max_connections = 24", e2e.Request(http.MethodGet, small.URL(), "Content-Length: 9") +
			"x", "overload"},
		"one address, too many": {"max_connections_per_ip = 24", "", "per_ip"},
	} {
		t.Run(name, func(t *testing.T) {
			fillWithIdle(t, s, tt.key, tt.send, tt.reason, small, large)
		})
	}
}

// mostConnections is the limit in TestIdleConnectionsMakeRoom.
const mostConnections = 24

// leastIdle is the time that a connection may be idle when hardly any connections are free.
const leastIdle = 5 * time.Second

// fillWithIdle takes all connections of a gateway, one for a download, and sends twice as many
// requests on new ones. Each replaces an idle connection, unless one has timed out: when hardly any
// connections are free, idle ones time out after a few seconds.
func fillWithIdle(t *testing.T, s *storetest.Store, key, send, reason string, small, large storetest.Object) {
	t.Helper()
	p := e2e.Serve(t, s, "[gateway]", key, "read_timeout = 5m", "idle_timeout = 5m") // longer than the test
	busy, _ := p.Download(large.URL())
	for range mostConnections - 1 {
		c := p.Dial()
		_, err := io.WriteString(c, send)
		require.NoError(t, err)
		if strings.HasPrefix(send, "HEAD ") {
			_, err = c.Read(make([]byte, 1))
			require.NoError(t, err)
		}
	}
	eventually.True(t, func() bool { return p.Metric("fdfs_gateway_connections") == mostConnections })
	for range 2 * mostConnections {
		began := time.Now()
		c := p.Dial() // and left open
		_, err := io.WriteString(c, e2e.Request(http.MethodGet, small.URL()))
		require.NoError(t, err)
		if time.Since(began) > leastIdle/2 { // this client was late: its connection may have been idle for too long
			continue
		}
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		require.NoError(t, err)
		require.Equal(t, 200, resp.StatusCode)
		require.Less(t, time.Since(began), e2e.Prompt)
	}
	require.LessOrEqual(t, p.Metric("fdfs_gateway_connections"), float64(mostConnections))
	replaced := p.Metric(`fdfs_gateway_connections_replaced_total{reason="` + reason + `"}`)
	require.Positive(t, replaced)
	require.LessOrEqual(t, replaced, float64(2*mostConnections))
	got, err := io.ReadAll(busy.Body)
	require.NoError(t, err)
	require.True(t, bytes.Equal(large.Content, got), "the download is whole")
}

// TestStalledClientsMakeRoom: if clients that take nothing of a response hold all connections,
// others are served in their place. Clients that read slowly keep theirs.
func TestStalledClientsMakeRoom(t *testing.T) {
	t.Parallel()
	const most, readers = 200, 20
	s := storetest.New(t)
	large := s.Normal("mp4", s.Bytes(16<<20))
	line := fmt.Sprintf("max_connections = %d", most)
	for name, p := range map[string]*e2e.Process{
		"plain": e2e.Serve(t, s, "[gateway]", line, "shutdown_timeout = 1s"),
		"TLS":   e2e.ServeHTTP2(t, s, "[gateway]", line, "shutdown_timeout = 1s"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begin := func() (c net.Conn, began bool) {
				if p.TLS == nil {
					c = p.In(t).Dial()
				} else if secure, err := tls.Dial("tcp", p.Addrs[0], p.TLS); err == nil {
					c = secure
					t.Cleanup(func() { _ = c.Close() })
				} else { // it is rejected
					return nil, false
				}
				head := make([]byte, len("HTTP/1.1 200"))
				_, err := io.WriteString(c, e2e.Request(http.MethodGet, large.URL()))
				if err == nil {
					_, err = io.ReadFull(c, head)
				}
				return c, err == nil && string(head) == "HTTP/1.1 200"
			}
			var slow []net.Conn
			for i := range most {
				c, began := begin()
				require.True(t, began)
				if i < readers {
					slow = append(slow, c)
				}
			}
			read := func(bytes int64) {
				for _, c := range slow {
					_, err := io.CopyN(io.Discard, c, bytes)
					require.NoError(t, err)
				}
			}
			for range most / 2 {
				eventually.True(t, func() bool {
					read(10_000)
					_, began := begin() // and left open
					return began
				})
			}
			read(100_000)
		})
	}
}
