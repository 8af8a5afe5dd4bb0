package http

import (
	"bytes"
	"io"
	"net"
	"slices"
	"strings"
	"testing"

	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// attacker is a client that writes single frames.
type attacker struct {
	*http2.Framer
	conn  net.Conn
	block bytes.Buffer
	hpack *hpack.Encoder
	path  string
	ended chan struct{} // closed when the gateway closes the connection
}

// connect opens a connection with the preface of a client.
func connect(p *e2e.Process, path string) *attacker {
	p.T.Helper()
	c := p.DialTLS("h2")
	a := &attacker{Framer: http2.NewFramer(c, c), conn: c, path: path, ended: make(chan struct{})}
	a.hpack = hpack.NewEncoder(&a.block)
	_, err := io.WriteString(c, http2.ClientPreface)
	require.NoError(p.T, err)
	require.NoError(p.T, a.WriteSettings())
	return a
}

// attack opens a connection and discards the frames of the gateway.
func attack(p *e2e.Process, path string) *attacker {
	p.T.Helper()
	a := connect(p, path)
	go func() {
		_, _ = io.Copy(io.Discard, a.conn) // until the gateway closes
		close(a.ended)
	}()
	return a
}

// fields encodes the header block of a request with further fields.
func (a *attacker) fields(names ...string) []byte {
	a.block.Reset()
	pseudo := []string{":method: GET", ":scheme: https", ":authority: h", ":path: " + a.path}
	for _, f := range append(pseudo, names...) {
		i := strings.Index(f, ": ")
		_ = a.hpack.WriteField(hpack.HeaderField{Name: f[:i], Value: f[i+2:]}) // to a buffer
	}
	return a.block.Bytes()
}

// open opens a stream with a request.
func (a *attacker) open(id uint32, names ...string) error {
	return a.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: a.fields(names...), EndStream: true,
		EndHeaders: true})
}

// TestHTTP2Floods: a flood of frames ends the connection, and neither stops the gateway nor takes
// much memory.
func TestHTTP2Floods(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	file := s.Normal("jpg", s.Bytes(1<<20))
	p := e2e.ServeHTTP2(t, s)
	p.Get(file.URL())
	bomb := slices.Repeat([]string{"x-bomb: " + strings.Repeat("b", 3000)}, 1000)
	for name, send := range map[string]func(a *attacker, i uint32) error{
		"rapid reset": func(a *attacker, i uint32) error {
			if err := a.open(2*i + 1); err != nil {
				return err
			}
			return a.WriteRSTStream(2*i+1, http2.ErrCodeCancel)
		},
		"streams above the limit": func(a *attacker, i uint32) error { return a.open(2*i + 1) },
		"ping":                    func(a *attacker, _ uint32) error { return a.WritePing(false, [8]byte{}) },
		"settings": func(a *attacker, i uint32) error {
			return a.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: i})
		},
		"priority": func(a *attacker, i uint32) error {
			return a.WritePriority(2*i+1, http2.PriorityParam{})
		},
		"window updates": func(a *attacker, _ uint32) error { return a.WriteWindowUpdate(0, 1) },
		"continuation": func(a *attacker, i uint32) error {
			if i == 0 {
				return a.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: a.fields()})
			}
			return a.WriteContinuation(1, false, a.fields("x-field: some text"))
		},
		"empty continuation": func(a *attacker, i uint32) error {
			if i == 0 {
				return a.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: a.fields()})
			}
			return a.WriteContinuation(1, false, nil)
		},
		"empty data": func(a *attacker, i uint32) error {
			if i == 0 {
				return a.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: a.fields(), EndHeaders: true})
			}
			return a.WriteData(1, false, nil)
		},
		"data of a reset stream": func(a *attacker, i uint32) error {
			if i == 0 { // its body is too large
				block := a.fields("content-length: 99999")
				return a.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block, EndHeaders: true})
			}
			return a.WriteData(1, false, []byte{0})
		},
		"header bomb": func(a *attacker, i uint32) error { // one field in the table, named a thousand times
			if i < 2 { // the first block fills the table; the second names the field, as do all others
				return a.open(2*i+1, bomb...)
			}
			return a.WriteHeaders(http2.HeadersFrameParam{StreamID: 2*i + 1, BlockFragment: a.block.Bytes(),
				EndStream: true, EndHeaders: true})
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := p.In(t)
			before := p.Metric("process_resident_memory_bytes")
			a := attack(p, file.URL())
			for i := uint32(0); send(a, i) == nil; i++ { // until the gateway has closed the connection
				require.Less(t, i, uint32(1_000_000), "the gateway takes everything")
				if name == "header bomb" && i == 500 { // each block gets 431
					_ = a.conn.Close()
				}
			}
			<-a.ended
			require.Less(t, p.Metric("process_resident_memory_bytes")-before, 100e6)
			require.Equal(t, 200, p.Get(file.URL()).StatusCode)
		})
	}
	eventually.True(t, func() bool { return p.Metric("fdfs_gateway_connections") <= 1 })
	eventually.True(t, func() bool { return p.Metric("fdfs_gateway_open_files") == 0 })
}

// TestHTTP2Rejections: requests that break the rules of HTTP/1.1 are rejected over HTTP/2, too.
func TestHTTP2Rejections(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	file := s.Normal("jpg", s.Bytes(1000))
	p := e2e.ServeHTTP2(t, s)
	long := make([]string, 101)
	for i := range long {
		long[i] = "X-Field: y"
	}
	differ(t, p, []difference{
		{name: "long target", url: "/" + strings.Repeat("x", 8<<10), status: 414},
		{name: "long field", url: file.URL(), send: []string{"X: " + strings.Repeat("x", 17<<10)}, status: 431},
		{name: "many fields", url: file.URL(), send: long, status: 431},
		{name: "unknown expectation", url: file.URL(), send: []string{"Expect: x"}, status: 417},
		{name: "long method", method: strings.Repeat("M", 33), url: file.URL(), status: 501},
		{name: "TRACE", method: "TRACE", url: file.URL(), status: 405},
		{name: "small letters", method: "get", url: file.URL(), status: 405},
	})
}

// TestHTTP2Timeouts: a header block without an end closes the connection after read_timeout.
func TestHTTP2Timeouts(t *testing.T) {
	t.Parallel()
	p := e2e.ServeHTTP2(t, storetest.New(t), "[gateway]", "read_timeout = 1s", "idle_timeout = 5m")
	a := attack(p, "/")
	require.NoError(t, a.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: a.fields()}))
	<-a.ended
}
