package http2server

import (
	"bytes"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// TestMalformedRequests: a request that breaks RFC 9113 resets its stream. The next request on the
// connection is served.
func TestMalformedRequests(t *testing.T) {
	s := start(t, hello, nil)
	c := s.connect()
	id := uint32(1)
	for name, fields := range map[string][]string{
		"no method":        {":scheme", "https", ":path", "/"},
		"no scheme":        {":method", "GET", ":path", "/"},
		"empty path":       get(""),
		"two paths":        get("/", ":path", "/"),
		"unknown pseudo":   get("/", ":protocol", "websocket"),
		"pseudo behind":    {":method", "GET", ":scheme", "https", "a", "b", ":path", "/"},
		"large letter":     get("/", "Name", "x"),
		"blank in a name":  get("/", "na me", "x"),
		"empty name":       get("/", "", "x"),
		"line end":         get("/", "name", "a\r\nb"),
		"connection":       get("/", "connection", "close"),
		"te":               get("/", "te", "gzip"),
		"length":           get("/", "content-length", "x"),
		"two lengths":      get("/", "content-length", "0", "content-length", "0"),
		"empty method":     {":method", "", ":scheme", "https", ":path", "/"},
		"tab behind":       get("/", "range", "bytes=0-3\t"),
		"length, no body":  get("/", "content-length", "1"),
		"CONNECT, path":    {":method", "CONNECT", ":authority", "h:1", ":path", "/"},
		"CONNECT, no host": {":method", "CONNECT"},
	} {
		c.ask(id, true, fields...)
		r := c.receive(id, nil)
		require.NotNil(t, r.reset, name)
		require.Equal(t, http2.ErrCodeProtocol, *r.reset, name)
		c.ask(id+2, true, get("/next", "te", "trailers", "content-length", "0")...)
		require.Equal(t, "200", c.receive(id+2, nil).status, name)
		id += 4
	}
}

// TestStreamErrors: frames that are invalid for their stream reset it.
func TestStreamErrors(t *testing.T) {
	for name, tt := range map[string]struct {
		send func(c *client) error
		code http2.ErrCode
	}{
		"body is shorter": {func(c *client) error {
			c.ask(1, false, get("/", "content-length", "3")...)
			return c.WriteData(1, true, []byte("ab"))
		}, http2.ErrCodeProtocol},
		"body is longer": {func(c *client) error {
			c.ask(1, false, get("/", "content-length", "1")...)
			return c.WriteData(1, false, []byte("ab"))
		}, http2.ErrCodeProtocol},
		"trailers go on": {func(c *client) error {
			c.ask(1, false, get("/")...)
			c.ask(1, false, "a", "b")
			return nil
		}, http2.ErrCodeProtocol},
		"pseudo in trailers": {func(c *client) error {
			c.ask(1, false, get("/")...)
			c.ask(1, true, get("/")...)
			return nil
		}, http2.ErrCodeProtocol},
		"data behind the end": {func(c *client) error {
			c.ask(1, true, get("/wait")...)
			return c.WriteData(1, true, nil)
		}, http2.ErrCodeStreamClosed},
		"head behind the end": {func(c *client) error {
			c.ask(1, true, get("/wait")...)
			c.ask(1, true, get("/")...)
			return nil
		}, http2.ErrCodeStreamClosed},
		"window": {func(c *client) error {
			c.ask(1, true, get("/wait")...)
			return c.WriteWindowUpdate(1, 1<<31-1)
		}, http2.ErrCodeFlowControl},
		"depends on itself": {func(c *client) error {
			return c.WritePriority(1, http2.PriorityParam{StreamDep: 1})
		}, http2.ErrCodeProtocol},
	} {
		s := start(t, hello, nil)
		c := s.connect()
		c.AllowIllegalWrites = true
		require.NoError(t, tt.send(c), name)
		r := c.receive(1, nil)
		require.NotNil(t, r.reset, name)
		require.Equal(t, tt.code, *r.reset, name)
		c.ask(5, true, get("/next")...)
		require.Equal(t, "200", c.receive(5, nil).status, name)
	}
}

// TestFramesBehindResets: frames that arrive for streams after the server has reset them are
// ignored, however many streams there were.
func TestFramesBehindResets(t *testing.T) {
	s := start(t, hello, nil)
	c := s.connect()
	var ids []uint32
	for i := range uint32(maxStreams) {
		c.ask(2*i+1, false, get("/", "content-length", "100000")...)
	}
	for len(ids) < maxStreams { // after the response to a body that is too large
		f, err := c.ReadFrame()
		require.NoError(t, err)
		if _, ok := f.(*http2.RSTStreamFrame); ok {
			ids = append(ids, f.Header().StreamID)
		}
	}
	for _, id := range ids {
		require.NoError(t, c.WriteData(id, false, []byte("x")))
		c.ask(id, true, "trailer", "x")
	}
	c.ask(1001, true, get("/next")...)
	resets := 0
	require.Equal(t, "200", c.receive(1001, func(f http2.Frame) {
		if _, ok := f.(*http2.RSTStreamFrame); ok {
			resets++
		}
	}).status)
	require.Zero(t, resets)
}

// TestConnectionErrors: frames that are invalid for the connection end it with a GOAWAY.
func TestConnectionErrors(t *testing.T) {
	for name, tt := range map[string]struct {
		send func(c *client) error
		code http2.ErrCode
	}{
		"even stream": {func(c *client) error { c.ask(2, true, get("/")...); return nil }, http2.ErrCodeProtocol},
		"lower stream": {func(c *client) error {
			c.ask(5, true, get("/")...)
			c.ask(3, true, get("/")...)
			return nil
		}, http2.ErrCodeProtocol},
		"data of an idle stream":   {func(c *client) error { return c.WriteData(1, true, nil) }, http2.ErrCodeProtocol},
		"window of an idle stream": {func(c *client) error { return c.WriteWindowUpdate(1, 1) }, http2.ErrCodeProtocol},
		"reset of an idle stream":  {func(c *client) error { return c.WriteRSTStream(1, 0) }, http2.ErrCodeProtocol},
		"window": {func(c *client) error {
			return c.WriteWindowUpdate(0, 1<<31-1)
		}, http2.ErrCodeFlowControl},
		"no widening": {func(c *client) error { return c.WriteWindowUpdate(0, 0) }, http2.ErrCodeProtocol},
		"initial window": {func(c *client) error {
			return c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 31})
		}, http2.ErrCodeFlowControl},
		"initial window of a stream": {func(c *client) error {
			c.ask(1, true, get("/wait")...)
			_ = c.WriteWindowUpdate(1, 1<<30)
			return c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1<<31 - 1})
		}, http2.ErrCodeFlowControl},
		"push": {func(c *client) error {
			return c.WritePushPromise(http2.PushPromiseParam{StreamID: 1, PromiseID: 2, EndHeaders: true})
		}, http2.ErrCodeProtocol},
		"large frame": {func(c *client) error {
			return c.WriteRawFrame(http2.FramePing, 0, 0, make([]byte, maxFrame+1))
		}, http2.ErrCodeFrameSize},
		"no HPACK": {func(c *client) error {
			return c.WriteRawFrame(http2.FrameHeaders, http2.FlagHeadersEndHeaders, 1, []byte{0x80})
		}, http2.ErrCodeCompression},
		"half a block": {func(c *client) error {
			return c.WriteRawFrame(http2.FrameHeaders, http2.FlagHeadersEndHeaders, 1, []byte{0x40, 5, 'a'})
		}, http2.ErrCodeCompression},
		"padding of a head": {func(c *client) error {
			flags := http2.FlagHeadersPadded | http2.FlagHeadersEndHeaders
			return c.WriteRawFrame(http2.FrameHeaders, flags, 1, []byte{9, 0x82})
		}, http2.ErrCodeProtocol},
		"table size behind a field": {func(c *client) error {
			return c.WriteRawFrame(http2.FrameHeaders, http2.FlagHeadersEndHeaders, 1, []byte{0x82, 0x20})
		}, http2.ErrCodeCompression},
		"table size in a later frame": {func(c *client) error {
			_ = c.WriteRawFrame(http2.FrameHeaders, 0, 1, []byte{0x3f, 1, 0x82, 0x04, 3, '/', 'a'})
			return c.WriteContinuation(1, true, []byte{' ', 0x20})
		}, http2.ErrCodeCompression},
		"block and another frame": {func(c *client) error {
			_ = c.WriteRawFrame(http2.FrameHeaders, 0, 1, c.fields(get("/")...))
			return c.WritePing(false, [8]byte{})
		}, http2.ErrCodeProtocol},
		"long block": {func(c *client) error {
			_ = c.WriteRawFrame(http2.FrameHeaders, 0, 1, make([]byte, 10<<10)[:0])
			block := c.fields(get("/", "x", strings.Repeat("~", 7<<10))...)
			for range 3 {
				_ = c.WriteContinuation(1, false, block)
			}
			return nil
		}, http2.ErrCodeEnhanceYourCalm},
	} {
		s := start(t, hello, nil)
		c := s.connect()
		c.AllowIllegalWrites = true
		require.NoError(t, tt.send(c), name)
		c.requireEnd(tt.code, name)
	}
}

