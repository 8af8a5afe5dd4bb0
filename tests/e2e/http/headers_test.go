package http

// The tests named TestDifferences... check every deliberate difference between the gateway and the
// nginx module, as docs/differences.md lists them. This file has their helpers, and the tests of
// headers, methods and framing.

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
)

// difference is a request to which the module responds in another way, and the gateway's response.
type difference struct {
	name    string
	method  string // GET when empty
	url     string
	send    []string // "Name: value"
	status  int
	headers []string // "Name: value" of the response; "Name" = the field is absent
	body    []byte   // nil = not compared
}

// differ runs each case as a subtest: over the protocol of p and, if that is HTTP/1.1, over HTTP/2,
// too.
func differ(t *testing.T, p *e2e.Process, cases []difference) {
	t.Helper()
	differBy(t, p, cases)
	if p.HTTP2 == nil {
		t.Run("HTTP2", func(t *testing.T) { differBy(t, p.OverHTTP2(), cases) })
	}
}

// differBy runs the cases over the protocol of p.
func differBy(t *testing.T, p *e2e.Process, cases []difference) {
	t.Helper()
	for _, d := range cases {
		t.Run(d.name, func(t *testing.T) {
			method := d.method
			if method == "" {
				method = http.MethodGet
			}
			a := p.In(t).Do(method, d.url, d.send...)
			require.Equal(t, d.status, a.StatusCode)
			requireHeaders(t, a.Header, d.headers...)
			if d.body != nil {
				require.True(t, bytes.Equal(d.body, a.Body), "%d bytes, want %d", len(a.Body), len(d.body))
			}
			if a.StatusCode >= 400 && method != http.MethodHead {
				requirePlainReason(t, a)
			}
		})
	}
}

// requireHeaders requires fields with a value, "Name: value", or the absence of fields, "Name".
func requireHeaders(t testing.TB, h http.Header, want ...string) {
	t.Helper()
	for _, line := range want {
		name, value, there := strings.Cut(line, ": ")
		if !there {
			require.Empty(t, h.Values(name), name)
			continue
		}
		require.Equal(t, []string{value}, h.Values(name), name)
	}
}

// requirePlainReason requires one line of plain text in a response to an error; the module sends a
// page of HTML.
func requirePlainReason(t testing.TB, a e2e.Response) {
	t.Helper()
	requireHeaders(t, a.Header, "Content-Type: text/plain; charset=utf-8", "X-Content-Type-Options: nosniff")
	require.Regexp(t, `\A[ -~]{1,100}\n\z`, string(a.Body))
}

// talk sends requests one after the other on one connection and returns the responses. Bytes after
// the end of a response would make the next one invalid; after the last response the connection
// must be closed.
func talk(p *e2e.Process, requests ...string) []e2e.Response {
	p.T.Helper()
	c := p.Keep()
	responses := make([]e2e.Response, 0, len(requests))
	for _, r := range requests {
		responses = append(responses, c.Ask(r))
	}
	rest, err := io.ReadAll(c.In)
	require.NoError(p.T, err)
	require.Empty(p.T, string(rest), "behind the last response")
	return responses
}

func httpDate(t time.Time) string { return t.UTC().Format(http.TimeFormat) }

// TestDifferencesHeaders: headers, methods and framing.
func TestDifferencesHeaders(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	p := e2e.Serve(t, s)
	differentHeaders(t, s, p)
	differentMethods(t, s, p)
	differentFraming(t, s, p)
	differentConnectionStaysUsable(t, s, p)
}

