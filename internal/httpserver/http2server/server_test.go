package http2server

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"fastdfs-gateway/internal/testing/eventually"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/net/http2"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestRequests: requests with and without a body get their responses, one after the other and at
// the same time.
func TestRequests(t *testing.T) {
	s := start(t, hello, nil)
	c := s.connect()
	c.ask(1, true, get("/a")...)
	r := c.receive(1, nil)
	require.Equal(t, "200", r.status)
	require.Equal(t, "/a", string(r.body))
	require.Equal(t, "value", r.fields["x-name"])
	require.Equal(t, "2", r.fields["content-length"])
	date, err := time.Parse("Mon, 02 Jan 2006 15:04:05 GMT", r.fields["date"])
	require.NoError(t, err)
	require.WithinDuration(t, time.Now(), date, time.Minute)

	c.ask(3, false, get("/b", "content-length", "5")...)
	require.NoError(t, c.WriteData(3, false, []byte("he")))
	require.NoError(t, c.WriteData(3, true, []byte("llo")))
	require.Equal(t, "/b", string(c.receive(3, nil).body))

	c.ask(5, false, get("/c")...)
	c.ask(7, true, get("/d")...)
	require.Equal(t, "/d", string(c.receive(7, nil).body))
	require.NoError(t, c.WriteData(5, false, []byte("x")))
	c.ask(5, true, "trailer", "x") // trailers end the request
	require.Equal(t, "/c", string(c.receive(5, nil).body))
}

// TestBodies: bodies are read up to 64 KiB, and the client gets its windows back. A larger body is
// rejected, and its stream is reset after the response.
func TestBodies(t *testing.T) {
	problems := make(chan Problem, 1)
	s := start(t, func(st *Stream) {
		problems <- st.Request.Problem
		hello(st)
	}, nil)
	const most = 65536
	for size, want := range map[int]Problem{most: None, most + 1: BodyTooLarge, 3 * most: BodyTooLarge} {
		c := s.connect()
		c.ask(1, false, get("/x")...)
		windows := map[uint32]int{0: 65535, 1: 65535}
		var reset http2.ErrCode
		for sent := 0; sent < size && reset == 0; {
			if n := min(size-sent, windows[0], windows[1], 16<<10); n > 0 {
				require.NoError(t, c.WriteData(1, sent+n == size, make([]byte, n)))
				sent, windows[0], windows[1] = sent+n, windows[0]-n, windows[1]-n
				continue
			}
			f, err := c.ReadFrame()
			require.NoError(t, err)
			switch f := f.(type) {
			case *http2.WindowUpdateFrame:
				windows[f.StreamID] += int(f.Increment)
			case *http2.DataFrame:
				if size > most && f.StreamEnded() {
					reset = *c.receive(1, nil).reset + 1
				}
			}
		}
		require.Equal(t, want, <-problems, "%d bytes", size)
		if reset > 0 {
			require.Equal(t, http2.ErrCodeNo, reset-1)
			require.NoError(t, c.WriteData(1, true, nil)) // as a frame that was sent before the reset arrived
			c.ask(3, true, get("/y")...)
			require.Equal(t, None, <-problems)
			require.Equal(t, "/y", string(c.receive(3, nil).body))
		}
	}
}

// TestExpectContinue: a client that waits for 100 (Continue) gets it.
func TestExpectContinue(t *testing.T) {
	s := start(t, hello, nil)
	c := s.connect()
	c.ask(1, false, get("/a", "expect", "100-Continue")...)
	f, err := c.ReadFrame()
	require.NoError(t, err)
	require.Equal(t, "100", f.(*http2.MetaHeadersFrame).PseudoValue("status"))
	require.NoError(t, c.WriteData(1, true, []byte("x")))
	require.Equal(t, "200", c.receive(1, nil).status)
}

