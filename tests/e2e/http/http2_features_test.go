package http

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"fastdfs-gateway/antisteal"
	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
)

// TestHTTP2Features: a key of each section decides about requests by HTTP/2 as about others.
func TestHTTP2Features(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	jpg, txt := s.Normal("jpg", s.Bytes(1000)), s.Normal("txt", s.Bytes(10))
	page := filepath.Join(t.TempDir(), "404.html")
	require.NoError(t, os.WriteFile(page, []byte("<p>gone</p>"), 0o600))
	p := e2e.ServeHTTP2(t, s, "[gateway]", "health_path = /health", "cors_origin = https://a.test",
		"[headers jpg]", "X-Kind = picture", "Cache-Control = max-age=1", "[error_pages]", "404 = "+page,
		"[access]", "referers = none, *.good.test", "[access txt]", "deny = 127.0.0.0/8")
	missing := s.Missing("jpg", storetest.Created)
	for _, c := range []struct {
		method, url string
		send        []string
		status      int
		headers     []string
		body        string // "-" = not examined
	}{
		{"GET", "/health", nil, 200, nil, "-"},
		{"GET", jpg.URL(), nil, 200,
			[]string{"X-Kind: picture", "Cache-Control: max-age=1", "Content-Type: image/jpeg"}, string(jpg.Content)},
		{"GET", jpg.URL(), []string{"Origin: https://a.test"}, 200,
			[]string{"Access-Control-Allow-Origin: https://a.test"}, "-"},
		{"OPTIONS", jpg.URL(), []string{"Origin: https://a.test", "Access-Control-Request-Method: GET"}, 204,
			[]string{"Content-Type", "Content-Length"}, ""},
		{"GET", jpg.URL(), []string{"Referer: https://www.good.test/"}, 200, nil, string(jpg.Content)},
		{"GET", jpg.URL(), []string{"Referer: https://evil.test/"}, 403, []string{"X-Kind"}, "referer refused\n"},
		{"GET", txt.URL(), nil, 403, nil, "access denied\n"},
		{"GET", missing.URL(), nil, 404, []string{"Content-Type: text/html", "Content-Length: 11"}, "<p>gone</p>"},
		{"HEAD", missing.URL(), nil, 404, []string{"Content-Length: 11"}, ""},
		{"GET", jpg.URL() + "?attname=a.jpg", nil, 200,
			[]string{`Content-Disposition: attachment; filename="a.jpg"`}, "-"},
	} {
		a := p.Do(c.method, c.url, c.send...)
		require.Equal(t, "HTTP/2.0", a.Proto)
		require.Equal(t, c.status, a.StatusCode, "%s %s", c.url, c.send)
		requireHeaders(t, a.Header, c.headers...)
		if c.body != "-" {
			require.Equal(t, c.body, string(a.Body), c.url)
		}
	}
	rates := e2e.ServeHTTP2(t, s, "[access]", "requests_per_second = 0.01", "requests_burst = 2")
	require.Equal(t, 200, rates.Get(jpg.URL()).StatusCode)
	require.Equal(t, 200, rates.Get(jpg.URL()).StatusCode)
	limited := rates.Get(jpg.URL())
	require.Equal(t, 429, limited.StatusCode)
	require.NotEmpty(t, limited.Header.Get("Retry-After"))
	require.Equal(t, 1.0, rates.Metric("fdfs_gateway_connections"), "the connection is kept")
}

