package compare

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"fastdfs-gateway/internal/testing/eventually"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var date = time.Date(2024, 5, 6, 7, 8, 9, 0, time.UTC)

// serve starts a server and returns its URL.
func serve(t testing.TB, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

// content returns a handler that serves body as a web server serves a file.
func content(name string, body []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, name, date, bytes.NewReader(body))
	}
}

// fixed returns a handler that sends the same response to each request.
func fixed(status int, body string, fields ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for _, field := range fields {
			name, value, _ := strings.Cut(field, ": ")
			w.Header().Set(name, value)
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body) // fails for a status without a body
	}
}

// raw returns a handler that sends response as it is and closes the connection.
func raw(response string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		_, _ = io.WriteString(conn, response) // the client notices missing bytes
		_ = conn.Close()
	}
}

// run compares targets, and returns the differences of each.
func run(t testing.TB, o Options, targets ...string) (map[string][]Difference, error) {
	t.Helper()
	c, err := New(o)
	require.NoError(t, err)
	in := make(chan string, len(targets))
	for _, target := range targets {
		in <- target
	}
	close(in)
	results := map[string][]Difference{}
	err = c.Run(context.Background(), in, func(r Result) error {
		results[r.Target] = r.Differences
		return nil
	})
	return results, err
}

func TestEqual(t *testing.T) {
	body := bytes.Repeat([]byte("0123456789"), 50_000)
	var mu sync.Mutex // guards asked
	asked := map[string][]string{}
	at := func(name string) string {
		return serve(t, func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			asked[name] = append(asked[name], strings.TrimSpace(fmt.Sprint(r.Method, " ", r.RequestURI, " ",
				r.Header.Get("Range"), r.Header.Get("If-Modified-Since"), r.Header.Get("Accept-Encoding"))))
			mu.Unlock()
			content("a.jpg", body)(w, r)
		})
	}
	results, err := run(t, Options{Old: at("old"), New: at("new"), Ranges: true}, "/a.jpg?token=b&ts=0")
	require.NoError(t, err)
	require.Equal(t, map[string][]Difference{"/a.jpg?token=b&ts=0": nil}, results)
	want := []string{"GET /a.jpg?token=b&ts=0", "HEAD /a.jpg?token=b&ts=0",
		"GET /a.jpg?token=b&ts=0 bytes=250000-315535", "GET /a.jpg?token=b&ts=0 Mon, 06 May 2024 07:08:09 GMT"}
	require.Equal(t, map[string][]string{"old": want, "new": want}, asked)
}

// TestTargetsAsTheyAre: requests contain the escapes, slashes and dots of a target unchanged.
func TestTargetsAsTheyAre(t *testing.T) {
	targets := []string{"/a%2Fb%zz", "/a/../b", "/./a//b", "/a\xe4b", `/a"b|c\d{}`, "/a?b?c=%20&d;e#f", "/?", "/a?"}
	for _, target := range targets {
		got := make(chan string, 2)
		address := serve(t, raw("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"))
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		go func() {
			conn, err := listener.Accept()
			if err != nil {
				panic(err)
			}
			head := make([]byte, 1000)
			n, _ := conn.Read(head)
			got <- string(head[:n])
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
			_ = conn.Close()
			_ = listener.Close()
		}()
		_, err = run(t, Options{Old: address, New: "http://" + listener.Addr().String() + "/pre/"}, target)
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(<-got, "GET /pre"+target+" HTTP/1.1\r\n"), target)
	}
}

