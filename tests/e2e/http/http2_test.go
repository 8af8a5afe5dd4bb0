package http

import (
	"bytes"
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"

	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
)

// TestHTTP2Files: requests for files, for parts of them, and with errors get the same responses as
// over HTTP/1.1.
func TestHTTP2Files(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	file, small := s.Normal("jpg", s.Bytes(100_000)), s.Normal("txt", s.Bytes(4096))
	slot := s.Trunk("png", s.Bytes(3000))
	p := e2e.ServeHTTP2(t, s)
	plain := p.In(t)
	plain.HTTP2 = nil
	tag := p.Get(file.URL()).Header.Get("ETag")
	for _, ask := range [][]string{
		{file.URL()}, {small.URL()}, {slot.URL()}, {s.Normal("txt", nil).URL()}, {"/group1/M00/x"},
		{strings.Replace(file.URL(), "/M00/", "/M01/", 1)}, {file.URL(), "Range: bytes=10-19"},
		{slot.URL(), "Range: bytes=-100"}, {file.URL(), "Range: bytes=100000-"},
		{file.URL(), "If-None-Match: " + tag}, {file.URL(), `If-Match: "x"`},
	} {
		for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPut} {
			a, b := p.Do(method, ask[0], ask[1:]...), plain.Do(method, ask[0], ask[1:]...)
			require.Equal(t, "HTTP/2.0", a.Proto)
			require.Equal(t, "HTTP/1.1", b.Proto)
			requireHeaders(t, a.Header, "Server: fastdfs-gateway", "Connection")
			for _, h := range []http.Header{a.Header, b.Header} {
				h.Del("Date")
				h.Del("Connection")
			}
			require.Equal(t, b.StatusCode, a.StatusCode, "%s %s", method, ask)
			require.Equal(t, b.Header, a.Header, "%s %s", method, ask)
			require.True(t, bytes.Equal(b.Body, a.Body), "%s %s", method, ask)
		}
	}
	eventually.True(t, func() bool { return p.Metric("fdfs_gateway_connections") == 1 }, "one for all of HTTP/2")
}

// TestHTTP2SlowReaders: a hundred responses of 100 MB to a client that reads nothing need little
// memory, and end when the client leaves.
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
	eventually.True(t, func() bool { return p.Metric(`fdfs_gateway_aborted_total{reason="client"}`) == 100 })
	require.Equal(t, 206, p.Get(large.URL(), "Range: bytes=0-0").StatusCode, "the connection is still of use")
}
