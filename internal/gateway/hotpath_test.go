package gateway

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"testing"
	"time"

	"fastdfs-gateway/internal/httpserver"
	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/storage/local"
	"fastdfs-gateway/tests/storetest"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func openCache(t *testing.T, s *storetest.Store, o local.FileCacheOptions) *local.FileCache {
	t.Helper()
	c := local.NewFileCache(openLocal(t, s), o)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// ask sends one request, and returns the response without its date and the boundary of its parts.
func (r *running) ask(method, url string, fields ...string) string {
	r.t.Helper()
	c := r.dial()
	defer c.Close()
	head := method + " " + url + " HTTP/1.1\r\nHost: gw.test\r\nConnection: close\r\n"
	for _, f := range fields {
		head += f + "\r\n"
	}
	_, err := io.WriteString(c, head+"\r\n")
	require.NoError(r.t, err)
	response, err := io.ReadAll(c)
	require.NoError(r.t, err)
	headers, body, _ := bytes.Cut(response, []byte("\r\n\r\n"))
	headers = dateField.ReplaceAll(headers, nil)
	if b := boundaryParameter.FindSubmatch(headers); b != nil {
		headers, body = bytes.ReplaceAll(headers, b[1], nil), bytes.ReplaceAll(body, b[1], nil)
	}
	return string(headers) + "\r\n\r\n" + string(body)
}

var (
	dateField         = regexp.MustCompile(`Date: [^\r]*`)
	boundaryParameter = regexp.MustCompile(`boundary=([A-Z2-7]{26})`)
)

// TestResponsesDoNotDependOnTheCache: each response with a file cache is byte by byte the response
// without one: the first time, the second, when small files are read into memory, and later.
func TestResponsesDoNotDependOnTheCache(t *testing.T) {
	s := storetest.New(t)
	small, big := s.Bytes(5000), s.Bytes(300_000)
	hourAgo := time.Now().Add(-time.Hour)
	master := s.Normal("jpg", small)
	slave := s.Slave(master, "_150x150", "jpg", small[:1000])
	require.NoError(t, os.Chtimes(slave.Path, hourAgo, hourAgo))
	objects := map[string]storetest.Object{
		"normal": master, "big": s.Normal("mp4", big), "slot": s.Trunk("PNG", small), "big slot": s.Trunk("png", big),
		"empty": s.Normal("txt", nil),
		"slave": slave, "appender": s.Appender("log", small), "link": s.Link("jpg", master.Path),
		"slot link": s.TrunkLink(master),
		"flv":       s.Normal("flv", small), "big flv": s.Normal("flv", big), "missing": s.Missing("jpg", hourAgo),
	}
	o := Options{Types: map[string]string{"jpg": "image/jpeg", "png": "image/png"}, FLVExtension: "flv",
		CacheControl: "max-age=1", CORS: CORS{Origins: []string{"*"}}, XCache: true}
	o.Store = openLocal(t, s)
	plain := run(t, o, httpserver.Options{})
	o.Store = openCache(t, s, local.FileCacheOptions{})
	cached := run(t, o, httpserver.Options{})
	for name, object := range objects {
		tag := regexp.MustCompile(`ETag: ([^\r]*)`).FindStringSubmatch(plain.ask("HEAD", object.URL()))
		if tag == nil {
			tag = []string{"", `"none"`}
		}
		for _, q := range []struct {
			method, query string
			fields        []string
		}{
			{"GET", "", nil}, {"HEAD", "", nil}, {"GET", "?filename=a%20b.jpg", nil},
			{"GET", "", []string{"Range: bytes=10-19"}}, {"GET", "", []string{"Range: bytes=-1"}},
			{"GET", "", []string{"Range: bytes=0-0,100-199"}},
			{"GET", "", []string{"Range: bytes=1000000-"}},
			{"GET", "", []string{"Range: bytes=5-9", "If-Range: " + tag[1]}},
			{"GET", "", []string{"If-None-Match: " + tag[1]}}, {"GET", "", []string{`If-Match: "other"`}},
			{"GET", "?start=100", nil}, {"GET", "?start=100&end=300", []string{"Range: bytes=0-20"}},
			{"HEAD", "?start=9", nil},
			{"POST", "", nil},
		} {
			want := plain.ask(q.method, object.URL()+q.query, q.fields...)
			for use := range 3 {
				require.Equal(t, want, cached.ask(q.method, object.URL()+q.query, q.fields...), "%s: %s %s %v, use %d",
					name, q.method, q.query, q.fields, use)
			}
		}
	}
	m := cached.handler.o.Metrics
	require.Positive(t, testutil.ToFloat64(m.requestsTotal.WithLabelValues("200", sourceMemory)))
	require.Positive(t, testutil.ToFloat64(m.requestsTotal.WithLabelValues("206", sourceMemory)))
	require.Positive(t, testutil.ToFloat64(m.requestsTotal.WithLabelValues("200", sourceLocal)))
	require.Zero(t, testutil.ToFloat64(plain.handler.o.Metrics.requestsTotal.WithLabelValues("200", sourceMemory)))
}

// TestFileCutWhileSending: if a file is truncated while it is sent, the response is aborted, and
// the next request sees the truncated file.
func TestFileCutWhileSending(t *testing.T) {
	s := storetest.New(t)
	object := s.Normal("mp4", s.Bytes(32<<20))
	r := run(t, Options{Store: openCache(t, s, local.FileCacheOptions{})}, httpserver.Options{})
	c := r.dial()
	require.NoError(t, c.(*net.TCPConn).SetReadBuffer(64<<10))
	_, err := io.WriteString(c, "GET "+object.URL()+" HTTP/1.1\r\nHost: gw.test\r\n\r\n")
	require.NoError(t, err)
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	require.NoError(t, err)
	require.NoError(t, os.Truncate(object.Path, 24<<20))
	n, err := io.Copy(io.Discard, resp.Body)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.Less(t, n, int64(32<<20))
	eventually.True(t, func() bool {
		return testutil.ToFloat64(r.handler.o.Metrics.abortedTotal.WithLabelValues("file")) == 1
	}, "it is counted")
	require.NoError(t, c.Close())
	require.Equal(t, "HTTP/1.1 404", r.ask("GET", object.URL())[:12])
	eventually.True(t, func() bool { return r.server.Connections() == 0 }, "connections end")
}

// TestDiskFailsAfterOpen: if the first bytes of an open file cannot be read, other hosts are asked
// for it; the response is 503 if none has it.
func TestDiskFailsAfterOpen(t *testing.T) {
	s := storetest.New(t)
	r := run(t, Options{Store: openCache(t, s, local.FileCacheOptions{MaxBody: -1}), Origin: redirecting{}},
		httpserver.Options{})
	for ext, want := range map[string]string{"": "HTTP/1.1 302", "bin": "HTTP/1.1 503"} {
		object := s.Normal(ext, s.Bytes(100_000))
		require.Equal(t, "HTTP/1.1 200", r.ask("HEAD", object.URL())[:12])
		require.NoError(t, unix.Dup2(openUnreadable(t), descriptorOf(t, object.Path)))
		eventually.True(t, func() bool { // the descriptor of another file may have been found in memory lately
			return r.ask("GET", object.URL())[:12] == want
		})
	}
}

// openUnreadable returns a descriptor that cannot be read from.
func openUnreadable(t *testing.T) int {
	t.Helper()
	fd, err := unix.Open("/dev/null", unix.O_WRONLY|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, unix.Close(fd)) })
	return fd
}