// TestHTTP2Selections: tokens, several ranges, and conditions.
func TestHTTP2Selections(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	f, now := s.Normal("jpg", s.Bytes(1000)), time.Now().Unix()
	p := e2e.ServeHTTP2(t, s, e2e.TokenKeys()...)
	url := f.URL() + "?" + antisteal.Query(e2e.TokenSecret, f.ID.Logic, now)
	require.Equal(t, 400, p.Get(f.URL()).StatusCode)
	require.Equal(t, 400, p.Get(url+"0").StatusCode)
	whole := p.Get(url)
	require.True(t, bytes.Equal(f.Content, whole.Body))
	parts := p.Get(url, "Range: bytes=0-9,500-899,-1")
	require.Equal(t, 206, parts.StatusCode)
	require.Equal(t, fmt.Sprint(len(parts.Body)), parts.Header.Get("Content-Length"))
	_, ranges := readParts(t, parts, f)
	require.Equal(t, []string{"0-9", "500-899", "999-999"}, ranges)
	tag, modified := whole.Header.Get("ETag"), whole.Header.Get("Last-Modified")
	for condition, status := range map[string]int{"If-None-Match: " + tag: 304, "If-Modified-Since: " + modified: 304,
		"If-Match: " + tag: 206, `If-Match: "x"`: 412, "If-Range: " + tag: 206, `If-Range: "x"`: 200} {
		require.Equal(t, status, p.Get(url, condition, "Range: bytes=1-2").StatusCode, condition)
	}
}

// TestHTTP2MakesRoom: an idle connection makes room for a new one at max_connections, one with a
// response does not.
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
	require.Equal(t, 9.0, p.Metric(`fdfs_gateway_connections_replaced_total{reason="overload"}`))
	got, err := io.ReadAll(busy.Body)
	require.NoError(t, err)
	require.True(t, bytes.Equal(large.Content, got))
}

// TestHTTP2StreamLimit: all connections together have max_connections requests at a time. One more
// is 503, and the connection remains.
func TestHTTP2StreamLimit(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	large := s.Normal("mp4", s.Bytes(32<<20))
	// The responses are not read meanwhile, for longer than min_send_rate allows on a slow machine.
	p := e2e.ServeHTTP2(t, s, "[gateway]", "max_connections = 4", "min_send_rate = 0")
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
	for _, resp := range running[1:] {
		got, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.True(t, bytes.Equal(large.Content, got))
	}
}

// seenFrame holds what these tests need of a frame. A Framer uses its frames again.
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

// requireGoAway reads frames up to the first GOAWAY without an error.
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

// sawGoAway reads frames until GOAWAY, or until a stream has ended without one.
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

// TestHTTP2GoAway: a client sees GOAWAY before the end of its connection: at a stop when it is
// idle, has a response, or has sent nothing; and with the first response after an upgrade.
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
		for f := range fromBusy { // the window is empty
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
		requireEnd(t, fromBusy, 1)
		p.AwaitExit()
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

// TestHTTP2ProxyHeader: by HTTP/2 too, a client behind the PROXY protocol has the limit of its own
// address, and its connection ends with the 429.
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

// TestHTTP2InABrowser: Chromium loads a page with 200 pictures over one connection.
func TestHTTP2InABrowser(t *testing.T) {
	t.Parallel()
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatal("the test in a browser needs chromium: make need installs it")
	}
	s := storetest.New(t)
	page := "<!DOCTYPE html><title>pictures</title>"
	for range 200 {
		page += `<img src="` + s.Normal("svg", []byte(`<svg xmlns="http://www.w3.org/2000/svg"/>`)).URL() + `">`
	}
	log := filepath.Join(t.TempDir(), "access.log")
	p := e2e.ServeHTTP2(t, s, "[gateway]", "active_content = inline", "access_log = "+log,
		"access_log_format = $remote_port $server_protocol $status $uri")
	ctx, cancel := context.WithTimeout(t.Context(), e2e.Timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, chromium, "--headless", "--no-sandbox", "--disable-gpu",
		"--ignore-certificate-errors", "--user-data-dir="+t.TempDir(), "--dump-dom",
		"https://"+p.Addrs[0]+s.Normal("html", []byte(page)).URL())
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
	out, err := cmd.Output() // behind the load event
	require.NoError(t, err)
	require.Equal(t, 200, strings.Count(string(out), "<img "))
	var text []byte
	eventually.True(t, func() bool {
		text, err = os.ReadFile(log)
		return err == nil && bytes.Count(text, []byte(".svg\n")) == 200
	})
	connections := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if port, rest, _ := strings.Cut(line, " "); strings.HasSuffix(line, ".svg\n") {
			require.True(t, strings.HasPrefix(rest, "HTTP/2.0 200 "), line)
			connections[port] = true
		}
	}
	require.Len(t, connections, 1)
}