// TestPreface: a connection must begin with the client preface and the settings.
func TestPreface(t *testing.T) {
	s := start(t, hello, nil)
	c := s.dial()
	_, err := io.WriteString(c.conn, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	require.NoError(t, err)
	c.requireEnd(http2.ErrCodeProtocol, "HTTP/1.1")
	c = s.dial()
	_, err = io.WriteString(c.conn, http2.ClientPreface)
	require.NoError(t, err)
	require.NoError(t, c.WritePing(false, [8]byte{}))
	c.requireEnd(http2.ErrCodeProtocol, "no settings")
}

// TestLongHead: a head that is too long is reported, whatever its last fields are, and does not end
// the connection.
func TestLongHead(t *testing.T) {
	problems := make(chan Problem, 1)
	s := start(t, func(st *Stream) {
		problems <- st.Request.Problem
		hello(st)
	}, nil)
	c := s.connect()
	c.ask(1, true, get("/", "x", strings.Repeat("a", 8<<10))...)
	require.Equal(t, HeadTooLong, <-problems)
	require.Equal(t, "200", c.receive(1, nil).status)

	// One string that is longer than the limit of a head does not end the connection.
	c.ask(3, true, get("/"+strings.Repeat("a", 9<<10))...)
	require.Equal(t, HeadTooLong, <-problems)
	require.Equal(t, "200", c.receive(3, nil).status)

	// Indexed fields take one byte each, and are not stored beyond the limit.
	many := get("/")
	for range 51 {
		many = append(many, "a", "b")
	}
	c.ask(5, true, many...)
	require.Equal(t, TooManyFields, <-problems)
	require.Equal(t, "200", c.receive(5, nil).status)
	c.ask(7, true, many[:len(many)-2]...)
	require.Equal(t, None, <-problems)
}

// TestHeads: another implementation decodes the encoded heads to the same fields, in one frame or
// several.
func TestHeads(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	heads := make(chan Head, 1)
	s := start(t, func(st *Stream) { _ = st.WriteHead(<-heads, true) }, nil)
	c := s.connect()
	names := []string{"Content-Type", "ETag", "X-Kind", "Www-Authenticate", "Cache-Control", "Age"}
	for i := range 200 {
		h := Head{Status: 100*(2+rng.IntN(4)) + rng.IntN(20), Length: rng.Int64N(1 << 40)}
		want := map[string]string{"content-length": strconv.FormatInt(h.Length, 10)}
		var fields []string
		for _, name := range names[:rng.IntN(len(names)+1)] {
			value := strings.Repeat(string(rune('a'+rng.IntN(26))), rng.IntN(1<<rng.IntN(14)))
			fields = append(fields, name, value)
			want[strings.ToLower(name)] = value
		}
		h.Fields = pairs(fields...)
		heads <- h
		c.ask(uint32(2*i+1), true, get("/")...)
		r := c.receive(uint32(2*i+1), nil)
		require.Equal(t, strconv.Itoa(h.Status), r.status)
		delete(r.fields, "date")
		require.Equal(t, want, r.fields)
	}
}

// TestReducedTable: the first header block after the client has reduced the size of its table
// begins with an update of that size, which decoders such as that of nghttp2 require (RFC 9113
// section 4.3.1). Later blocks, and those of other clients, have none.
func TestReducedTable(t *testing.T) {
	s := start(t, hello, nil)
	updated := func(c *client, id uint32) bool {
		c.ask(id, true, get("/")...)
		for {
			f, err := c.ReadFrame()
			require.NoError(t, err)
			if head, ok := f.(*http2.HeadersFrame); ok {
				return head.HeaderBlockFragment()[0] == 0x20
			}
		}
	}
	connect := func(settings ...http2.Setting) *client {
		c := s.connect(settings...)
		c.ReadMetaHeaders = nil
		return c
	}
	size := func(n uint32) http2.Setting { return http2.Setting{ID: http2.SettingHeaderTableSize, Val: n} }

	require.False(t, updated(connect(), 1))
	require.False(t, updated(connect(size(65536)), 1))

	c := connect(size(0), size(4096))
	require.True(t, updated(c, 1))
	require.False(t, updated(c, 3))
	require.NoError(t, c.WriteSettings(size(100)))
	require.True(t, updated(c, 5))
	require.False(t, updated(c, 7))

	c = connect(size(0))
	c.ask(1, false, get("/", "expect", "100-continue", "content-length", "1")...)
	for _, wants := range []bool{true, false} { // the interim response is the first block
		f, err := c.ReadFrame()
		require.NoError(t, err)
		require.Equal(t, wants, f.(*http2.HeadersFrame).HeaderBlockFragment()[0] == 0x20)
		if wants {
			require.NoError(t, c.WriteData(1, true, []byte("a")))
		}
	}
}

// TestTableSizes: updates of the size of the table in front of the fields are accepted, however the
// block is split.
func TestTableSizes(t *testing.T) {
	s := start(t, hello, nil)
	c := s.connect()
	c.hpack.SetMaxDynamicTableSize(0)
	c.hpack.SetMaxDynamicTableSize(1000)
	long := strings.Repeat("a b", 100) // its length takes three bytes
	block := c.fields(get("/", "name", "x", "empty", "", "long", long, "long", long)...)
	require.Equal(t, []byte{0x20, 0x3f}, block[:2], "two updates")
	require.NoError(t, c.WriteRawFrame(http2.FrameHeaders, http2.FlagHeadersEndStream, 1, nil))
	for i := range block {
		require.NoError(t, c.WriteContinuation(1, i == len(block)-1, block[i:i+1]))
	}
	require.Equal(t, "200", c.receive(1, nil).status)
}

// TestWorkers: goroutines are reused, and end after a long idle time.
func TestWorkers(t *testing.T) {
	var w workers
	ran := make(chan int)
	for i := range 10 {
		w.start(taskFunc(func() { ran <- i }))
		<-ran
	}
	idle := func() int {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.idle)
	}
	require.Eventually(t, func() bool { return idle() >= 1 }, time.Minute, time.Millisecond)
	w.trim()
	w.trim()
	require.Zero(t, idle())
	w.start(taskFunc(func() { ran <- 0 }))
	<-ran
	w.stop()
}

