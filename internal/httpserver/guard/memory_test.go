package guard

import (
	"bytes"
	"io"
	"net"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// scriptConn is a connection without a socket. Read returns the input in pieces of a fixed size,
// and Write collects the output of the guard.
type scriptConn struct {
	in      []byte
	piece   int
	written bytes.Buffer
	closed  bool
}

func (c *scriptConn) Read(p []byte) (int, error) {
	if len(c.in) == 0 {
		return 0, io.EOF
	}
	n := copy(p, c.in[:min(c.piece, len(c.in))])
	c.in = c.in[n:]
	return n, nil
}

func (c *scriptConn) Write(p []byte) (int, error)      { return c.written.Write(p) }
func (c *scriptConn) Close() error                     { c.closed = true; return nil }
func (c *scriptConn) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (c *scriptConn) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (c *scriptConn) SetDeadline(time.Time) error      { return nil }
func (c *scriptConn) SetReadDeadline(time.Time) error  { return nil }
func (c *scriptConn) SetWriteDeadline(time.Time) error { return nil }

var dateLine = regexp.MustCompile(`Date: [^\r]*\r\n`)

// readAll passes in through the guard in pieces. It returns the heads that the guard hands on, and
// the bytes that it writes without interim responses and dates.
func readAll(t testing.TB, g *Guard, in string, piece int) (heads []string, written string) {
	t.Helper()
	inner := &scriptConn{in: []byte(in), piece: piece}
	c := g.Wrap(inner)
	p := make([]byte, ReadBufferSize)
	for {
		n, err := c.Read(p[:1]) // the server reads the first byte in a separate call
		if err != nil {
			require.Equal(t, io.EOF, err)
			break
		}
		m, err := c.Read(p[n:])
		require.NoError(t, err)
		heads = append(heads, string(p[:n+m]))
	}
	require.NoError(t, c.Close())
	require.True(t, inner.closed)
	require.Zero(t, g.Buffers())
	written = inner.written.String()
	return heads, dateLine.ReplaceAllString(written, "")
}

// TestSplitsDoNotMatter: the result does not depend on the pieces in which a request arrives.
func TestSplitsDoNotMatter(t *testing.T) {
	g := New(Options{})
	for _, tc := range allCases() {
		in := tc.in + probe
		heads, written := readAll(t, g, in, len(in))
		handedOn := 0
		for _, status := range tc.status {
			if status == 200 || status == 405 {
				handedOn++
			}
		}
		if tc.kept {
			handedOn++
		}
		require.Len(t, heads, handedOn, tc.name)
		if strings.Contains(strings.ToLower(tc.in), "expect: 100-continue") {
			continue // the result depends on whether the body comes with the head, see TestContinue
		}
		for _, piece := range []int{1, 2, 3, 7, 100, 4095} {
			gotHeads, gotWritten := readAll(t, g, in, piece)
			require.Equal(t, heads, gotHeads, "%s in pieces of %d", tc.name, piece)
			require.Equal(t, written, gotWritten, "%s in pieces of %d", tc.name, piece)
		}
	}
}

// TestCanonicalHead: the canonical head is as expected, byte by byte.
func TestCanonicalHead(t *testing.T) {
	for name, tc := range map[string]struct{ in, want string }{
		"as it came": {
			"GET /a HTTP/1.1\r\nhOST:h\r\nA:\tb \r\n\r\n",
			"GET /a HTTP/1.1\r\nhOST:h\r\nA:\tb \r\n\r\n"},
		"connection as it came": {
			"GET /a HTTP/1.1\r\nHost: h\r\nConnection: keep-alive\r\nA: b\r\n\r\n",
			"GET /a HTTP/1.1\r\nHost: h\r\nConnection: keep-alive\r\nA: b\r\n\r\n"},
		"framing": {
			"GET /a HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nTE: x\r\nTrailer: A\r\nUpgrade: x\r\n" +
				"Expect: 100-continue\r\nA: b\r\n\r\nx",
			"GET /a HTTP/1.1\r\nHost: h\r\nA: b\r\n\r\n"},
		"connection": {
			"GET /a HTTP/1.1\r\nConnection: x\r\nHost: h\r\nconnection: CLOSE\r\n\r\n",
			"GET /a HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"},
		"1.0": {
			"GET /a HTTP/1.0\r\nConnection: Keep-Alive, x\r\n\r\n",
			"GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"},
		"1.5": {"GET /a HTTP/1.5\r\nHost: h\r\n\r\n", "GET /a HTTP/1.1\r\nHost: h\r\n\r\n"},
		"LF":  {"GET /a HTTP/1.1\nHost: h\n\n", "GET /a HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"},
		"absolute": {
			"GET HTTP://x:81?b HTTP/1.1\r\nA: b\r\nHost: h\r\n\r\n",
			"GET /?b HTTP/1.1\r\nHost: x:81\r\nA: b\r\n\r\n"},
		"absolute in 1.0": {
			"GET http://x/a HTTP/1.0\r\n\r\n",
			"GET /a HTTP/1.0\r\nHost: x\r\nConnection: close\r\n\r\n"},
		"slashes and fragment": {
			"GET ///a//b?c#d HTTP/1.1\r\nHost: h\r\n\r\n",
			"GET /a//b?c HTTP/1.1\r\nHost: h\r\n\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			heads, written := readAll(t, New(Options{}), tc.in, len(tc.in))
			require.Equal(t, []string{tc.want}, heads)
			require.Empty(t, written)
		})
	}
}

// TestReadBufferSizeIsEnough: the longest canonical heads fit into ReadBufferSize.
func TestReadBufferSizeIsEnough(t *testing.T) {
	start := "GET http://h/ HTTP/1.0\nConnection:keep-alive\nConnection:x\n" +
		strings.Repeat("A:\n", MaxFields-3) + "A:"
	head := start + strings.Repeat("x", maxHead-len(start)-2) + "\n\n"
	heads, written := readAll(t, New(Options{}), head, len(head))
	require.Len(t, heads, 1, written)
	require.Greater(t, len(heads[0]), maxHead)
	require.LessOrEqual(t, len(heads[0]), ReadBufferSize)
	require.True(t, strings.HasSuffix(heads[0], "\r\n\r\n"))
}
