package guard

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"
)

// FuzzHead: whatever a client sends, each head that is handed on is one request without a body that
// net/http and fasthttp parse alike. At most one rejection is written, after all responses.
func FuzzHead(f *testing.F) {
	for _, tc := range allCases() {
		if len(tc.in) < 3000 {
			f.Add([]byte(tc.in), uint16(len(tc.in)))
		}
	}
	g := New(Options{})
	f.Fuzz(func(t *testing.T, in []byte, piece uint16) {
		heads, written := readAll(t, g, string(in), int(piece)+1)
		for _, h := range heads {
			checkHead(t, h)
		}
		if written != "" {
			resp, err := http.ReadResponse(bufio.NewReader(strings.NewReader(written)), nil)
			require.NoError(t, err)
			require.NotEmpty(t, statusText[resp.StatusCode])
			require.True(t, resp.Close)
		}
		again, writtenAgain := readAll(t, g, string(in), len(in)+1)
		require.Equal(t, heads, again)
		require.Equal(t, written, writtenAgain)
	})
}

// checkHead compares a head that was handed on with the results of net/http and fasthttp for it.
func checkHead(t *testing.T, h string) {
	t.Helper()
	require.Equal(t, 1, strings.Count(h, "\r\n\r\n"))
	require.True(t, strings.HasSuffix(h, "\r\n\r\n"))
	require.Equal(t, strings.Count(h, "\n"), strings.Count(h, "\r\n"))
	lines := strings.Split(strings.TrimSuffix(h, "\r\n\r\n"), "\r\n")
	words := strings.Split(lines[0], " ")
	require.Len(t, words, 3)

	var fast fasthttp.Request
	br := bufio.NewReaderSize(strings.NewReader(h), g64k)
	require.NoError(t, fast.Header.Read(br), "%q", h)
	_, err := br.ReadByte()
	require.Equal(t, io.EOF, err)
	require.Equal(t, words[0], string(fast.Header.Method()))
	require.Equal(t, words[1], string(fast.Header.RequestURI()))

	var uri fasthttp.URI
	require.NoError(t, uri.Parse(fast.Header.Host(), fast.Header.RequestURI()), "%q", h)

	// net/http requires targets to be URIs in every respect; the rest of the head does not depend
	// on that.
	std := strings.Replace(h, " "+words[1]+" ", " / ", 1)
	req, err := http.ReadRequest(bufio.NewReader(strings.NewReader(std)))
	require.NoError(t, err, "%q", h)
	require.Equal(t, words[0], req.Method)
	require.Equal(t, words[2], req.Proto)
	require.Equal(t, req.Host, string(fast.Header.Host()))
	require.Zero(t, req.ContentLength)
	require.Empty(t, req.TransferEncoding)
	require.Equal(t, req.Close, fast.Header.ConnectionClose())
	fields := 0
	for _, values := range req.Header {
		fields += len(values)
	}
	if req.Host != "" {
		fields++
	}
	require.Equal(t, len(lines)-1, fields, "%q", h)
}

// FuzzHost: an accepted Host is the same authority for net/url, without a user.
func FuzzHost(f *testing.F) {
	for _, seed := range []string{"h", "h:80", "h:", "[::1]:8", "[::1%25eth0]", "u@h", "h,i", "h:80:80", "%c3%a4",
		"a%41", "", ":80", "[::ffff:1.2.3.4]", "h:65536"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, host string) {
		if validateHost([]byte(host)) != nil {
			return
		}
		u, err := url.Parse("http://" + host + "/x")
		require.NoError(t, err, "%q", host)
		require.Nil(t, u.User)
		require.NotEmpty(t, u.Hostname())
		require.Equal(t, "/x", u.Path)
		require.Empty(t, u.RawQuery)
		require.Empty(t, u.Fragment)
		require.NotContains(t, u.Hostname(), ",")
	})
}

const g64k = 64 << 10

// FuzzChunked: net/http accepts each chunked body that the guard accepts, and ends it at the same
// byte. Its length is within the bound. The result does not depend on the pieces in which the body
// arrives.
func FuzzChunked(f *testing.F) {
	for _, tc := range chunkCases() {
		if _, body, ok := strings.Cut(tc.in, "\r\n\r\n"); ok && len(body) < 3000 {
			f.Add([]byte(body), uint8(3))
		}
	}
	g := New(Options{})
	f.Fuzz(func(t *testing.T, in []byte, piece uint8) {
		discard := func(step int) (rest int, err error) {
			c := g.Wrap(&scriptConn{in: in, piece: step})
			defer func() { require.NoError(t, c.Close()) }()
			c.head.end = 1 // as after the head
			require.NoError(t, c.fill())
			err = c.discardChunks()
			return c.w - c.r + len(c.Conn.(*scriptConn).in), err
		}
		if len(in) == 0 {
			return
		}
		rest, err := discard(len(in))
		restToo, errToo := discard(int(piece) + 1)
		require.Equal(t, err, errToo)
		if err != nil {
			return
		}
		require.Equal(t, rest, restToo)
		body := in[:len(in)-rest]
		require.True(t, bytes.HasSuffix(body, []byte("\r\n")))
		if bytes.Contains(body, []byte(" ;")) || bytes.Contains(body, []byte("\t;")) {
			return // net/http rejects the blank that RFC 9112 allows there
		}
		n, err := io.Copy(io.Discard, httputil.NewChunkedReader(bufio.NewReader(bytes.NewReader(body))))
		require.NoError(t, err, "%q", body)
		require.LessOrEqual(t, n, int64(maxDiscard))
	})
}
