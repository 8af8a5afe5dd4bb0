package httpguard

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"fastdfs-gateway/internal/eventually"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"
)

const short = 150 * time.Millisecond

func TestReadTimeout(t *testing.T) {
	t.Run("slow head is not helped by further bytes (408)", func(t *testing.T) {
		s := startServer(t, Options{ReadTimeout: short})
		c := s.dialFor(t)
		stop, sent := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(sent)
			for {
				c.send("a")
				select {
				case <-stop:
					return
				case <-time.After(short / 10):
				}
			}
		}()
		require.Equal(t, 408, c.receive("GET").StatusCode) // in the middle of them
		c.requireEOF()
		require.NoError(t, c.Close())
		close(stop)
		<-sent
		require.ErrorIs(t, s.waitRefused(t), os.ErrDeadlineExceeded)
	})
	t.Run("slow second head (408)", func(t *testing.T) {
		s := startServer(t, Options{ReadTimeout: short})
		c := s.dialFor(t)
		c.send(get() + "GET /")
		require.Equal(t, 200, c.receive("GET").StatusCode)
		require.Equal(t, 408, c.receive("GET").StatusCode)
		c.requireEOF()
	})
	t.Run("slow HEAD (408 without a body)", func(t *testing.T) {
		s := startServer(t, Options{ReadTimeout: short})
		c := s.dialFor(t)
		c.send("HEAD /f HT")
		require.Equal(t, 408, c.receive("HEAD").StatusCode)
		c.requireEOF()
	})
	for name, in := range map[string]string{
		"length":  get("Content-Length: 5") + "hel",
		"chunked": chunks("5\r\nhel"),
		"nothing": get("Content-Length: 5"),
	} {
		t.Run("slow body, "+name+" (408)", func(t *testing.T) {
			s := startServer(t, Options{ReadTimeout: short})
			c := s.dialFor(t)
			c.send(in)
			require.Equal(t, 408, c.receive("GET").StatusCode)
			c.requireEOF()
		})
	}
}

func TestIdleTimeout(t *testing.T) {
	t.Run("a connection without a request is closed in silence", func(t *testing.T) {
		s := startServer(t, Options{ReadTimeout: short})
		start := time.Now()
		s.dialFor(t).requireEOF()
		require.Greater(t, time.Since(start), short*3/4)
		s.requireNothingRefused()
	})
	t.Run("idle connections are closed in silence", func(t *testing.T) {
		s := startServer(t, Options{ReadTimeout: time.Hour, IdleTimeout: 2 * short})
		start := time.Now()
		used, blank := s.dialFor(t), s.dialFor(t)
		used.send(get())
		require.Equal(t, 200, used.receive("GET").StatusCode)
		blank.send(get() + "\r\n")
		require.Equal(t, 200, blank.receive("GET").StatusCode)
		for _, c := range []*client{used, blank} {
			c.requireEOF()
			require.Greater(t, time.Since(start), 3*short/2)
		}
		s.requireNothingRefused()
	})
	t.Run("empty lines do not renew the idle time", func(t *testing.T) {
		s := startServer(t, Options{IdleTimeout: 5 * short})
		c := s.dialFor(t)
		c.send(get())
		require.Equal(t, 200, c.receive("GET").StatusCode)
		closed, sent := make(chan struct{}), make(chan int)
		go func() {
			lines := 0
			for open := true; open && lines < maxBlankLines; {
				select {
				case <-closed:
					open = false
				case <-time.After(3 * short):
					c.send("\r\n")
					lines++
				}
			}
			sent <- lines
		}()
		rest, err := io.ReadAll(c.br) // by a reset, when a line came in the same moment
		require.Empty(t, rest)
		require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
		close(closed)
		require.Less(t, <-sent, maxBlankLines, "it was open until nothing more came")
	})
}

// A kept connection may be idle for longer than ReadTimeout, which then begins with the first byte
// of a request. The scene is played again when the machine was too late for it.
func TestKeptConnectionOutlivesReadTimeout(t *testing.T) {
	const limit = 4 * short
	s := startServer(t, Options{ReadTimeout: limit, IdleTimeout: time.Hour})
	for range 50 {
		c := s.dialFor(t)
		c.send(get())
		require.Equal(t, 200, c.receive("GET").StatusCode)
		if first := c.slowHead(limit); first && c.slowHead(limit) {
			return
		}
	}
	t.Fatal("the machine was always late")
}

// slowHead is idle for longer than limit, and then sends a request in two parts well within it.
// False: the machine was late.
func (c *client) slowHead(limit time.Duration) bool {
	c.t.Helper()
	time.Sleep(limit + short)
	start := time.Now()
	c.send("GET ")
	time.Sleep(short)
	c.send(strings.TrimPrefix(get(), "GET "))
	status := c.receive("GET").StatusCode
	if status == 408 && time.Since(start) >= limit*3/4 {
		return false
	}
	require.Equal(c.t, 200, status)
	return true
}