// TestWindows: a response keeps within the windows of its stream and its connection, also if the
// client makes a window smaller than the bytes that were sent.
func TestWindows(t *testing.T) {
	body := bytes.Repeat([]byte("0123456789"), 20_000)
	s := start(t, func(st *Stream) {
		_ = st.WriteHead(Head{Status: 200, Length: int64(len(body))}, false)
		_, _ = st.Write(body, true)
	}, nil)
	c := s.connect(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1000})
	c.ask(1, true, get("/")...)
	sent, allowed, conn := 0, 1000, 65535
	data := func() {
		for f, err := c.ReadFrame(); ; f, err = c.ReadFrame() {
			require.NoError(t, err)
			if d, ok := f.(*http2.DataFrame); ok {
				sent += len(d.Data())
				require.LessOrEqual(t, sent, min(allowed, conn))
				if sent == min(allowed, conn) {
					return
				}
			}
		}
	}
	data()
	require.NoError(t, c.WriteWindowUpdate(1, 500))
	allowed += 500
	data()
	require.NoError(t, c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})) // now -1000
	require.NoError(t, c.WriteWindowUpdate(1, 1000))
	require.NoError(t, c.WriteWindowUpdate(1, 1)) // one more byte
	allowed++
	data()
	require.NoError(t, c.WriteWindowUpdate(1, 1<<20))
	allowed += 1 << 20
	data() // up to the window of the connection
	c.ask(3, true, get("/other")...)
	head, err := c.ReadFrame()
	for ; err == nil && head.Header().StreamID != 3; head, err = c.ReadFrame() {
	}
	require.NoError(t, err)
	require.IsType(t, &http2.MetaHeadersFrame{}, head, "a head needs no window")
	require.NoError(t, c.WriteRSTStream(3, http2.ErrCodeCancel))
	require.NoError(t, c.WriteWindowUpdate(0, 1<<20))
	conn, allowed = len(body), len(body)
	data()
}

// TestManyStreams: all responses of a connection make progress, with small windows that open one by
// one.
func TestManyStreams(t *testing.T) {
	body := bytes.Repeat([]byte("x"), 300_000)
	s := start(t, func(st *Stream) {
		_ = st.WriteHead(Head{Status: 200, Length: int64(len(body))}, false)
		_, _ = st.Write(body, true)
	}, nil)
	const streams = 100
	c := s.connect(http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(len(body))})
	require.NoError(t, c.WriteWindowUpdate(0, uint32(streams*len(body)))) // wider windows later would wake handlers
	for id := range uint32(streams) {
		c.ask(2*id+1, true, get("/")...)
	}
	got, ended := map[uint32]int{}, 0
	for ended < streams {
		f, err := c.ReadFrame()
		require.NoError(t, err)
		d, ok := f.(*http2.DataFrame)
		if !ok {
			continue
		}
		got[d.StreamID] += len(d.Data())
		if d.StreamEnded() {
			require.Equal(t, len(body), got[d.StreamID])
			ended++
		}
	}
}

// TestIncompleteResponse: a handler that returns early, or panics, resets its stream.
func TestIncompleteResponse(t *testing.T) {
	s := start(t, func(st *Stream) {
		if st.Request.Target == "/panic" {
			panic("a bug")
		}
		_ = st.WriteHead(Head{Status: 200, Length: 10}, false)
		_, _ = st.Write([]byte("half"), false)
	}, nil)
	c := s.connect()
	for id, path := range []string{"/half", "/panic"} {
		c.ask(uint32(2*id+1), true, get(path)...)
		require.Equal(t, http2.ErrCodeInternal, *c.receive(uint32(2*id+1), nil).reset)
	}
}

// TestLeavers: the context and the writes of a handler end if the client resets the stream or
// disconnects.
func TestLeavers(t *testing.T) {
	errs := make(chan error, 10)
	s := start(t, func(st *Stream) {
		if st.Request.Target == "/write" {
			_, err := st.Write(make([]byte, 1<<20), true)
			errs <- err
			return
		}
		<-st.Context().Done()
		errs <- st.Context().Err()
	}, nil)
	c := s.connect()
	for i, path := range []string{"/write", "/wait"} {
		id := uint32(2*i + 1)
		c.ask(id, true, get(path)...)
		if path == "/write" {
			for f, err := c.ReadFrame(); f.Header().Length == maxFrame; f, err = c.ReadFrame() {
				require.NoError(t, err)
			}
		}
		require.NoError(t, c.WriteRSTStream(id, http2.ErrCodeCancel))
		require.Error(t, <-errs, path)
	}
	c.ask(5, true, get("/write")...)
	c.ask(7, true, get("/wait")...)
	eventually.True(t, func() bool { return s.snapshot()[0].handlers() == 2 })
	require.NoError(t, c.conn.Close())
	require.Error(t, <-errs)
	require.Error(t, <-errs)
	eventually.True(t, func() bool { return len(s.snapshot()) == 0 })
}

func (c *conn) handlers() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.running
}

