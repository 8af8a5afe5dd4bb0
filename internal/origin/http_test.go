package origin

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/storage/client"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
)

// fakeWeb is a web server on one address of loopback. A function writes its responses as raw bytes.
type fakeWeb struct {
	server client.Server
	port   int

	mu       sync.Mutex // guards requests
	requests []*http.Request
}

func newFakeWeb(t *testing.T, ln net.Listener, respond func(w io.Writer, r *http.Request)) *fakeWeb {
	t.Helper()
	addr := ln.Addr().(*net.TCPAddr)
	s := &fakeWeb{server: client.Server{Host: addr.IP.String(), Port: 23000}, port: addr.Port}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				defer c.Close()
				_ = c.SetDeadline(time.Now().Add(testTimeout))
				r, err := http.ReadRequest(bufio.NewReader(c))
				if err != nil {
					return
				}
				s.mu.Lock()
				s.requests = append(s.requests, r)
				s.mu.Unlock()
				respond(c, r)
			})
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		running.Wait()
	})
	return s
}

// listen opens listeners on the same port of each address of loopback.
func listen(t *testing.T, hosts ...string) []net.Listener {
	t.Helper()
	var err error
	for range 100 {
		port, listeners := 0, []net.Listener{}
		for _, host := range hosts {
			var ln net.Listener
			if ln, err = net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port))); err != nil {
				break
			}
			port, listeners = ln.Addr().(*net.TCPAddr).Port, append(listeners, ln)
		}
		if err == nil {
			return listeners
		}
		for _, ln := range listeners { // the port is in use at a later address
			require.NoError(t, ln.Close())
		}
	}
	require.NoError(t, err)
	return nil
}

// spoiler may change the head of a response, and returns another status and body, or "" and nil to
// keep both.
type spoiler func(r *http.Request, head http.Header, body []byte) (string, []byte)

// serveFile responds as a correct web server does, with the changes of spoil.
func serveFile(content []byte, spoil spoiler) func(io.Writer, *http.Request) {
	return func(w io.Writer, r *http.Request) {
		status, body := "200 OK", content
		head := http.Header{"Last-Modified": {longAgo.Format(http.TimeFormat)}}
		var first, last int
		if n, _ := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &first, &last); n == 2 {
			status, body = "206 Partial Content", content[first:last+1]
			head.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", first, last, len(content)))
		}
		head.Set("Content-Length", strconv.Itoa(len(body)))
		if r.Method == http.MethodHead {
			body = nil
		}
		if spoil != nil {
			if s, b := spoil(r, head, body); s != "" || b != nil {
				status, body = s, b
			}
		}
		fmt.Fprintf(w, "HTTP/1.1 %s\r\n", status)
		_ = head.Write(w)
		fmt.Fprintf(w, "\r\n%s", body)
	}
}

var longAgo = time.Date(2024, 2, 29, 12, 30, 45, 0, time.UTC)

func wanted(t *testing.T, content []byte) client.FetchRequest {
	t.Helper()
	o := storetest.New(t).Normal("bin", content)
	return client.FetchRequest{ID: o.ID, Target: o.URL() + "?redirect=1"}
}

func newOrigin(t *testing.T, s *fakeWeb) Storages {
	t.Helper()
	c := NewHTTPClient(HTTPOptions{Port: s.port, ConnectTimeout: testTimeout, NetworkTimeout: testTimeout})
	t.Cleanup(c.Close)
	return Storages{c, true}
}

// fetchAll gets a range of a file by HEAD and GET.
func fetchAll(o Protocol, w client.FetchRequest, offset, length int64, servers ...client.Server) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	info, err := o.Stat(ctx, w, servers)
	if err != nil {
		return nil, err
	}
	stream, err := o.Open(ctx, w, info.At(offset, length), servers)
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	return io.ReadAll(stream)
}

func TestHTTPAsksForNoMoreThanItNeeds(t *testing.T) {
	content := bytes.Repeat([]byte("0123456789"), 1000)
	s := newFakeWeb(t, listen(t, "127.0.0.31")[0], serveFile(content, nil))
	w := wanted(t, content)
	got, err := fetchAll(newOrigin(t, s), w, 100, 50, s.server)
	require.NoError(t, err)
	require.Equal(t, content[100:150], got)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.requests {
		require.Equal(t, w.Target, r.RequestURI)
		require.Equal(t, net.JoinHostPort("127.0.0.31", strconv.Itoa(s.port)), r.Host)
		for name := range r.Header {
			require.Equal(t, "Range", name)
		}
	}
	require.Len(t, s.requests, 2)
}

