package gateway

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"fastdfs-gateway/antisteal"
	"fastdfs-gateway/internal/httpserver"
	"fastdfs-gateway/internal/origin"
	"fastdfs-gateway/internal/process/panics"
	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/internal/testing/logtest"
	"fastdfs-gateway/storage/local"
	"fastdfs-gateway/tests/storetest"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// testTimeout bounds everything that normally takes a fraction of a second: a slow machine under
// load is no failure.
const testTimeout = time.Minute

// fasthttpsOwn ignores the clock of fasthttp, a goroutine that outlives every server.
var fasthttpsOwn = []goleak.Option{
	goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"),
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(settled{m}, fasthttpsOwn...) }

// settled runs the tests and waits for goroutines that are about to end: goleak itself waits for
// less than half a second.
type settled struct{ m *testing.M }

func (s settled) Run() int {
	code := s.m.Run()
	end := time.Now().Add(testTimeout)
	for code == 0 && goleak.Find(fasthttpsOwn...) != nil && time.Now().Before(end) {
		time.Sleep(10 * time.Millisecond)
	}
	return code
}

// running is a server in this process, so that the race detector and the leak check see it.
type running struct {
	t       *testing.T
	server  *httpserver.Server
	handler *Handler
	log     *logtest.Buffer
	address string
}

func openLocal(t *testing.T, s *storetest.Store) *local.Store {
	t.Helper()
	local, err := local.Open(local.Options{Groups: []local.GroupPaths{
		{Name: storetest.Group, StorePaths: []string{s.Root(storetest.Group, 0), s.Root(storetest.Group, 1)}}}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, local.Close()) })
	return local
}

// run serves the options until the test ends, and then requires that no file, connection or
// goroutine is left.
func run(t *testing.T, o Options, so httpserver.Options) *running {
	t.Helper()
	r := &running{t: t, log: &logtest.Buffer{}}
	o.GroupInURL, o.Log = true, slog.New(slog.NewTextHandler(r.log, nil))
	so.Log = o.Log
	r.handler = NewHandler(o)
	r.server = httpserver.New(so, r.handler)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	r.address = ln.Addr().String()
	served := make(chan error, 1)
	go func() { served <- r.server.Serve(ln, nil) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
		defer cancel()
		require.NoError(t, r.server.Shutdown(ctx))
		require.NoError(t, <-served)
		require.Equal(t, left{}, r.left())
	})
	return r
}

// left counts the files and connections that a server holds.
type left struct{ files, connections int64 }

func (r *running) left() left {
	return left{int64(testutil.ToFloat64(r.handler.o.Metrics.openFiles)), r.server.Connections()}
}

func (r *running) dial() net.Conn {
	r.t.Helper()
	c, err := net.Dial("tcp", r.address)
	require.NoError(r.t, err)
	require.NoError(r.t, c.SetDeadline(time.Now().Add(testTimeout)))
	r.t.Cleanup(func() { _ = c.Close() })
	return c
}

// TestClientsThatLeave: while clients disconnect at every stage of a response, by FIN and by RST,
// and the handler is exchanged, the other clients get the right bytes.
func TestClientsThatLeave(t *testing.T) {
	s := storetest.New(t)
	files := []storetest.Object{s.Normal("mp4", s.Bytes(1<<20)), s.Trunk("jpg", s.Bytes(5000)),
		s.Trunk("jpg", s.Bytes(5001)), s.Normal("jpg", nil)}
	o := Options{Store: openLocal(t, s)}
	r := run(t, o, httpserver.Options{MaxConnectionsPerIP: 1000, MinSendRate: 1})
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			for j := range 12 {
				f := files[(i+j)%len(files)]
				if i%2 == 0 {
					r.leave(f, (i*20+j)*1000%(len(f.Content)+200))
				} else {
					r.fetch(f)
				}
				if i == 1 {
					r.server.SetHandler(NewHandler(Options{Store: o.Store, GroupInURL: true,
						Metrics: r.handler.o.Metrics, Log: r.handler.o.Log}))
				}
			}
		})
	}
	wg.Wait()
}

// leave requests the file, and disconnects after n bytes of the response.
func (r *running) leave(f storetest.Object, n int) {
	c, err := net.Dial("tcp", r.address)
	if err != nil {
		r.t.Error(err)
		return
	}
	_ = c.SetDeadline(time.Now().Add(testTimeout))
	_, _ = io.WriteString(c, "GET "+f.URL()+" HTTP/1.1\r\nHost: gw.test\r\n\r\nGET "+f.URL()+
		" HTTP/1.1\r\nHost: gw.test\r\n\r\n")
	_, _ = io.CopyN(io.Discard, c, int64(n))
	if n%3 == 0 {
		_ = c.(*net.TCPConn).SetLinger(0) // RST
	}
	_ = c.Close()
}