// descriptorOf returns the descriptor by which this process has a file open.
func descriptorOf(t *testing.T, path string) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	for _, entry := range all {
		if to, err := os.Readlink("/proc/self/fd/" + entry.Name()); err == nil && to == path {
			fd, err := strconv.Atoi(entry.Name())
			require.NoError(t, err)
			return fd
		}
	}
	require.FailNow(t, "it is not open", path)
	return -1
}

// reload replaces the handler by one for other options.
func (r *running) reload(o Options) {
	o.GroupInURL, o.Log, o.Metrics = true, r.handler.o.Log, r.handler.o.Metrics
	r.server.SetHandler(NewHandler(o))
}

// TestReloadChangesWhatIsPrepared: after a reload, responses with open files and with files in the
// cache follow the new configuration.
func TestReloadChangesWhatIsPrepared(t *testing.T) {
	s := storetest.New(t)
	object, url := s.Normal("jpg", s.Bytes(100)), kinds(t, "hello")["normal"]
	jpeg := Options{Types: map[string]string{"jpg": "image/jpeg"}}
	edge, remote, _ := edge(t, jpeg, &fakeProtocol{content: "hello"})
	edge.untilHit(url)
	jpeg.Store = openCache(t, s, local.FileCacheOptions{})
	for _, c := range []struct {
		r   *running
		o   Options
		url string
	}{{run(t, jpeg, httpserver.Options{}), jpeg, object.URL()}, {edge, remote, url}} {
		for range 3 {
			require.Contains(t, c.r.ask("GET", c.url), "Content-Type: image/jpeg")
		}
		c.o.Types = map[string]string{"jpg": "image/other"}
		c.r.reload(c.o)
		for range 2 {
			require.Contains(t, c.r.ask("GET", c.url), "Content-Type: image/other")
		}
	}
}
