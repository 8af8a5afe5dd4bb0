package http

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
)

// TestHTTP2Files: files of every kind, whole and in parts, with the same responses as over
// HTTP/1.1.
func TestHTTP2Files(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	file, empty := s.Normal("jpg", s.Bytes(100_000)), s.Normal("txt", nil)
	small, slot := s.Normal("txt", s.Bytes(4096)), s.Trunk("png", s.Bytes(3000))
	p := e2e.ServeHTTP2(t, s)
	tag := p.Get(file.URL()).Header.Get("ETag")
	whole := func(o storetest.Object) difference { return wholeFile("whole "+o.URL(), o) }
	cases := []difference{
		whole(file), whole(small), whole(slot),
		{name: "empty", url: empty.URL(), status: 200, headers: []string{"Content-Length: 0"}, body: []byte{}},
		{name: "HEAD", method: http.MethodHead, url: file.URL(), status: 200, body: []byte{},
			headers: []string{"Content-Length: 100000", "Server: fastdfs-gateway", "Connection"}},
		{name: "range", url: file.URL(), send: []string{"Range: bytes=10-19"}, status: 206, body: file.Content[10:20],
			headers: []string{"Content-Range: bytes 10-19/100000", "Content-Length: 10"}},
		{name: "unsatisfiable", url: file.URL(), send: []string{"Range: bytes=100000-"}, status: 416,
			headers: []string{"Content-Range: bytes */100000"}},
		{name: "not modified", url: file.URL(), send: []string{"If-None-Match: " + tag}, status: 304, body: []byte{},
			headers: []string{"ETag: " + tag, "Content-Type"}},
		{name: "other tag", url: file.URL(), send: []string{`If-Match: "x"`}, status: 412},
		{name: "no file id", url: "/group1/M00/x", status: 400},
		{name: "no file", url: strings.Replace(file.URL(), "/M00/", "/M01/", 1), status: 404},
		{name: "other method", method: http.MethodPut, url: file.URL(), status: 405,
			headers: []string{"Allow: GET, HEAD"}},
		{name: "HEAD of no file id", method: http.MethodHead, url: "/group1/M00/x", status: 400, body: []byte{}},
	}
	differ(t, p, cases)
	for _, d := range cases {
		if d.method == "" && d.status < 400 {
			a := p.Do(http.MethodGet, d.url, d.send...)
			plain := p.In(t)
			plain.HTTP2 = nil
			b := plain.Do(http.MethodGet, d.url, d.send...)
			require.Equal(t, "HTTP/2.0", a.Proto)
			require.Equal(t, "HTTP/1.1", b.Proto)
			for _, h := range []http.Header{a.Header, b.Header} {
				h.Del("Date")
				h.Del("Connection")
			}
			require.Equal(t, b.Header, a.Header, d.name)
		}
	}
	require.Equal(t, 1.0, p.Metric("fdfs_gateway_connections"))
}

// TestHTTP2Off: http2 = false leaves HTTP/1.1.
func TestHTTP2Off(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	p := e2e.ServeHTTP2(t, s, "[gateway]", "http2 = false")
	config := p.TLS.Clone()
	config.NextProtos = []string{"h2", "http/1.1"}
	c, err := tls.Dial("tcp", p.Addrs[0], config)
	require.NoError(t, err)
	defer c.Close()
	require.Equal(t, "http/1.1", c.ConnectionState().NegotiatedProtocol)
}

// TestHTTP2Curl: curl as people use it.
func TestHTTP2Curl(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	file := s.Normal("jpg", s.Bytes(300_000))
	p := e2e.ServeHTTP2(t, s)
	to := filepath.Join(t.TempDir(), "body")
	out, err := exec.Command("curl", "-sk", "--http2", "-o", to, "-w", "%{http_version} %{http_code}", "-d", "body",
		"-X", "GET", "https://"+p.Addrs[0]+file.URL()).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Equal(t, "2 200", string(out))
	got, err := os.ReadFile(to)
	require.NoError(t, err)
	require.True(t, bytes.Equal(file.Content, got))
}