// fetch gets the file three times over one connection.
func (r *running) fetch(f storetest.Object) {
	c, err := net.Dial("tcp", r.address)
	if err != nil {
		r.t.Error(err)
		return
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(testTimeout))
	in := bufio.NewReader(c)
	for range 3 {
		_, _ = io.WriteString(c, "GET "+f.URL()+" HTTP/1.1\r\nHost: gw.test\r\n\r\n")
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			r.t.Error(err)
			return
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil || !bytes.Equal(body, f.Content) {
			r.t.Errorf("%s: %d bytes of %d, %v", f.URL(), len(body), len(f.Content), err)
		}
	}
}

// brokenOrigin panics or returns an unknown error, as a bug could.
type brokenOrigin struct {
	Origin
	panics bool
}

func (b brokenOrigin) Find(*origin.Request, error) (string, error) {
	if b.panics {
		panic("test")
	}
	return "", errors.New("secret detail")
}

// littleRoom dials connections with a small receive buffer, which take few bytes before the client
// reads.
var littleRoom = &net.Dialer{Control: func(_, _ string, raw syscall.RawConn) (err error) {
	_ = raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 4096)
	})
	return err
}}

// TestLastResponse: after a request with Connection: close, a client that reads a short response
// slowly occupies no connection of the server, and still gets all of it from the kernel. With a
// long response the connection counts until the client has taken it.
func TestLastResponse(t *testing.T) {
	s := storetest.New(t)
	short, long := s.Normal("jpg", s.Bytes(60<<10)), s.Normal("mp4", s.Bytes(100<<10))
	r := run(t, Options{Store: openCache(t, s, local.FileCacheOptions{MaxBody: 64 << 10, Memory: 1 << 20})},
		httpserver.Options{})
	ask := func(f storetest.Object) net.Conn {
		c, err := littleRoom.Dial("tcp", r.address)
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		_, err = io.WriteString(c, "GET "+f.URL()+" HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
		require.NoError(t, err)
		return c
	}
	requireWhole := func(c net.Conn, f storetest.Object) {
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		require.NoError(t, err)
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.True(t, bytes.Equal(f.Content, body))
	}
	for i := range 3 { // from the file, and from memory
		began := time.Now()
		c := ask(short)
		eventually.True(t, func() bool {
			return r.handler.o.Metrics.Sample().Requests == uint64(i)+1 && r.server.Connections() == 0
		})
		require.Less(t, time.Since(began), 25*time.Second, "the connection was held until 30 s had passed")
		requireWhole(c, short)
	}
	c := ask(long)
	eventually.True(t, func() bool { return r.server.Connections() == 1 })
	eventually.True(t, func() bool { return testutil.ToFloat64(r.handler.o.Metrics.openFiles) == 0 })
	require.EqualValues(t, 1, r.server.Connections(), "its response is not acknowledged")
	requireWhole(c, long)
}

// TestBugsAreContained: a panic or an unknown error is a 500 without internals, and the next
// request is served.
func TestBugsAreContained(t *testing.T) {
	s := storetest.New(t)
	f := s.Normal("jpg", s.Bytes(10))
	r := run(t, Options{Store: openLocal(t, s)}, httpserver.Options{})
	panics.SetLog(r.handler.o.Log)
	defer panics.SetLog(nil)
	before := panics.Total()
	for _, bug := range []brokenOrigin{{panics: true}, {panics: false}} {
		o := r.handler.o
		o.Origin = bug
		broken := NewHandler(o)
		r.server.SetHandler(broken)
		response := r.ask("GET", s.Missing("jpg", time.Now()).URL())
		require.Contains(t, response, "HTTP/1.1 500 ")
		require.True(t, strings.HasSuffix(response, "\r\n\r\ninternal error\n"))
		r.fetch(f)
	}
	broken := NewHandler(r.handler.o)
	broken.pool.New = func() any { panic("test") } // outside of the request path
	r.server.SetHandler(broken)
	require.Contains(t, r.ask("GET", f.URL()), "HTTP/1.1 500 ")
	r.server.SetHandler(r.handler)
	r.fetch(f)
	require.EqualValues(t, before+2, panics.Total())
	require.Contains(t, r.log.String(), "BUG: panic")
	require.Contains(t, r.log.String(), "secret detail", "the log tells")
}

func TestTokenReasonsAreCounted(t *testing.T) {
	s := storetest.New(t)
	f := s.Normal("jpg", s.Bytes(10))
	o := Options{Store: openLocal(t, s), Tokens: antisteal.NewChecker(antisteal.Options{Secrets: []string{"k"}})}
	r := run(t, o, httpserver.Options{})
	for reason, query := range map[string]string{
		"missing": "", "malformed": "?token=x&ts=1", "expired": "?" + antisteal.Query("k", f.ID.Logic, 1),
		"mismatch": "?" + antisteal.Query("x", f.ID.Logic, 0),
	} {
		require.Contains(t, r.ask("GET", f.URL()+query), "HTTP/1.1 400 ")
		count := r.handler.o.Metrics.rejectedTokens.WithLabelValues(reason)
		require.Equal(t, 1.0, testutil.ToFloat64(count), reason)
	}
}