func TestDifferences(t *testing.T) {
	jpg := fixed(200, "abc", "Content-Type: image/jpeg", "Last-Modified: Mon, 06 May 2024 07:08:09 GMT")
	for _, tt := range []struct {
		name     string
		old, new http.HandlerFunc
		want     []string
	}{
		{"status", jpg, fixed(404, "no"), []string{"status 200 404"}},
		{"body", jpg, fixed(200, "abd", "Content-Type: image/jpeg", "Last-Modified: Mon, 06 May 2024 07:08:09 GMT"),
			[]string{"body 3 bytes, SHA-256 ba7816bf8f01cfea... 3 bytes, SHA-256 a52d159f262b2c6d..."}},
		{"length", fixed(200, "abc", "Content-Type: a/b"), fixed(200, "ab", "Content-Type: a/b"),
			[]string{"Content-Length 3 2",
				"body 3 bytes, SHA-256 ba7816bf8f01cfea... 2 bytes, SHA-256 fb8e20fc2e4c3f24..."}},
		{"chunks", raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"),
			raw("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc"), []string{"Content-Length  3"}},
		{"type", jpg, fixed(200, "abc", "Content-Type: a/b", "Last-Modified: Mon, 06 May 2024 07:08:09 GMT"),
			[]string{"Content-Type image/jpeg a/b"}},
		{"date", jpg, fixed(200, "abc", "Content-Type: image/jpeg"),
			[]string{"Last-Modified Mon, 06 May 2024 07:08:09 GMT "}},
		{"range", fixed(206, "abc", "Content-Range: bytes 0-2/3"), fixed(206, "abc", "Content-Range: bytes 0-2/4"),
			[]string{"Content-Range bytes 0-2/3 bytes 0-2/4"}},
		{"redirect", fixed(302, "", "Location: http://a/"), fixed(302, "", "Location: http://b/"),
			[]string{"Location http://a/ http://b/"}},
		{"short body", jpg, raw("HTTP/1.1 200 OK\r\nContent-Type: image/jpeg\r\nContent-Length: 3\r\n" +
			"Last-Modified: Mon, 06 May 2024 07:08:09 GMT\r\n\r\nab"),
			[]string{"body 3 bytes, SHA-256 ba7816bf8f01cfea... 2 bytes, then unexpected EOF"}},
		{"both short", raw("HTTP/1.1 404 No\r\nContent-Length: 3\r\n\r\nab"),
			raw("HTTP/1.1 404 No\r\nContent-Length: 3\r\n\r\nab"),
			[]string{"body 2 bytes, then unexpected EOF 2 bytes, then unexpected EOF"}},
		{"no response", jpg, raw(""), []string{"status 200 no response: EOF"}},
		{"no HTTP", jpg, raw("hello\r\n\r\n"), []string{"status 200 no response: net/http: HTTP/1.x transport " +
			`connection broken: malformed HTTP response "hello"`}},
		{"page of an error", fixed(404, "<html>", "Content-Type: text/html"),
			fixed(404, "none", "Content-Type: text/plain"),
			[]string{"Content-Length 6 4 (known)", "Content-Type text/html text/plain (known)",
				"body 6 bytes, SHA-256 b7d082ee12e91b75... 4 bytes, SHA-256 140bedbf9c3f6d56... (known)"}},
		{"304", raw("HTTP/1.1 304 Not Modified\r\nContent-Length: 0\r\n\r\n"),
			raw("HTTP/1.1 304 Not Modified\r\nLast-Modified: x\r\n\r\n"),
			[]string{"Content-Length 0  (known)", "Last-Modified  x (known)"}},
		{"304 with another date", raw("HTTP/1.1 304 Not Modified\r\nLast-Modified: y\r\n\r\n"),
			raw("HTTP/1.1 304 Not Modified\r\nLast-Modified: x\r\n\r\n"), []string{"Last-Modified y x"}},
		{"body of a redirect",
			raw("HTTP/1.1 302 Found\r\nContent-Type: a/b\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
			raw("HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n"),
			[]string{"Content-Length  0 (known)", "Content-Type a/b  (known)"}},
		{"registered type", fixed(200, "a", "Content-Type: application/javascript"),
			fixed(200, "a", "Content-Type: text/javascript"),
			[]string{"Content-Type application/javascript text/javascript (known)"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			results, err := run(t, Options{Old: serve(t, tt.old), New: serve(t, tt.new)}, "/a")
			require.NoError(t, err)
			var got []string
			for _, d := range results["/a"] {
				line := d.Field + " " + d.Old + " " + d.New
				if d.Known != "" {
					line += " (known)"
				}
				got = append(got, line)
			}
			require.Equal(t, tt.want, got)
		})
	}
}

// TestDifferencesOfRanges: the responses to HEAD, Range and If-Modified-Since are compared, and
// each difference names its request.
func TestDifferencesOfRanges(t *testing.T) {
	body := bytes.Repeat([]byte("0123456789"), 10)
	address := serve(t, content("a.jpg", body))
	whole := serve(t, func(w http.ResponseWriter, r *http.Request) {
		r.Header.Del("Range")
		r.Header.Del("If-Modified-Since")
		if r.Method == http.MethodHead {
			w.Header().Set("Content-Type", "a/b")
		}
		content("a.jpg", body)(w, r)
	})
	results, err := run(t, Options{Old: address, New: whole, Ranges: true}, "/a")
	require.NoError(t, err)
	require.Equal(t, []Difference{
		{Method: "HEAD", Field: "Content-Type", Old: "image/jpeg", New: "a/b"},
		{Method: "GET", Header: "Range: bytes=50-99", Field: "status", Old: "206", New: "200"},
		{Method: "GET", Header: "If-Modified-Since: Mon, 06 May 2024 07:08:09 GMT", Field: "status", Old: "304",
			New: "200"},
	}, results["/a"])
}

// TestRedirectIsNotFollowed: no request is sent to the address of a redirect.
func TestRedirectIsNotFollowed(t *testing.T) {
	other := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("followed") })
	redirect := fixed(302, "", "Location: "+other)
	results, err := run(t, Options{Old: serve(t, redirect), New: serve(t, redirect), Ranges: true}, "/a")
	require.NoError(t, err)
	require.Equal(t, map[string][]Difference{"/a": nil}, results)
}