// TestProgress: a connection ends if its client does not complete a frame or a header block, or
// takes too few bytes. A late body is reported to the handler.
func TestProgress(t *testing.T) {
	const short = 100 * time.Millisecond
	handler := func(st *Stream) {
		if st.Request.Problem == BodyLate {
			_ = st.WriteHead(Head{Status: 408, Length: 0}, true)
			return
		}
		_ = st.WriteHead(Head{Status: 200, Length: 1 << 20}, false)
		_, _ = st.Write(make([]byte, 1<<20), true)
	}
	s := start(t, handler, func(o *Options) { o.ReadTimeout, o.Window = short, short })
	for name, send := range map[string]func(c *client){
		"frame": func(c *client) {
			_, err := c.conn.Write([]byte{0, 0, 8})
			require.NoError(t, err)
		},
		"block": func(c *client) {
			require.NoError(t, c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: c.fields("a", "b")}))
		},
		"slow": func(c *client) { c.ask(1, true, get("/")...) }, // the window of the connection does not grow
	} {
		c := s.connect(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
		send(c)
		_, _ = io.Copy(io.Discard, c.conn) // until the connection is closed
		want := errLate
		if name == "slow" {
			want = ErrSlow
		}
		require.ErrorIs(t, <-s.ends, want, name)
	}
	c := s.connect()
	c.ask(1, false, get("/")...)
	require.Equal(t, "408", c.receive(1, nil).status)
	silent := s.dial()
	_, err := io.Copy(io.Discard, silent.conn)
	require.NoError(t, err, "without a preface")
}

// TestPausedStream: a stream whose client stops to accept it is reset. Other streams of the
// connection continue, however few bytes they have. While the client's host has not acknowledged
// all bytes, the network is slow, not the client.
func TestPausedStream(t *testing.T) {
	const window = 80 * time.Millisecond
	ended := make(chan error, 1)
	s := start(t, func(st *Stream) {
		if st.Request.Target != "/paused" {
			hello(st)
			return
		}
		_ = st.WriteHead(Head{Status: 200, Length: 1 << 20}, false)
		_, err := st.Write(make([]byte, 1<<20), true)
		ended <- err
	}, func(o *Options) { o.Window = window })
	c := s.connect()
	require.NoError(t, c.WriteWindowUpdate(0, 1<<20))
	id := uint32(1)
	next := func() (r response) {
		id += 2
		c.ask(id, true, get("/small")...)
		return c.receive(id, nil)
	}

	s.unacknowledged.Store(1 << 20) // the network has not delivered these bytes
	c.ask(1, true, get("/paused")...)
	for began := time.Now(); time.Since(began) < 5*window; {
		require.Equal(t, "200", next().status)
		require.Empty(t, ended)
	}
	s.unacknowledged.Store(0)
	for len(ended) == 0 {
		require.Equal(t, "200", next().status)
	}
	require.ErrorIs(t, <-ended, ErrSlow)
	require.Equal(t, "200", next().status)
	require.Empty(t, s.ends, "the connection was ended")
}

// TestBodyEndsLate: a stream whose response is complete before its request ends with the request.
func TestBodyEndsLate(t *testing.T) {
	answered, goOn := make(chan struct{}), make(chan struct{})
	s := start(t, func(st *Stream) {
		hello(st)
		close(answered)
		<-goOn
	}, nil)
	c := s.connect()
	c.ask(1, false, get("/")...)
	for left := MaxBody + 1; left > 0; left -= min(left, 16000) { // too much: the handler is called
		require.NoError(t, c.WriteData(1, false, make([]byte, min(left, 16000))))
	}
	<-answered
	require.NoError(t, c.WriteData(1, true, nil))
	require.NoError(t, c.WritePing(false, [8]byte{1}))
	for pong := false; !pong; { // the frames before the ping are handled
		f, err := c.ReadFrame()
		require.NoError(t, err)
		_, pong = f.(*http2.PingFrame)
	}
	close(goOn)
	for _, conn := range s.snapshot() {
		eventually.True(t, func() bool {
			conn.mu.Lock()
			defer conn.mu.Unlock()
			return len(conn.streams) == 0 && conn.idle
		})
	}
}