// TestHTTP2ManyStreams: a thousand requests on one connection, a hundred at a time.
func TestHTTP2ManyStreams(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	files := make([]storetest.Object, 20)
	for i := range files {
		files[i] = s.Normal("jpg", s.Bytes(1+i*10_000))
	}
	log := filepath.Join(t.TempDir(), "access")
	p := e2e.ServeHTTP2(t, s, "[gateway]", "access_log = "+log)
	require.Equal(t, 200, p.Get(files[0].URL()).StatusCode) // the one connection
	var wg sync.WaitGroup
	failures := make(chan error, 100)
	for range cap(failures) {
		wg.Go(func() {
			for _, f := range files {
				resp, err := p.HTTP2.Get("https://" + p.Addrs[0] + f.URL())
				if err != nil {
					failures <- err
					return
				}
				got, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if err != nil || !bytes.Equal(f.Content, got) {
					failures <- fmt.Errorf("%d bytes of %d: %w", len(got), len(f.Content), err)
				}
			}
		})
	}
	wg.Wait()
	close(failures)
	for err := range failures {
		require.NoError(t, err)
	}
	require.Equal(t, 1.0, p.Metric("fdfs_gateway_connections"))
	for _, line := range e2e.ReadLines(t, log, 2001) {
		require.Contains(t, line, ` HTTP/2.0" 200 `)
	}
}

// TestHTTP2SlowReaders: a hundred responses of 100 MB whose client reads nothing need little
// memory, and end when their client leaves.
func TestHTTP2SlowReaders(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	large := s.Normal("mp4", make([]byte, 100<<20))
	p := e2e.ServeHTTP2(t, s)
	p.Get(large.URL(), "Range: bytes=0-0")
	before := p.Memory("VmRSS")
	ctx, leave := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+p.Addrs[0]+large.URL(), nil)
			if err != nil {
				panic(err)
			}
			if resp, err := p.HTTP2.Do(req); err == nil {
				defer resp.Body.Close()
				<-ctx.Done()
			}
		})
	}
	eventually.True(t, func() bool { return p.Metric("fdfs_gateway_open_files") == 100 })
	used := p.Memory("VmRSS") - before
	t.Logf("%d KB for 100 responses", used)
	require.Less(t, used, 64<<10, "KB")
	leave()
	wg.Wait()
	eventually.True(t, func() bool { return p.Metric("fdfs_gateway_open_files") == 0 })
	require.Equal(t, 100.0, p.Metric(`fdfs_gateway_aborted_total{reason="client"}`))
	require.Equal(t, 206, p.Get(large.URL(), "Range: bytes=0-0").StatusCode, "the connection is still of use")
}

// TestHTTP2Stop: SIGTERM lets running responses end, and tells clients to connect to another
// server.
func TestHTTP2Stop(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	large := s.Normal("mp4", s.Bytes(20<<20))
	p := e2e.ServeHTTP2(t, s)
	resp, err := p.HTTP2.Get("https://" + p.Addrs[0] + large.URL())
	require.NoError(t, err)
	defer resp.Body.Close()
	require.NoError(t, p.Cmd.Process.Signal(syscall.SIGTERM))
	eventually.True(t, func() bool {
		c, err := tls.Dial("tcp", p.Addrs[0], p.TLS)
		if err == nil {
			c.Close()
		}
		return err != nil
	}, "it still accepts")
	got, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.True(t, bytes.Equal(large.Content, got))
	p.AwaitExit()
	require.Equal(t, 0, p.Cmd.ProcessState.ExitCode())
}

// TestHTTP2Reload: reloads and an upgrade while requests run, none of which fails.
func TestHTTP2Reload(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	file := s.Normal("jpg", s.Bytes(300_000))
	p := e2e.ServeHTTP2(t, s)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	failures := make(chan error, 1000)
	for range 8 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				resp, err := p.HTTP2.Get("https://" + p.Addrs[0] + file.URL())
				if err == nil {
					var got []byte
					got, err = io.ReadAll(resp.Body)
					resp.Body.Close()
					if err == nil && !bytes.Equal(file.Content, got) {
						err = fmt.Errorf("%d bytes, status %d", len(got), resp.StatusCode)
					}
				}
				if err != nil {
					failures <- err
					return
				}
			}
		})
	}
	for range 3 {
		code, text := p.AdminPost("/reload", "")
		require.Equal(t, 200, code, text)
	}
	require.NoError(t, p.Cmd.Process.Signal(syscall.SIGUSR2))
	eventually.True(t, func() bool { return e2e.ReplacedLine.MatchString(p.LogText()) }, "no upgrade")
	pid, err := strconv.Atoi(e2e.ReplacedLine.FindStringSubmatch(p.LogText())[1])
	require.NoError(t, err)
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGTERM) })
	require.Equal(t, 200, p.Get(file.URL()).StatusCode)
	close(stop)
	wg.Wait()
	close(failures)
	for err := range failures {
		require.NoError(t, err)
	}
}