// TestHTTPInvalidResponses: responses with another status, range, size or encoding, without a
// length, or with too few bytes are errors, and the next server is used.
func TestHTTPInvalidResponses(t *testing.T) {
	content := bytes.Repeat([]byte("0123456789"), 1000)
	onGet := func(change func(head http.Header, body []byte) (string, []byte)) spoiler {
		return func(r *http.Request, head http.Header, body []byte) (string, []byte) {
			if r.Method == http.MethodHead {
				return "", nil
			}
			return change(head, body)
		}
	}
	for name, spoil := range map[string]spoiler{
		"500": func(*http.Request, http.Header, []byte) (string, []byte) { return "500 Oops", []byte{} },
		"302": func(*http.Request, http.Header, []byte) (string, []byte) { return "302 Found", []byte{} },
		"no length": func(_ *http.Request, h http.Header, b []byte) (string, []byte) {
			h.Del("Content-Length")
			return "200 OK", b
		},
		"chunked": func(_ *http.Request, h http.Header, b []byte) (string, []byte) {
			h.Del("Content-Length")
			h.Set("Transfer-Encoding", "chunked")
			return "200 OK", []byte("5\r\nhello\r\n0\r\n\r\n")
		},
		"another size": func(_ *http.Request, h http.Header, b []byte) (string, []byte) {
			h.Set("Content-Length", "9999")
			return "200 OK", b[:min(len(b), 9999)]
		},
		"two lengths": onGet(func(h http.Header, b []byte) (string, []byte) {
			h.Add("Content-Length", "5")
			return "206 Partial Content", b
		}),
		"another range": onGet(func(h http.Header, b []byte) (string, []byte) {
			h.Set("Content-Range", "bytes 0-49/10000")
			return "206 Partial Content", b
		}),
		"range ignored": onGet(func(h http.Header, b []byte) (string, []byte) {
			h.Set("Content-Length", "10000")
			return "200 OK", content
		}),
		"encoded": onGet(func(h http.Header, b []byte) (string, []byte) {
			h.Set("Content-Encoding", "gzip")
			return "206 Partial Content", b
		}),
		"short": onGet(func(h http.Header, b []byte) (string, []byte) {
			return "206 Partial Content", b[:20]
		}),
		"nothing behind": onGet(func(h http.Header, b []byte) (string, []byte) {
			return "206 Partial Content", []byte{}
		}),
	} {
		t.Run(name, func(t *testing.T) {
			listeners := listen(t, "127.0.0.31", "127.0.0.32")
			s := newFakeWeb(t, listeners[0], serveFile(content, spoil))
			good := newFakeWeb(t, listeners[1], serveFile(content, nil))
			w := wanted(t, content)
			got, err := fetchAll(newOrigin(t, s), w, 100, 50, s.server)
			require.Error(t, err, "%q", got)
			require.NotErrorIs(t, err, fdfs.ErrNoFile)
			require.Less(t, len(got), 50)
			got, err = fetchAll(newOrigin(t, s), w, 100, 50, s.server, good.server)
			require.NoError(t, err, "the next server makes it good")
			require.Equal(t, content[100:150], got)
		})
	}
}

func TestHTTPNotFound(t *testing.T) {
	content := []byte(strings.Repeat("x", 1000))
	missing := func(*http.Request, http.Header, []byte) (string, []byte) { return "404 Not Found", []byte{} }
	s := newFakeWeb(t, listen(t, "127.0.0.31")[0], serveFile(content, missing))
	o, w := newOrigin(t, s), wanted(t, content)
	_, err := fetchAll(o, w, 0, 1000, s.server)
	require.ErrorIs(t, err, fdfs.ErrNoFile)
	_, err = fetchAll(o, w, 0, 1000, s.server, client.Server{Host: "127.0.0.33"})
	require.Error(t, err)
	require.NotErrorIs(t, err, fdfs.ErrNoFile, "one could not be asked")
}

// TestHTTPMutable: a mutable file must have the same Last-Modified in HEAD and GET, and must have
// one.
func TestHTTPMutable(t *testing.T) {
	content := bytes.Repeat([]byte("0123456789"), 100)
	later := longAgo.Add(time.Second).Format(http.TimeFormat)
	changed := func(r *http.Request, h http.Header, b []byte) (string, []byte) {
		if r.Method == http.MethodGet {
			h.Set("Last-Modified", later)
		}
		return "", nil
	}
	o := storetest.New(t).Appender("log", content)
	w := client.FetchRequest{ID: o.ID, Target: o.URL()}
	for name, tt := range map[string]struct {
		spoil func(*http.Request, http.Header, []byte) (string, []byte)
		ok    bool
	}{
		"unchanged": {nil, true},
		"changed":   {changed, false},
		"no date": {func(_ *http.Request, h http.Header, _ []byte) (string, []byte) {
			h.Del("Last-Modified")
			return "", nil
		}, false},
	} {
		s := newFakeWeb(t, listen(t, "127.0.0.31")[0], serveFile(content, tt.spoil))
		got, err := fetchAll(newOrigin(t, s), w, 0, 1000, s.server)
		require.Equal(t, tt.ok, err == nil, "%s: %v", name, err)
		require.Equal(t, tt.ok, bytes.Equal(content, got), name)
	}
}