// TestIdle: an idle connection ends with a GOAWAY. A connection that was claimed for another one
// ends at its next request.
func TestIdle(t *testing.T) {
	s := start(t, hello, func(o *Options) {
		o.Window = 80 * time.Millisecond
		o.IdleTimeout = 50 * time.Millisecond
	})
	c := s.connect()
	c.requireEnd(http2.ErrCodeNo, "idle")
	s = start(t, hello, nil)
	c = s.connect()
	claimed := s.snapshot()[0].t.(*transport)
	claimed.mu.Lock()
	claimed.gone = true
	claimed.mu.Unlock()
	c.ask(1, true, get("/")...)
	_, err := io.Copy(io.Discard, c.conn)
	require.False(t, errors.Is(err, context.DeadlineExceeded))
}

// TestHeadBehindTheEnd: a request that was received, but not read, when its connection failed gets
// no stream: nothing would end it.
func TestHeadBehindTheEnd(t *testing.T) {
	s := start(t, hello, nil)
	c := s.connect()
	conn := s.snapshot()[0]
	fail := func() { conn.fail(ErrSlow) }
	conn.t.(*transport).received.Store(&fail)
	c.ask(1, true, get("/wait")...)
	eventually.True(t, func() bool { return len(s.snapshot()) == 0 })
}

// TestUnreadBodies: the requests of a connection that wait for their bodies have together no more
// than the bytes of one head. Others are refused until one of them has its body.
func TestUnreadBodies(t *testing.T) {
	s := start(t, hello, nil)
	c := s.connect()
	many := get("/")
	for range 45 {
		many = append(many, "a", "b")
	}
	size := 0
	for i := 0; i < len(many); i += 2 {
		size += len(many[i]) + len(many[i+1]) + 32
	}
	fit := uint32(8<<10) / uint32(size)
	refused := func(id uint32) bool {
		c.ask(id, false, many...)
		require.NoError(t, c.WritePing(false, [8]byte{}))
		for reset := false; ; {
			f, err := c.ReadFrame()
			require.NoError(t, err)
			switch f := f.(type) {
			case *http2.RSTStreamFrame:
				reset = f.StreamID == id && f.ErrCode == http2.ErrCodeRefusedStream
			case *http2.PingFrame:
				return reset
			}
		}
	}
	for i := range uint32(maxStreams) {
		require.Equal(t, i >= fit, refused(2*i+1), "stream %d", 2*i+1)
	}
	require.NoError(t, c.WriteData(1, true, nil))
	require.Equal(t, "200", c.receive(1, nil).status)
	require.NoError(t, c.WriteRSTStream(3, http2.ErrCodeCancel))
	require.False(t, refused(1001), "of a request that was served")
	require.False(t, refused(1003), "of a reset one")
	require.True(t, refused(1005))
}

// TestShutdown: running requests are completed, later ones are ignored, and then the connection is
// closed.
func TestShutdown(t *testing.T) {
	goOn := make(chan struct{})
	s := start(t, func(st *Stream) {
		<-goOn
		hello(st)
	}, nil)
	c := s.connect()
	c.ask(1, true, get("/a")...)
	eventually.True(t, func() bool { return s.snapshot()[0].handlers() == 1 })
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Shutdown(t.Context())
	}()
	f, err := c.ReadFrame()
	require.NoError(t, err)
	require.EqualValues(t, 1, f.(*http2.GoAwayFrame).LastStreamID)
	c.ask(3, true, get("/b")...)
	require.NoError(t, c.WriteData(3, true, nil)) // of an ignored stream
	close(goOn)
	require.Equal(t, "/a", string(c.receive(1, nil).body))
	_, err = io.Copy(io.Discard, c.conn)
	require.False(t, errors.Is(err, context.DeadlineExceeded))
	<-done
	s.ended = make(chan struct{}) // for the Shutdown of the cleanup
}

// TestEndIsNotCut: the last response of a connection arrives although the client sends frames after
// its end, and reads late: an immediate close would reset the connection.
func TestEndIsNotCut(t *testing.T) {
	body := bytes.Repeat([]byte("x"), 60_000)
	s := start(t, func(st *Stream) {
		_ = st.WriteHead(Head{Status: 200, Length: int64(len(body)), Last: true}, false)
		_, _ = st.Write(body, true)
	}, nil)
	c := s.connect()
	c.ask(1, true, get("/")...)
	conn := s.snapshot()[0]
	eventually.True(t, func() bool {
		conn.mu.Lock()
		defer conn.mu.Unlock()
		return !conn.done.IsZero()
	})
	for range 10 {
		require.NoError(t, c.WritePing(false, [8]byte{}))
	}
	require.Equal(t, body, c.receive(1, nil).body)
	_, err := io.Copy(io.Discard, c.conn)
	require.NoError(t, err)
}
