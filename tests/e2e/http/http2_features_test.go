package http

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
)

// TestHTTP2Rates: requests_per_second counts requests over HTTP/2, but not those of health_path. A
// 429 keeps the connection open.
func TestHTTP2Rates(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	url := s.Normal("jpg", s.Bytes(1000)).URL()
	p := e2e.ServeHTTP2(t, s, "[gateway]", "health_path = /health", "[access]", "requests_per_second = 0.01",
		"requests_burst = 2")
	for _, status := range []int{200, 200, 429} {
		require.Equal(t, 200, p.Get("/health").StatusCode)
		require.Equal(t, status, p.Get(url).StatusCode)
	}
	require.NotEmpty(t, p.Get(url).Header.Get("Retry-After"))
	require.Equal(t, 1.0, p.Metric("fdfs_gateway_connections"), "the connection is kept")
}

// TestHTTP2MakesRoom: at max_connections a new connection replaces an idle one, but none with a
// running response.
func TestHTTP2MakesRoom(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	small, large := s.Normal("jpg", s.Bytes(1000)), s.Normal("mp4", s.Bytes(32<<20))
	p := e2e.ServeHTTP2(t, s, "[gateway]", "max_connections = 4", "idle_timeout = 5m")
	busy, err := p.HTTP2.Get("https://" + p.Addrs[0] + large.URL())
	require.NoError(t, err)
	defer busy.Body.Close()
	for i := range 12 {
		resp, err := p.HTTP2Client().Get("https://" + p.Addrs[0] + small.URL())
		require.NoError(t, err)
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.True(t, bytes.Equal(small.Content, body))
		eventually.True(t, func() bool { return p.Metric("fdfs_gateway_connections") == float64(min(i+2, 4)) })
	}
	eventually.True(t, func() bool {
		return p.Metric(`fdfs_gateway_connections_replaced_total{reason="overload"}`) == 9
	})
	got, err := io.ReadAll(busy.Body)
	require.NoError(t, err)
	require.True(t, bytes.Equal(large.Content, got))
}

// TestHTTP2StreamLimit: max_connections limits the running requests of all connections together. A
// further request gets 503, and its connection stays open.
func TestHTTP2StreamLimit(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	large := s.Normal("mp4", s.Bytes(32<<20))
	// Responses whose client does not read would make room.
	p := e2e.ServeHTTP2(t, s, "[gateway]", "max_connections = 4", "[access]", "send_rate = 100KB")
	var running []*http.Response
	for range 4 {
		resp, err := p.HTTP2.Get("https://" + p.Addrs[0] + large.URL())
		require.NoError(t, err)
		defer resp.Body.Close()
		running = append(running, resp)
	}
	rejected := p.Get(large.URL())
	require.Equal(t, 503, rejected.StatusCode)
	requireHeaders(t, rejected.Header, "Retry-After: 5", "Content-Type: text/plain; charset=utf-8")
	require.Equal(t, "too many requests\n", string(rejected.Body))
	require.NoError(t, running[0].Body.Close())
	eventually.True(t, func() bool { return p.Get(large.URL(), "Range: bytes=0-0").StatusCode == 206 })
	require.Equal(t, 1.0, p.Metric("fdfs_gateway_connections"))
	for _, resp := range running[1:] { // they go on
		got := make([]byte, 10_000)
		_, err := io.ReadFull(resp.Body, got)
		require.NoError(t, err)
		require.True(t, bytes.Equal(large.Content[:len(got)], got))
	}
}

// seenFrame is the part of a frame that the tests use: a Framer reuses its frames.
type seenFrame struct {
	http2.FrameHeader
	code http2.ErrCode // of a GOAWAY
}

func (f seenFrame) isGoAway() bool { return f.Type == http2.FrameGoAway }

// ends reports whether the frame ends a stream.
func (f seenFrame) ends(id uint32) bool {
	return f.StreamID == id && f.Flags.Has(http2.FlagDataEndStream)
}

// frames opens a connection and returns the frames of the gateway until it closes.
func frames(p *e2e.Process, path string) (*attacker, chan seenFrame) {
	p.T.Helper()
	a, frames := connect(p, path), make(chan seenFrame, 1000)
	go func() {
		defer close(frames)
		for {
			f, err := a.ReadFrame()
			if err != nil && !errors.As(err, new(http2.StreamError)) {
				return
			}
			if f == nil {
				continue
			}
			seen := seenFrame{FrameHeader: f.Header()}
			if goAway, ok := f.(*http2.GoAwayFrame); ok {
				seen.code = goAway.ErrCode
			}
			frames <- seen
		}
	}()
	return a, frames
}