// TestSilentServer: a pause of the timeout within a response ends the request.
func TestSilentServer(t *testing.T) {
	ended := make(chan struct{})
	t.Cleanup(func() { close(ended) })
	silent := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "8")
		_, _ = io.WriteString(w, "a")
		_ = http.NewResponseController(w).Flush()
		select {
		case <-ended:
		case <-r.Context().Done():
		}
	}
	timeout := 25 * time.Millisecond
	eventually.True(t, func() bool { // a machine that stands still may exceed the first timeouts
		timeout *= 2
		results, err := run(t, Options{Old: serve(t, fixed(200, "aaaaaaaa")), New: serve(t, silent), Timeout: timeout},
			"/a")
		require.NoError(t, err)
		return slices.ContainsFunc(results["/a"], func(d Difference) bool {
			return d.New == "1 bytes, then nothing was sent for "+timeout.String()
		})
	})
}

// TestServerGone: the comparison ends after a few requests in a row without a response, and its
// error names the server.
func TestServerGone(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	gone := "http://" + listener.Addr().String()
	require.NoError(t, listener.Close())
	targets := make([]string, 1000)
	for i := range targets {
		targets[i] = fmt.Sprint("/", i)
	}
	results, err := run(t, Options{Old: serve(t, fixed(200, "a")), New: gone}, targets...)
	require.ErrorContains(t, err, gone+" does not respond, 5 times in a row: dial tcp")
	require.Less(t, len(results), 5)

	// Failures that are not in a row count as differences.
	n := 0
	var mu sync.Mutex // guards n
	flaky := func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if n++; n%2 == 0 {
			raw("no response\r\n\r\n")(w, r)
		}
	}
	c, err := New(Options{Old: serve(t, fixed(200, "")), New: serve(t, flaky)})
	require.NoError(t, err)
	for range 20 { // one comparison at a time
		_, err := c.compare(context.Background(), "/a")
		require.NoError(t, err)
	}
	c.old.transport.CloseIdleConnections()
	c.new.transport.CloseIdleConnections()
}

// TestEnds: Run ends with the error of report, and with ctx while a server does not respond.
func TestEnds(t *testing.T) {
	address := serve(t, fixed(200, "a"))
	c, err := New(Options{Old: address, New: address})
	require.NoError(t, err)
	targets := make(chan string, 1)
	targets <- "/a"
	failure := errors.New("full disk")
	require.ErrorIs(t, c.Run(context.Background(), targets, func(Result) error { return failure }), failure)

	ctx, cancel := context.WithCancel(context.Background())
	silent := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
	})
	c, err = New(Options{Old: address, New: silent})
	require.NoError(t, err)
	targets <- "/a"
	require.ErrorIs(t, c.Run(ctx, targets, func(Result) error { return failure }), context.Canceled)
}

func TestAddresses(t *testing.T) {
	for _, bad := range []string{"", "localhost:8888", "ftp://a", "http://", "http://:80", "http://a b", "http://u:p@a",
		"http://a/?b", "http://a/#b", "http://a:port"} {
		_, err := New(Options{Old: bad, New: "http://localhost"})
		require.ErrorContains(t, err, "cannot use the address", bad)
	}
}