func TestHTTPEndsWithItsContext(t *testing.T) {
	content := []byte(strings.Repeat("x", 1000))
	stuck := make(chan struct{})
	defer close(stuck)
	ctx, cancel := context.WithCancel(context.Background())
	s := newFakeWeb(t, listen(t, "127.0.0.31")[0], func(io.Writer, *http.Request) {
		cancel()
		<-stuck
	})
	began := time.Now()
	_, err := newOrigin(t, s).Stat(ctx, wanted(t, content), []client.Server{s.server})
	require.ErrorIs(t, err, context.Canceled)
	require.Less(t, time.Since(began), testTimeout/2, "the server is waited for until "+testTimeout.String())
}

// TestHTTPFull: while all connections for downloads from a web server are in use, another download
// fails soon, which does not count as a failure of the server. Short requests use other
// connections.
func TestHTTPFull(t *testing.T) {
	t.Parallel()
	content := bytes.Repeat([]byte("x"), 1000)
	s := newFakeWeb(t, listen(t, "127.0.0.31")[0], serveFile(content, nil))
	c := NewHTTPClient(HTTPOptions{Port: s.port, ConnectTimeout: time.Second, NetworkTimeout: testTimeout})
	t.Cleanup(c.Close)
	w, servers := wanted(t, content), []client.Server{s.server}
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	info, err := c.Stat(ctx, w, servers)
	require.NoError(t, err)
	open := func() (*client.Stream, error) { return c.Open(ctx, w, info, servers) }
	var running []*client.Stream
	for range maxDownloads {
		stream, err := open()
		require.NoError(t, err)
		running = append(running, stream)
	}
	_, err = open()
	require.ErrorIs(t, err, fdfs.ErrFull)
	_, err = c.Stat(ctx, w, servers)
	require.NoError(t, err)
	require.Zero(t, c.Stats().Failures)
	for _, stream := range running {
		require.NoError(t, stream.Close())
	}
	stream, err := open()
	require.NoError(t, err)
	require.NoError(t, stream.Close())
}

// TestHTTPFirstByte: the first byte of a file can be fetched from a module too, which sends the
// whole file for bytes=0-0 (golden/http-oracle.jsonl, a-0167).
func TestHTTPFirstByte(t *testing.T) {
	for _, size := range []int{1, 2, 3, 10_000} {
		content := bytes.Repeat([]byte("0123456789"), 1000)[:size]
		byModule := func(r *http.Request, h http.Header, _ []byte) (string, []byte) {
			if r.Header.Get("Range") != "bytes=0-0" {
				return "", nil
			}
			h.Set("Content-Range", fmt.Sprintf("bytes 0-%d/%d", size-1, size))
			h.Set("Content-Length", strconv.Itoa(size))
			return "206 Partial Content", content
		}
		s := newFakeWeb(t, listen(t, "127.0.0.31")[0], serveFile(content, byModule))
		o, w := newOrigin(t, s), wanted(t, content)
		for _, length := range []int{1, min(2, size)} {
			got, err := fetchAll(o, w, 0, int64(length), s.server)
			require.NoError(t, err, "%d of %d bytes", length, size)
			require.Equal(t, content[:length], got)
		}
	}
}

// TestHTTPSlotLink: a link in a trunk file is fetched from a gateway, whose responses have an ETag,
// and not from a module, also if another server has reported the version.
func TestHTTPSlotLink(t *testing.T) {
	content := bytes.Repeat([]byte("0123456789"), 1000)
	byGateway := func(_ *http.Request, h http.Header, _ []byte) (string, []byte) {
		h.Set("ETag", `"m2710-17b8a8b0"`)
		return "", nil
	}
	listeners := listen(t, "127.0.0.31", "127.0.0.32")
	gateway := newFakeWeb(t, listeners[0], serveFile(content, byGateway))
	module := newFakeWeb(t, listeners[1], serveFile(content, nil))
	store := storetest.New(t)
	link := store.TrunkLink(store.Normal("bin", content))
	w := client.FetchRequest{ID: link.ID, Target: link.URL() + "?redirect=1"}
	o := newOrigin(t, gateway)
	got, err := fetchAll(o, w, 100, 50, gateway.server)
	require.NoError(t, err)
	require.Equal(t, content[100:150], got)
	_, err = fetchAll(o, w, 100, 50, module.server)
	require.ErrorIs(t, err, client.ErrSlotLink)
	info, err := o.Stat(context.Background(), w, []client.Server{gateway.server})
	require.NoError(t, err)
	_, err = o.Open(context.Background(), w, info.At(100, 50), []client.Server{module.server})
	require.ErrorIs(t, err, client.ErrSlotLink)
}