// requireGoAway reads frames up to the first GOAWAY, which must have no error.
func requireGoAway(t *testing.T, frames chan seenFrame, name string) {
	t.Helper()
	for f := range frames {
		if f.isGoAway() {
			require.Equal(t, http2.ErrCodeNo, f.code, name)
			return
		}
	}
	require.Fail(t, "closed without GOAWAY", name)
}

// sawGoAway reads frames until a GOAWAY or the end of a stream, and reports whether the GOAWAY came
// first.
func sawGoAway(frames chan seenFrame, id uint32) bool {
	for f := range frames {
		if f.isGoAway() {
			return true
		}
		if f.ends(id) {
			return false
		}
	}
	return false
}

// requireEnd reads frames until a stream has ended.
func requireEnd(t *testing.T, frames chan seenFrame, id uint32) {
	t.Helper()
	for f := range frames {
		if f.ends(id) {
			return
		}
	}
	require.Fail(t, "stream has not ended", "%d", id)
}

// TestHTTP2GoAway: a client gets GOAWAY before its connection closes: at a stop, whether the
// connection is idle, has a response or has sent nothing, and with a response after an upgrade.
func TestHTTP2GoAway(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	small, large := s.Normal("jpg", s.Bytes(1000)), s.Normal("mp4", s.Bytes(1<<20))
	t.Run("stop", func(t *testing.T) {
		p := e2e.ServeHTTP2(t, s)
		_, silent := frames(p, "")
		require.Equal(t, http2.FrameSettings, (<-silent).Type)
		idle, fromIdle := frames(p, small.URL())
		require.NoError(t, idle.open(1))
		requireEnd(t, fromIdle, 1)
		busy, fromBusy := frames(p, large.URL())
		require.NoError(t, busy.open(1))
		for f := range fromBusy { // until the window is empty
			if f.Type == http2.FrameData && f.Length < 16<<10 {
				break
			}
		}
		require.NoError(t, p.Cmd.Process.Signal(syscall.SIGTERM))
		requireGoAway(t, silent, "silent")
		requireGoAway(t, fromIdle, "idle")
		requireGoAway(t, fromBusy, "busy")
		require.NoError(t, busy.WriteWindowUpdate(0, 4<<20))
		require.NoError(t, busy.WriteWindowUpdate(1, 4<<20))
		_, err := tls.Dial("tcp", p.Addrs[0], p.TLS)
		require.Error(t, err, "it still accepts")
		requireEnd(t, fromBusy, 1)
		p.AwaitExit()
		require.Equal(t, 0, p.Cmd.ProcessState.ExitCode())
	})
	t.Run("upgrade", func(t *testing.T) {
		p := e2e.ServeHTTP2(t, s, "[gateway]", "idle_timeout = 10m")
		a, seen := frames(p, small.URL())
		next := uint32(1)
		require.NoError(t, a.open(next))
		requireEnd(t, seen, 1)
		require.NoError(t, p.Cmd.Process.Signal(syscall.SIGUSR2))
		eventually.True(t, func() bool { return e2e.ReplacedLine.MatchString(p.LogText()) }, "no upgrade")
		var pid int
		_, err := fmt.Sscan(e2e.ReplacedLine.FindStringSubmatch(p.LogText())[1], &pid)
		require.NoError(t, err)
		t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGTERM) })
		eventually.True(t, func() bool { // the old process drains a moment later
			next += 2
			return a.open(next) == nil && sawGoAway(seen, next)
		}, "no GOAWAY after the upgrade")
	})
}

// TestHTTP2ProxyHeader: over HTTP/2, too, max_connections_per_ip applies to the client address of
// the PROXY protocol, and the connection closes after the 429.
func TestHTTP2ProxyHeader(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	f := s.Normal("mp4", s.Bytes(32<<20))
	log := filepath.Join(t.TempDir(), "access.log")
	p := e2e.ServeHTTP2(t, s, "[gateway]", "trusted_proxies = 127.0.0.0/8", "client_address = proxy-protocol",
		"max_connections_per_ip = 1", "idle_timeout = 10m",
		"min_send_rate = 0", "access_log = "+log)
	client := func() *http.Client {
		c := p.HTTP2Client()
		c.Transport.(*http.Transport).DialContext = proxied("192.0.2.1")
		return c
	}
	first, err := client().Get("https://" + p.Addrs[0] + f.URL())
	require.NoError(t, err)
	defer first.Body.Close()
	require.Equal(t, 200, first.StatusCode)
	second, err := client().Get("https://" + p.Addrs[0] + f.URL())
	require.NoError(t, err)
	defer second.Body.Close()
	require.Equal(t, 429, second.StatusCode)
	eventually.True(t, func() bool { return p.Metric("fdfs_gateway_connections") == 1 })
	require.True(t, strings.HasPrefix(e2e.ReadLines(t, log, 1)[0], "192.0.2.1 - - ["))
}
