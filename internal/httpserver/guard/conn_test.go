package guard

import (
	"io"
	"strings"
	"testing"
	"time"

	"fastdfs-gateway/internal/testing/eventually"

	"github.com/stretchr/testify/require"
)

const short = 150 * time.Millisecond

func (s *testServer) requireNothingRejected(t *testing.T) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	require.Empty(t, s.rejected)
}

// waitRejected returns the first rejection, which may be reported after the client has its
// response.
func (s *testServer) waitRejected(t *testing.T) (e *Error) {
	t.Helper()
	eventually.True(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.rejected) > 0 {
			e = s.rejected[0]
		}
		return e != nil
	})
	return e
}

func TestRejectionIsReported(t *testing.T) {
	s := startServer(t, Options{})
	c := s.dial(t)
	c.send(get() + get("A : b"))
	require.Equal(t, 200, c.receive("GET").StatusCode)
	resp := c.receive("GET")
	require.Equal(t, 400, resp.StatusCode)
	require.Equal(t, "text/plain; charset=utf-8", resp.Header.Get("Content-Type"))
	require.Equal(t, "nosniff", resp.Header.Get("X-Content-Type-Options"))
	require.NotEmpty(t, resp.Header.Get("Date"))
	c.requireEOF()
	e := s.waitRejected(t)
	require.Equal(t, 400, e.Status)
	require.EqualError(t, e, "request rejected: blank in or behind a header field name")
}

// TestContinue: a client that waits for 100 (Continue) gets its response at once (RFC 9110 section
// 10.1.1), and the connection ends, since the server cannot know whether the body will follow.
func TestContinue(t *testing.T) {
	s := startServer(t, Options{})
	for name, tc := range map[string]struct {
		head, body string
		status     int
	}{
		"length":            {get("Expect: 100-continue", "Content-Length: 5"), "", 200},
		"chunked":           {get("Expect: 100-continue", "Transfer-Encoding: chunked"), "", 200},
		"POST":              {with("POST", "Expect: 100-continue", "Content-Length: 5"), "", 405},
		"too large":         {get("Expect: 100-continue", "Content-Length: 999999"), "", 413},
		"the body follows":  {get("Expect: 100-continue", "Content-Length: 5"), "hello", 200},
		"a request follows": {get("Expect: 100-continue", "Content-Length: 5"), "hello" + get(), 200},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := s.dial(t)
			c.send(tc.head)
			time.Sleep(short)
			c.send(tc.body)
			resp := c.receive("GET")
			require.Equal(t, tc.status, resp.StatusCode)
			require.True(t, resp.Close)
			c.requireEOF()
		})
	}
	t.Run("not to HTTP/1.0, not without a body, not with half of it here", func(t *testing.T) {
		c := s.dial(t)
		c.send(get("Expect: 100-continue") + get("Expect: 100-continue", "Content-Length: 5") + "h")
		time.Sleep(short)
		c.send("ello" + "GET / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n")
		time.Sleep(short)
		c.send("x")
		all, err := io.ReadAll(c.br)
		require.NoError(t, err)
		require.Equal(t, 3, strings.Count(string(all), "HTTP/1.1 200 OK"))
		require.NotContains(t, string(all), "100 Continue")
	})
}

// TestIdleConnectionsHoldNoBuffers: 300 idle connections, new and used ones, hold no buffer.
func TestIdleConnectionsHoldNoBuffers(t *testing.T) {
	s := startServer(t, Options{})
	var clients []*client
	for i := range 300 {
		c := s.dial(t)
		clients = append(clients, c)
		switch i % 3 {
		case 1:
			c.send(get())
		case 2:
			c.send(chunks("1\r\nx\r\n0\r\n\r\n") + "\r\n")
		default:
			continue
		}
		require.Equal(t, 200, c.receive("GET").StatusCode)
	}
	eventually.True(t, func() bool { return s.guard.Buffers() == 0 })
	clients[1].send("GET ")
	eventually.True(t, func() bool { return s.guard.Buffers() == 1 })
	for _, c := range clients {
		require.NoError(t, c.Close())
	}
}