func (s *testServer) requireNothingRefused() {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	require.Empty(s.t, s.refused)
}

// waitRefused returns the first refusal, which may be told of a moment after
// the client has its answer.
func (s *testServer) waitRefused(t *testing.T) (e *Error) {
	t.Helper()
	eventually.True(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.refused) > 0 {
			e = s.refused[0]
		}
		return e != nil
	})
	return e
}

func TestRefusalIsReported(t *testing.T) {
	s := startServer(t, Options{})
	c := s.dial()
	c.send(get() + get("A : b"))
	require.Equal(t, 200, c.receive("GET").StatusCode)
	resp := c.receive("GET")
	require.Equal(t, 400, resp.StatusCode)
	require.Equal(t, "text/plain; charset=utf-8", resp.Header.Get("Content-Type"))
	require.Equal(t, "nosniff", resp.Header.Get("X-Content-Type-Options"))
	require.NotEmpty(t, resp.Header.Get("Date"))
	c.requireEOF()
	e := s.waitRefused(t)
	require.Equal(t, 400, e.Status)
	require.Equal(t, "blank in or behind a header field name", e.Reason)
}

// A client that says that it is done before it is gets a 400; one that has
// said nothing gets nothing.
func TestHalfClosed(t *testing.T) {
	s := startServer(t, Options{})
	for in, statuses := range map[string][]int{
		"":                                nil,
		"\r\n":                            nil,
		"GET /f HT":                       {400},
		"GET /f HTTP/1.1\r\nHost: h\r\n":  {400},
		get():                             {200},
		get() + get():                     {200, 200},
		get() + "GET":                     {200, 400},
		get("Content-Length: 5") + "hell": {400},
		chunks("5\r\nhello\r\n0\r\n"):     {400},
	} {
		c := s.dial()
		c.send(in)
		require.NoError(t, c.Conn.(*net.TCPConn).CloseWrite())
		for _, status := range statuses {
			require.Equal(t, status, c.receive("GET").StatusCode, "%q", in)
		}
		c.requireEOF()
	}
}

// A client that waits for 100 (Continue) gets its answer at once (RFC 9110 section 10.1.1), and the
// connection ends: it cannot be told whether the body comes all the same.
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
			c := s.dialFor(t)
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
		c := s.dialFor(t)
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

// The answer to a refused upload arrives although the client goes on sending
// and reads only when it is done: without a lingering close a reset would
// take the answer away.
func TestAnswerSurvivesUnreadBytes(t *testing.T) {
	s := startServer(t, Options{})
	for name, in := range map[string]string{
		"413":          get("Content-Length: 200000"),
		"400":          "GET /f HTTP/1.1\r\nHost : h\r\n\r\n",
		"close":        get("Connection: close"),
		"close framed": get("Connection: close", "Content-Length: 1") + "x",
	} {
		t.Run(name, func(t *testing.T) {
			for range 20 {
				c := s.dialFor(t)
				c.send(in)
				for range 10 {
					c.send(strings.Repeat("x", 10000))
				}
				time.Sleep(5 * time.Millisecond)
				resp := c.receive("GET")
				if name[0] == 'c' {
					require.Equal(t, 200, resp.StatusCode)
				} else {
					require.Equal(t, name, strconv.Itoa(resp.StatusCode))
				}
				c.requireEOF()
				require.NoError(t, c.Close())
			}
		})
	}
}

// The same where the bytes are still in the kernel when the connection is
// closed.
func TestAnswerSurvivesUnseenBytes(t *testing.T) {
	g := New(Options{})
	server, client := tcpPair(t)
	c := g.Wrap(server)
	_, err := io.WriteString(client, get())
	require.NoError(t, err)
	_, err = c.Read(make([]byte, 4096))
	require.NoError(t, err)
	_, err = client.Write(make([]byte, 10000))
	require.NoError(t, err)
	_, err = io.WriteString(c, "answer")
	require.NoError(t, err)
	closed := make(chan error, 1)
	go func() { closed <- c.Close() }()
	time.Sleep(short / 3)
	_, err = client.Write(make([]byte, 10000))
	require.NoError(t, err)
	got, err := io.ReadAll(client)
	require.NoError(t, err)
	require.Equal(t, "answer", string(got))
	require.NoError(t, client.Close())
	require.NoError(t, <-closed)
}

// Lingering has an end, also when the client neither closes nor stops.
func TestLingerIsBounded(t *testing.T) {
	g := New(Options{})
	for name, flood := range map[string]bool{"silent client": false, "flooding client": true} {
		t.Run(name, func(t *testing.T) {
			server, client := tcpPair(t)
			c := g.Wrap(server)
			_, err := client.Write([]byte("bad\r\n"))
			require.NoError(t, err)
			_, err = c.Read(make([]byte, 1))
			require.Equal(t, io.EOF, err)
			done := make(chan struct{})
			go func() {
				defer close(done)
				for flood {
					if _, err := client.Write(make([]byte, 64<<10)); err != nil {
						return
					}
				}
			}()
			start := time.Now()
			require.NoError(t, c.Close())
			require.Less(t, time.Since(start), waitBudget)
			<-done
			require.Zero(t, g.Buffers())
		})
	}
}

