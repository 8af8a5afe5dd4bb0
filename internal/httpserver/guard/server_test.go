package guard

import (
	"bufio"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"fastdfs-gateway/internal/httpserver/eventloop"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// fasthttp starts this goroutine for the Date field, and never ends it.
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"))
}

// Buffers returns the number of buffers that are taken from the pools.
func (g *Guard) Buffers() int { return int(g.held.Load()) }

// waitBudget bounds the wait for an event that normally comes at once: the machine may be under
// load.
const waitBudget = 30 * time.Second

// testServer is a real fasthttp server on a real socket behind a Guard.
type testServer struct {
	guard *Guard
	addr  string

	mu       sync.Mutex
	rejected []*Error // guarded by mu
	errors   []error  // guarded by mu; faults that fasthttp has found: always empty
}

func startServer(t *testing.T, opts Options) *testServer {
	t.Helper()
	s := &testServer{}
	opts.OnReject = func(_ net.Conn, e *Error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.rejected = append(s.rejected, e)
	}
	s.guard = New(opts)
	server := &fasthttp.Server{
		Handler:           respond,
		ReduceMemoryUsage: true,
		ReadBufferSize:    ReadBufferSize,
		ErrorHandler: func(ctx *fasthttp.RequestCtx, err error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.errors = append(s.errors, err)
			ctx.SetStatusCode(599)
		},
	}
	var conns sync.WaitGroup
	s.addr = serveSockets(t, func(conn net.Conn) {
		conns.Go(func() { _ = server.ServeConn(s.guard.Wrap(conn)) })
	}, func() {
		conns.Wait()
		require.Empty(t, s.errors, "the server found a fault that the guard let through")
		require.Zero(t, s.guard.Buffers(), "buffers were not given back")
	})
	return s
}

// serveSockets passes connections, which are Sockets, to accept until the test ends, and then calls
// done, which waits for their end.
func serveSockets(t *testing.T, accept func(net.Conn), done func()) (addr string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	loops := eventloop.New(nil)
	var mu sync.Mutex
	ended := false
	_, err = loops.Listen(ln, slog.Default(), func(c *eventloop.Conn) {
		c.Leave()
		mu.Lock()
		defer mu.Unlock()
		if ended {
			_ = c.Close() // accepted while the test ends
			return
		}
		accept(c)
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		loops.CloseListeners()
		require.NoError(t, ln.Close())
		mu.Lock()
		ended = true
		mu.Unlock()
		done()
		require.NoError(t, loops.Close())
	})
	return ln.Addr().String()
}

// respond returns the request that the server has parsed to the client.
func respond(ctx *fasthttp.RequestCtx) {
	ctx.Response.Header.Set("X-Target", string(ctx.Request.Header.RequestURI()))
	ctx.Response.Header.Set("X-Host", string(ctx.Request.Header.Host()))
	for _, name := range []string{"Content-Length", "Transfer-Encoding", "Expect", "TE", "Trailer", "Upgrade"} {
		if ctx.Request.Header.Peek(name) != nil && name != "Content-Length" || len(ctx.Request.Body()) > 0 {
			ctx.SetStatusCode(598)
			return
		}
	}
	if !ctx.IsGet() && !ctx.IsHead() {
		ctx.SetStatusCode(405)
	}
	ctx.SetBodyString("body")
}

// client is a raw connection to a testServer.
type client struct {
	net.Conn
	br *bufio.Reader
	t  *testing.T
}

func (s *testServer) dial(t *testing.T) *client {
	t.Helper()
	conn, err := net.Dial("tcp", s.addr)
	require.NoError(t, err)
	require.NoError(t, conn.SetDeadline(time.Now().Add(2*waitBudget)))
	c := &client{Conn: conn, br: bufio.NewReader(conn), t: t}
	t.Cleanup(func() { _ = conn.Close() })
	return c
}

// send writes s. If the server has already closed, the next read reports that.
func (c *client) send(s string) { _, _ = io.WriteString(c, s) }

// receive reads one response with its body, and skips interim responses.
func (c *client) receive(method string) *http.Response {
	c.t.Helper()
	for {
		resp, err := http.ReadResponse(c.br, &http.Request{Method: method})
		require.NoError(c.t, err)
		body, err := io.ReadAll(resp.Body)
		require.NoError(c.t, err)
		if method != "HEAD" && resp.StatusCode != 100 {
			require.NotEmpty(c.t, body)
		}
		if resp.StatusCode != 100 {
			return resp
		}
	}
}

// requireEOF requires that the server sends nothing more and has closed.
func (c *client) requireEOF() {
	c.t.Helper()
	rest, err := io.ReadAll(c.br)
	require.NoError(c.t, err, "the connection was reset or not closed")
	require.Empty(c.t, string(rest))
}
