package http2server

import (
	"bytes"
	"context"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// transport is a Transport over TCP without TLS.
type transport struct {
	net.Conn
	mu   sync.Mutex // guards idle and gone
	idle time.Time  // zero = busy
	gone bool       // claimed by another connection

	unacknowledged *atomic.Int64
	received       atomic.Pointer[func()] // called once, between the next read and its result; nil = none
}

func (t *transport) Read(p []byte) (int, error) {
	n, err := t.Conn.Read(p)
	if f := t.received.Swap(nil); f != nil {
		(*f)()
	}
	return n, err
}

func (t *transport) MarkIdle() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.idle = time.Now()
}

func (t *transport) MarkBusy() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.idle = time.Time{}
	return !t.gone
}

func (t *transport) IdleFor() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.idle.IsZero() {
		return 0
	}
	return time.Since(t.idle)
}

func (t *transport) CloseWrite() error     { return t.Conn.(*net.TCPConn).CloseWrite() }
func (t *transport) Unacknowledged() int64 { return t.unacknowledged.Load() }
func (t *transport) Abandon() error        { return t.Close() }

// tested is a Server with clients.
type tested struct {
	*Server
	t      testing.TB
	served sync.WaitGroup
	ends   chan error // errors of connections that the server has ended

	unacknowledged atomic.Int64 // of all connections
}

// start starts a server. Shutdown is called at the end of the test.
func start(t testing.TB, handler func(*Stream), change func(*Options)) *tested {
	t.Helper()
	s := &tested{t: t, ends: make(chan error, 100)}
	o := Options{Handler: handler, MaxHead: 8 << 10, MaxFields: 50, ReadTimeout: time.Minute,
		IdleTimeout: time.Minute, MinSendRate: 1000,
		Window: time.Minute, Crowded: func() bool { return false },
		OnEnd: func(_ Transport, err error) { s.ends <- err }}
	if change != nil {
		change(&o)
	}
	s.Server = New(o)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		s.Shutdown(ctx)
		for _, c := range s.snapshot() {
			c.fail(net.ErrClosed) // of a client that left requests open
		}
		s.served.Wait()
	})
	return s
}

// client writes single frames, and reads the frames of the server.
type client struct {
	*http2.Framer
	t     testing.TB
	conn  net.Conn
	block bytes.Buffer
	hpack *hpack.Encoder
}

// dial connects a client that has sent nothing.
func (s *tested) dial() *client {
	s.t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(s.t, err)
	defer func() { _ = ln.Close() }()
	conn, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(s.t, err)
	accepted, err := ln.Accept()
	require.NoError(s.t, err)
	s.served.Go(func() { s.Serve(&transport{Conn: accepted, unacknowledged: &s.unacknowledged}) })
	s.t.Cleanup(func() { _ = conn.Close() })
	require.NoError(s.t, conn.SetDeadline(time.Now().Add(time.Minute)))
	c := &client{Framer: http2.NewFramer(conn, conn), t: s.t, conn: conn}
	c.hpack = hpack.NewEncoder(&c.block)
	c.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	return c
}

// connect connects a client and exchanges settings.
func (s *tested) connect(settings ...http2.Setting) *client {
	s.t.Helper()
	c := s.dial()
	_, err := io.WriteString(c.conn, http2.ClientPreface)
	require.NoError(s.t, err)
	require.NoError(s.t, c.WriteSettings(settings...))
	for acknowledged := false; !acknowledged; {
		f, err := c.ReadFrame()
		require.NoError(s.t, err)
		settings, ok := f.(*http2.SettingsFrame)
		require.True(s.t, ok, "%v", f)
		acknowledged = settings.IsAck()
	}
	return c
}

// fields encodes a header block from names and values.
func (c *client) fields(list ...string) []byte {
	c.block.Reset()
	for i := 0; i < len(list); i += 2 {
		require.NoError(c.t, c.hpack.WriteField(hpack.HeaderField{Name: list[i], Value: list[i+1]}))
	}
	return bytes.Clone(c.block.Bytes())
}

// get returns the fields of a GET request, with further ones.
func get(path string, more ...string) []string {
	return append([]string{":method", "GET", ":scheme", "https", ":authority", "h", ":path", path}, more...)
}

// ask opens a stream with a request, or sends trailers; end is false if a body follows.
func (c *client) ask(id uint32, end bool, fields ...string) {
	c.t.Helper()
	require.NoError(c.t, c.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: c.fields(fields...),
		EndStream: end, EndHeaders: true}))
}

// response is the part of a stream that a client has received.
type response struct {
	status string
	fields map[string]string
	body   []byte
	reset  *http2.ErrCode
}

// receive reads until a stream has ended. It passes all frames to seen, if not nil.
func (c *client) receive(id uint32, seen func(http2.Frame)) (r response) {
	c.t.Helper()
	for {
		f, err := c.ReadFrame()
		require.NoError(c.t, err)
		if seen != nil {
			seen(f)
		}
		if f.Header().StreamID != id {
			continue
		}
		switch f := f.(type) {
		case *http2.MetaHeadersFrame:
			r.status, r.fields = f.PseudoValue("status"), map[string]string{}
			for _, field := range f.RegularFields() {
				r.fields[field.Name] = field.Value
			}
		case *http2.DataFrame:
			r.body = append(r.body, f.Data()...)
		case *http2.RSTStreamFrame:
			r.reset = &f.ErrCode
			return r
		}
		if f.Header().Flags.Has(http2.FlagDataEndStream) && f.Header().Type != http2.FrameWindowUpdate {
			return r
		}
	}
}

// requireEnd reads until the server closes the connection, and requires a GOAWAY with the code
// before that.
func (c *client) requireEnd(code http2.ErrCode, what string) {
	c.t.Helper()
	for {
		f, err := c.ReadFrame()
		require.NoError(c.t, err, what)
		if goAway, ok := f.(*http2.GoAwayFrame); ok {
			require.Equal(c.t, code, goAway.ErrCode, what)
			break
		}
	}
	_, err := io.Copy(io.Discard, c.conn)
	if err != nil { // a reset, since the server has read no further
		require.NotErrorIs(c.t, err, context.DeadlineExceeded, what)
	}
}

// hello responds with the target of the request. For /wait it first waits for the end of the
// stream.
func hello(st *Stream) {
	if st.Request.Target == "/wait" {
		<-st.Context().Done()
	}
	body := []byte(st.Request.Target)
	_ = st.WriteHead(Head{Status: 200, Length: int64(len(body)), Fields: pairs("X-Name", "value")}, false)
	_, _ = st.Write(body, true)
}

// pairs yields names and values.
func pairs(list ...string) func(func(name, value []byte) bool) {
	return func(yield func(name, value []byte) bool) {
		for i := 0; i < len(list); i += 2 {
			if !yield([]byte(list[i]), []byte(list[i+1])) {
				return
			}
		}
	}
}