type taskFunc func()

func (f taskFunc) run() { f() }

// FuzzFrames: whatever a client sends, the server responds or ends the connection.
func FuzzFrames(f *testing.F) {
	seed := func(write func(c *http2.Framer)) {
		var b bytes.Buffer
		framer := http2.NewFramer(&b, nil)
		framer.AllowIllegalWrites = true
		write(framer)
		f.Add(b.Bytes())
	}
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	for fields := get("/a", "expect", "100-continue"); len(fields) > 0; fields = fields[2:] {
		_ = e.WriteField(hpack.HeaderField{Name: fields[0], Value: fields[1]})
	}
	head := http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true}
	seed(func(c *http2.Framer) {
		_ = c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1})
		_ = c.WriteHeaders(head)
		_ = c.WriteData(1, true, []byte("body"))
		_ = c.WriteWindowUpdate(1, 100)
		_ = c.WriteRSTStream(1, http2.ErrCodeCancel)
	})
	seed(func(c *http2.Framer) {
		_ = c.WriteSettings()
		_ = c.WritePing(false, [8]byte{})
		_ = c.WriteGoAway(0, http2.ErrCodeNo, nil)
		_ = c.WriteContinuation(1, true, block.Bytes())
	})
	f.Fuzz(func(t *testing.T, p []byte) {
		c := start(t, hello, nil).dial()
		received := make(chan struct{})
		go func() {
			defer close(received)
			_, _ = io.Copy(io.Discard, c.conn)
		}()
		_, _ = c.conn.Write(append([]byte(http2.ClientPreface), p...)) // fails when the server has closed
		_ = c.conn.(interface{ CloseWrite() error }).CloseWrite()
		<-received
	})
}