func differentHeaders(t *testing.T, s *storetest.Store, p *e2e.Process) {
	t.Helper()
	file, appender := s.Normal("jpg", s.Bytes(100)), s.Appender("log", s.Bytes(50))
	tag := p.Get(file.URL()).Header.Get("ETag")
	t.Run("strong ETag", func(t *testing.T) {
		require.Regexp(t, `\A"[^"]+"\z`, tag)
		require.Equal(t, tag, p.In(t).Do(http.MethodHead, file.URL()).Header.Get("ETag"))
		other := p.In(t).Get(s.Normal("jpg", s.Bytes(100)).URL()).Header.Get("ETag")
		require.NotEqual(t, tag, other)
	})
	t.Run("ETag follows a file that changes within the second", func(t *testing.T) {
		now := time.Now().Add(time.Minute).Truncate(time.Second) // in the future, so not settled
		require.NoError(t, os.Chtimes(appender.Path, now, now))
		before := p.In(t).Get(appender.URL()).Header
		later := now.Add(time.Millisecond)
		require.NoError(t, os.Chtimes(appender.Path, later, later))
		after := p.In(t).Get(appender.URL()).Header
		require.NotEqual(t, before.Get("ETag"), after.Get("ETag"))
	})
	t.Run("Last-Modified is never in the future", func(t *testing.T) {
		ahead := s.Appender("log", s.Bytes(50))
		later := time.Now().Add(time.Hour)
		require.NoError(t, os.Chtimes(ahead.Path, later, later))
		for _, o := range []storetest.Object{ahead, s.Put(s.Future("jpg"), []byte("missing"))} {
			h := p.In(t).Get(o.URL()).Header
			date, err := http.ParseTime(h.Get("Date"))
			require.NoError(t, err)
			modified, err := http.ParseTime(h.Get("Last-Modified"))
			require.NoError(t, err)
			require.False(t, modified.After(date), "Last-Modified %s, Date %s", modified, date)
			require.WithinDuration(t, date, modified, e2e.Timeout)
			require.Equal(t, 200, p.In(t).Get(o.URL(), "Range: bytes=1-2",
				"If-Range: "+h.Get("Last-Modified")).StatusCode, "no validator")
		}
	})
	t.Run("Last-Modified of a file that has just changed stays", func(t *testing.T) {
		fresh, now := s.Appender("log", s.Bytes(50)), time.Now()
		require.NoError(t, os.Chtimes(fresh.Path, now, now))
		require.Equal(t, httpDate(now), p.In(t).Get(fresh.URL()).Header.Get("Last-Modified"))
		require.Equal(t, 200, p.In(t).Get(fresh.URL(), "If-Unmodified-Since: "+httpDate(now)).StatusCode)
	})
	differ(t, p, []difference{
		{name: "nosniff on a file", url: file.URL(), status: 200, headers: []string{"X-Content-Type-Options: nosniff"}},
		{name: "plain reason of an error", url: "/favicon.ico", status: 400},
		{name: "304 with its validators", url: file.URL(), send: []string{"If-None-Match: " + tag}, status: 304,
			headers: []string{"ETag: " + tag, "Last-Modified: " + httpDate(storetest.Created)}},
		{name: "nothing that is not configured", url: file.URL(), status: 200,
			headers: []string{"Cache-Control", "Access-Control-Allow-Origin", "X-Cache"}},
	})
}

func TestDifferencesConfiguredHeaders(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	file := s.Normal("jpg", s.Bytes(100))
	p := e2e.Serve(t, s, "[gateway]", "cache_control = public, max-age=60", "cors_origin = https://a.example",
		"x_cache = true")
	configured := []string{"Cache-Control: public, max-age=60", "Access-Control-Allow-Origin: https://a.example",
		"X-Cache: LOCAL"}
	const allow = "GET, HEAD, OPTIONS"
	differ(t, p, []difference{
		{name: "on a file", url: file.URL(), status: 200, headers: configured},
		{name: "on HEAD", method: "HEAD", url: file.URL(), status: 200, headers: configured},
		{name: "on a range", url: file.URL(), send: []string{"Range: bytes=1-2"}, status: 206, headers: configured},
		{name: "on 304", url: file.URL(), send: []string{"If-None-Match: *"}, status: 304, headers: configured},
		{name: "CORS but no Cache-Control on an error", url: s.Missing("jpg", storetest.Created).URL(), status: 404,
			headers: []string{"Cache-Control", configured[1]}},
		{name: "preflight", method: "OPTIONS", url: file.URL(),
			send:   []string{"Origin: https://a.example", "Access-Control-Request-Method: GET"},
			status: 204, headers: []string{configured[1], "Access-Control-Allow-Methods: " + allow}, body: []byte{}},
		{name: "405 allows OPTIONS", method: "POST", url: file.URL(), status: 405,
			headers: []string{"Allow: " + allow}},
	})
}

func differentMethods(t *testing.T, s *storetest.Store, p *e2e.Process) {
	t.Helper()
	file := s.Normal("jpg", s.Bytes(100))
	for _, method := range []string{"POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "PROPFIND", "FOO", "get"} {
		t.Run("405 with Allow to "+method, func(t *testing.T) {
			a := talk(p.In(t), e2e.Request(method, file.URL(), "Content-Length: 0"),
				e2e.Request("GET", file.URL(), "Connection: close"))
			require.Equal(t, http.StatusMethodNotAllowed, a[0].StatusCode)
			requireHeaders(t, a[0].Header, "Allow: GET, HEAD")
			requirePlainReason(t, a[0])
			require.Equal(t, file.Content, a[1].Body)
		})
	}
}