// A connection that is done without anything unread is closed at once. The machine may be late now
// and then, but not each time.
func TestOrdinaryCloseDoesNotLinger(t *testing.T) {
	g := New(Options{})
	quickest := time.Hour
	for play := 0; play < 20 && quickest >= lingerTimeout/2; play++ {
		server, client := tcpPair(t)
		c := g.Wrap(server)
		_, err := client.Write([]byte(get("Connection: close")))
		require.NoError(t, err)
		_, err = c.Read(make([]byte, 4096))
		require.NoError(t, err)
		start := time.Now()
		require.NoError(t, c.Close())
		quickest = min(quickest, time.Since(start))
	}
	require.Less(t, quickest, lingerTimeout/2)
}

func TestClose(t *testing.T) {
	g := New(Options{})
	t.Run("wakes Read", func(t *testing.T) {
		for _, in := range []string{"", "GET /f HT", get("Content-Length: 5")} {
			server, client := tcpPair(t)
			c := g.Wrap(server)
			_, err := io.WriteString(client, in)
			require.NoError(t, err)
			read := make(chan error, 1)
			go func() {
				_, err := c.Read(make([]byte, 1))
				read <- err
			}()
			time.Sleep(short / 5)
			require.NoError(t, c.Close())
			require.Equal(t, io.EOF, <-read)
			require.NoError(t, c.Close())
			require.Zero(t, g.Buffers())
			all, err := io.ReadAll(client)
			require.True(t, err == nil || errors.Is(err, net.ErrClosed) || len(all) == 0)
			require.Empty(t, all, "nobody is refused on a connection that was closed from within")
		}
	})
	t.Run("gives back what is pending", func(t *testing.T) {
		server, client := tcpPair(t)
		c := g.Wrap(server)
		_, err := io.WriteString(client, get()+get())
		require.NoError(t, err)
		_, err = c.Read(make([]byte, 1))
		require.NoError(t, err)
		require.Equal(t, 1, g.Buffers())
		require.NoError(t, client.Close())
		require.NoError(t, c.Close())
		require.Zero(t, g.Buffers())
		_, err = c.Read(make([]byte, 1))
		require.Equal(t, io.EOF, err)
	})
	t.Run("empty Read", func(t *testing.T) {
		server, _ := tcpPair(t)
		c := g.Wrap(server)
		n, err := c.Read(nil)
		require.NoError(t, err)
		require.Zero(t, n)
		require.Equal(t, server, c.NetConn())
		require.NoError(t, c.Close())
	})
}

func tcpPair(t *testing.T) (server, client net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, ln.Close()) }()
	client, err = net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	server, err = ln.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { _, _ = client.Close(), server.Close() })
	return server, client
}

// Three hundred idle connections, fresh and used ones, hold no buffer.
func TestIdleConnectionsHoldNoBuffers(t *testing.T) {
	s := startServer(t, Options{})
	var clients []*client
	for i := range 300 {
		c := s.dial()
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

// The same over a unix socket and over TLS, where there is no socket to wait
// for.
func TestOtherTransports(t *testing.T) {
	web := httptest.NewUnstartedServer(nil)
	web.StartTLS()
	cert := web.TLS.Certificates[0]
	web.Close()
	for name, listen := range map[string]func() (net.Listener, func(addr string) (net.Conn, error)){
		"unix": func() (net.Listener, func(string) (net.Conn, error)) {
			ln, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
			require.NoError(t, err)
			return ln, func(addr string) (net.Conn, error) { return net.Dial("unix", addr) }
		},
		"tls": func() (net.Listener, func(string) (net.Conn, error)) {
			ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{cert}})
			require.NoError(t, err)
			return ln, func(addr string) (net.Conn, error) {
				return tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true})
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			ln, dial := listen()
			g := New(Options{})
			server := &fasthttp.Server{Handler: answer, ReduceMemoryUsage: true, ReadBufferSize: g.ReadBufferSize()}
			served := make(chan error, 1)
			go func() {
				conn, err := ln.Accept()
				if err == nil {
					err = server.ServeConn(g.Wrap(conn))
				}
				served <- err
			}()
			conn, err := dial(ln.Addr().String())
			require.NoError(t, err)
			_, err = io.WriteString(conn, get()+get("Content-Length: 5")+"hello"+"bad\r\n"+get())
			require.NoError(t, err)
			all, err := io.ReadAll(conn)
			require.NoError(t, err)
			require.Equal(t, 2, strings.Count(string(all), "HTTP/1.1 200 OK"), string(all))
			require.Equal(t, 1, strings.Count(string(all), "HTTP/1.1 400 Bad Request"), string(all))
			require.NoError(t, conn.Close())
			require.NoError(t, <-served)
			require.NoError(t, ln.Close())
			require.Zero(t, g.Buffers())
		})
	}
}