// differentFraming: the gateway rejects bytes that nginx accepts as a request, or parses as
// another request, and closes the connection.
func differentFraming(t *testing.T, s *storetest.Store, p *e2e.Process) {
	t.Helper()
	file := s.Normal("txt", []byte("hello"))
	url := file.URL()
	tests := []struct {
		name, request, status string
	}{
		{"HTTP/0.9", "GET " + url + "\r\n", "400"},
		{"two blanks in the request line", "GET  " + url + " HTTP/1.1\r\nHost: h\r\n\r\n", "400"},
		{"blank behind the version", "GET " + url + " HTTP/1.1 \r\nHost: h\r\n\r\n", "400"},
		{"minor version of two digits", "GET " + url + " HTTP/1.10\r\nHost: h\r\n\r\n", "400"},
		{"field line without a colon", e2e.Request("GET", url, "X-Odd"), "400"},
		{"field name that is no token", e2e.Request("GET", url, `X"Odd: 1`), "400"},
		{"control character in a field value", e2e.Request("GET", url, "X-Odd: a\x01b"), "400"},
		{"unknown expectation", e2e.Request("GET", url, "Expect: a-miracle"), "417"},
		{"body over 64 KiB", e2e.Request("GET", url, "Content-Length: 65537"), "413"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := p.In(t).Raw(tt.request + e2e.Request("GET", url, "X-Second: 1"))
			require.True(t, strings.HasPrefix(got, "HTTP/1.1 "+tt.status+" "), "%q", got)
			require.Equal(t, 1, strings.Count(got, "HTTP/1.1 "), "the connection is not used again: %q", got)
			require.Contains(t, got, "\r\nConnection: close\r\n")
			require.NotContains(t, got, "hello")
		})
	}
	t.Run("line that ends in LF alone is the last request", func(t *testing.T) {
		got := p.In(t).Raw("GET " + url + " HTTP/1.1\nHost: h\n\n" + e2e.Request("GET", url))
		require.Equal(t, 1, strings.Count(got, "hello"), "%q", got)
		require.Contains(t, got, "\r\nConnection: close\r\n")
	})
}

// differentConnectionStaysUsable: a response without the file leaves no further bytes on the
// connection, which serves the next request.
func differentConnectionStaysUsable(t *testing.T, s *storetest.Store, p *e2e.Process) {
	t.Helper()
	file := s.Normal("jpg", s.Bytes(4096))
	date, rfc850 := httpDate(storetest.Created), storetest.Created.Format("Monday, 02-Jan-06 15:04:05 GMT")
	older := httpDate(storetest.Created.Add(-time.Hour))
	tests := []struct {
		name, method, field string
		status              int
	}{
		{"304 to the date", "GET", "If-Modified-Since: " + date, 304},
		{"304 to the date in RFC 850 form", "GET", "If-Modified-Since: " + rfc850, 304},
		{"304 to the date in asctime form", "GET", "If-Modified-Since: " + storetest.Created.Format(time.ANSIC), 304},
		{"304 to If-None-Match *", "GET", "If-None-Match: *", 304},
		{"304 to HEAD", "HEAD", "If-None-Match: *", 304},
		{"412 to If-Match", "GET", `If-Match: "x"`, 412},
		{"412 to If-Unmodified-Since", "GET", "If-Unmodified-Since: " + older, 412},
		{"412 to HEAD", "HEAD", `If-Match: "x"`, 412},
		{"416", "GET", "Range: bytes=4096-", 416},
		{"HEAD", "HEAD", "X-Other: 1", 200},
		{"HEAD with a range", "HEAD", "Range: bytes=0-9", 200},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := talk(p.In(t), e2e.Request(tt.method, file.URL(), tt.field),
				e2e.Request("GET", file.URL(), "Connection: close"))
			require.Equal(t, tt.status, a[0].StatusCode)
			require.Less(t, len(a[0].Body), 100)
			require.Equal(t, http.StatusOK, a[1].StatusCode)
			require.Equal(t, file.Content, a[1].Body)
			if tt.status == http.StatusOK {
				requireHeaders(t, a[0].Header, fmt.Sprintf("Content-Length: %d", len(file.Content)))
			}
		})
	}
}
