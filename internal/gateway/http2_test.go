package gateway

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"fastdfs-gateway/internal/httpserver"
	"fastdfs-gateway/internal/httpserver/clientaddr"
	"fastdfs-gateway/internal/origin"
	"fastdfs-gateway/internal/process/listen"
	"fastdfs-gateway/internal/testing/certtest"
	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/storage/client"
	"fastdfs-gateway/tests/storetest"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

func runHTTP2(t *testing.T, o Options, so httpserver.Options, window time.Duration) (*running, *tls.Config) {
	t.Helper()
	return runTLS(t, o, so, window, "h2")
}

// runTLS serves the options by TLS until the test ends. The rate of clients is measured over
// window.
func runTLS(t *testing.T, o Options, so httpserver.Options, window time.Duration, protocol string) (*running,
	*tls.Config) {
	t.Helper()
	certificate := certtest.New(t, certtest.Order{Hosts: []string{"example.com"}})
	so.SendWindow = window
	r := run(t, o, so)
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ln := &listen.Socket{Listener: inner}
	r.address = ln.Addr().String()
	served := make(chan error, 1)
	go func() {
		served <- r.server.Serve(ln, &tls.Config{Certificates: []tls.Certificate{certificate.TLS()},
			NextProtos: []string{protocol}})
	}()
	t.Cleanup(func() {
		_ = ln.Close()
		require.NoError(t, <-served)
	})
	return r, &tls.Config{RootCAs: certificate.Pool(), ServerName: "example.com", NextProtos: []string{protocol}}
}

// staller is an HTTP/2 client that writes single frames, and gets only the bytes that its windows
// allow.
type staller struct {
	*http2.Framer
	conn  net.Conn
	ended chan struct{} // closed with the connection
	mu    sync.Mutex    // guards taken
	taken int           // bytes of DATA
}

// stall opens a connection whose streams have a window of window bytes.
func (r *running) stall(config *tls.Config, window uint32) *staller {
	r.t.Helper()
	c, err := tls.Dial("tcp", r.address, config)
	require.NoError(r.t, err)
	r.t.Cleanup(func() { _ = c.Close() })
	s := &staller{Framer: http2.NewFramer(c, c), conn: c, ended: make(chan struct{})}
	_, err = io.WriteString(c, http2.ClientPreface)
	require.NoError(r.t, err)
	require.NoError(r.t, s.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window}))
	go s.read()
	return s
}

func (s *staller) read() {
	defer close(s.ended)
	for {
		f, err := s.ReadFrame()
		if err != nil {
			return
		}
		if d, ok := f.(*http2.DataFrame); ok {
			s.mu.Lock()
			s.taken += len(d.Data())
			s.mu.Unlock()
		}
	}
}

func (s *staller) hasEnded() bool {
	select {
	case <-s.ended:
		return true
	default:
		return false
	}
}

func (s *staller) get(id uint32, path string) error { return s.ask(id, "GET", path) }

func (s *staller) ask(id uint32, method, path string) error {
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	for _, f := range []hpack.HeaderField{{Name: ":method", Value: method}, {Name: ":scheme", Value: "https"},
		{Name: ":authority", Value: "h"}, {Name: ":path", Value: path}} {
		if err := e.WriteField(f); err != nil {
			return err
		}
	}
	return s.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndStream: true,
		EndHeaders: true})
}

// TestHTTP2Stalls: streams whose client takes too few bytes are ended, whichever other frames the
// client sends. Their connection stays open.
func TestHTTP2Stalls(t *testing.T) {
	s := storetest.New(t)
	large, small := s.Normal("mp4", s.Bytes(10<<20)), s.Normal("jpg", s.Bytes(2000))
	for name, tt := range map[string]struct {
		window uint32
		path   string
		then   func(s *staller) error // called repeatedly
	}{
		"nothing":           {0, large.URL(), nil},
		"nothing of little": {0, small.URL(), nil},
		"some bytes":        {1000, large.URL(), nil},
		"pings":             {0, large.URL(), func(s *staller) error { return s.WritePing(false, [8]byte{}) }},
		"drips": {1, large.URL(), func(s *staller) error {
			return s.WriteWindowUpdate(1, 1)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r, config := runHTTP2(t, Options{Store: openLocal(t, s)}, httpserver.Options{MinSendRate: 10_000},
				300*time.Millisecond)
			c := r.stall(config, tt.window)
			for id := range uint32(10) {
				require.NoError(t, c.get(2*id+1, tt.path))
			}
			aborted := r.handler.o.Metrics.abortedTotal.WithLabelValues("slow")
			eventually.True(t, func() bool {
				if tt.then != nil {
					require.NoError(t, tt.then(c))
				}
				return testutil.ToFloat64(aborted) == 10
			})
			eventually.True(t, func() bool {
				left := r.left()
				return left.files == 0 && left.connections == 1
			})
		})
	}
}

// TestHTTP2Bodiless: a response without a body ends with its head, also if its state was used for a
// download that has ended early, or the request is rejected.
func TestHTTP2Bodiless(t *testing.T) {
	s := storetest.New(t)
	large := s.Normal("mp4", s.Bytes(1<<20))
	r, config := runHTTP2(t, Options{Store: openLocal(t, s)}, httpserver.Options{}, time.Minute)
	conn, err := tls.Dial("tcp", r.address, config)
	require.NoError(t, err)
	defer conn.Close()
	c := &staller{Framer: http2.NewFramer(conn, conn)}
	_, err = io.WriteString(conn, http2.ClientPreface)
	require.NoError(t, err)
	require.NoError(t, c.WriteSettings())
	head := func(id uint32) *http2.HeadersFrame {
		for {
			f, err := c.ReadFrame()
			require.NoError(t, err)
			if head, ok := f.(*http2.HeadersFrame); ok && head.StreamID == id {
				return head
			}
		}
	}
	aborted := r.handler.o.Metrics.abortedTotal.WithLabelValues("client")
	for i := range uint32(20) {
		require.NoError(t, c.get(6*i+1, large.URL()))
		require.False(t, head(6*i+1).StreamEnded())
		require.NoError(t, c.WriteRSTStream(6*i+1, http2.ErrCodeCancel))
		eventually.True(t, func() bool { return testutil.ToFloat64(aborted) == float64(i)+1 })
		require.NoError(t, c.ask(6*i+3, "HEAD", large.URL()))
		require.True(t, head(6*i+3).StreamEnded())
		require.NoError(t, c.ask(6*i+5, "HEAD", "/"+strings.Repeat("a", 9000)))
		require.True(t, head(6*i+5).StreamEnded())
	}
}

// TestHTTP2StalledMakeRoom: at the limit of requests, a further one is served in place of the
// longest stalled one, whose client accepts nothing on its stream or on its connection, also if it
// replaces its streams by new ones all the time.
func TestHTTP2StalledMakeRoom(t *testing.T) {
	s := storetest.New(t)
	large, small := s.Normal("mp4", s.Bytes(1<<20)), s.Normal("jpg", s.Bytes(2000))
	for name, window := range map[string]uint32{"stream": 0, "connection": 1 << 20, "new streams": 0} {
		t.Run(name, func(t *testing.T) {
			const most = 150
			r, config := runHTTP2(t, Options{Store: openLocal(t, s)}, httpserver.Options{MaxConnections: most,
				MinSendRate: 1000}, time.Hour)
			var clients []*staller
			for range 2 {
				c := r.stall(config, window)
				clients = append(clients, c)
				for id := range uint32(most / 2) {
					require.NoError(t, c.get(2*id+1, large.URL()))
				}
			}
			eventually.True(t, func() bool { return r.left().files == most })
			if name == "new streams" {
				defer renew(t, clients, most/2, large.URL())()
			}
			transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
			defer transport.CloseIdleConnections()
			browser := &http.Client{Transport: transport, Timeout: 30 * time.Second}
			aborted := r.handler.o.Metrics.abortedTotal.WithLabelValues("slow")
			eventually.True(t, func() bool {
				resp, err := browser.Get("https://" + r.address + small.URL())
				require.NoError(t, err)
				defer resp.Body.Close()
				_, err = io.Copy(io.Discard, resp.Body)
				require.NoError(t, err)
				// A renewed stream leaves its place for a moment.
				return resp.StatusCode == http.StatusOK && (name != "new streams" || testutil.ToFloat64(aborted) > 0)
			})
			eventually.True(t, func() bool { return testutil.ToFloat64(aborted) >= 1 })
		})
	}
}

// TestHTTP2StalledConnectionsMakeRoom: at the limit of connections, new clients are served in place
// of those with stalled streams. A connection with a request that waits for another host stays.
func TestHTTP2StalledConnectionsMakeRoom(t *testing.T) {
	const most = 20
	s := storetest.New(t)
	large, small := s.Normal("mp4", s.Bytes(1<<20)), s.Normal("jpg", s.Bytes(2000))
	missing := s.Missing("jpg", time.Now().Add(-time.Hour))
	w := &waiting{Origin: origin.NewResolver(origin.Options{}), waits: make(chan struct{})}
	r, config := runHTTP2(t, Options{Store: openLocal(t, s), Origin: w},
		httpserver.Options{MaxConnections: most, MinSendRate: 1000}, time.Hour)
	fetching := r.stall(config, 0)
	require.NoError(t, errors.Join(fetching.get(1, large.URL()), fetching.get(3, missing.URL())))
	<-w.waits
	for range most - 2 { // requests have the same limit
		require.NoError(t, r.stall(config, 0).get(1, large.URL()))
	}
	eventually.True(t, func() bool { return r.left().files == most-1 })
	for range most / 4 {
		browser := &http.Client{Transport: &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}}
		t.Cleanup(browser.CloseIdleConnections)
		eventually.True(t, func() bool {
			resp, err := browser.Get("https://" + r.address + small.URL())
			if err != nil { // it is not admitted
				return false
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			return assert.NoError(t, err) && bytes.Equal(small.Content, body)
		})
		ctx, cancel := context.WithCancel(context.Background())
		t.Cleanup(cancel)
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+r.address+missing.URL(), nil)
		require.NoError(t, err)
		go func() { _, _ = browser.Do(req) }() // keeps the connection busy, until it is canceled
		<-w.waits
	}
	require.False(t, fetching.hasEnded())
}

// renew resets the streams of clients every 900 ms, n of each, and opens new ones, until the result
// is called.
func renew(t *testing.T, clients []*staller, n int, url string) (stop func()) {
	end := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		for first := uint32(1); ; first += uint32(2 * n) {
			select {
			case <-end:
				return
			case <-time.After(900 * time.Millisecond): // the budget is 100 resets a second
			}
			for _, c := range clients {
				for i := range uint32(n) {
					err := c.WriteRSTStream(first+2*i, http2.ErrCodeCancel)
					assert.NoError(t, errors.Join(err, c.get(first+uint32(2*n)+2*i, url)))
				}
			}
		}
	})
	return func() { close(end); running.Wait() }
}

// TestHTTP2SendRate: the responses of a connection have the rate together, unless the connection is
// that of a trusted proxy.
func TestHTTP2SendRate(t *testing.T) {
	s := storetest.New(t)
	const rate, responses = 20_000, 60
	file := s.Normal("mp4", s.Bytes(rate))
	for _, proxied := range []bool{false, true} {
		o := Options{Store: openLocal(t, s), Rules: &Rules{SendRate: rate}}
		if proxied {
			loopback := netip.MustParsePrefix("127.0.0.0/8")
			o.Proxies = &clientaddr.Proxies{Trusted: clientaddr.NewNetworks([]netip.Prefix{loopback}, false)}
		}
		r, config := runHTTP2(t, o, httpserver.Options{}, time.Minute)
		c := r.stall(config, 1<<20)
		require.NoError(t, c.WriteWindowUpdate(0, 1<<24))
		began := time.Now()
		for id := range uint32(responses) {
			require.NoError(t, c.get(2*id+1, file.URL()))
		}
		eventually.True(t, func() bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			if proxied {
				return c.taken == responses*rate
			}
			require.LessOrEqual(t, float64(c.taken), rate*(time.Since(began).Seconds()+0.2))
			return c.taken >= 2*rate
		})
		require.Less(t, time.Since(began), responses*time.Second/2, "a minute together, a second each")
	}
}

// TestHTTP2SlowHealthyClient: the connection of a slow client that takes more than MinSendRate
// stays open.
func TestHTTP2SlowHealthyClient(t *testing.T) {
	s := storetest.New(t)
	large := s.Normal("mp4", s.Bytes(10<<20))
	r, config := runHTTP2(t, Options{Store: openLocal(t, s)}, httpserver.Options{MinSendRate: 1000},
		200*time.Millisecond)
	c := r.stall(config, 0)
	require.NoError(t, c.get(1, large.URL()))
	require.Never(t, func() bool {
		err := errors.Join(c.WriteWindowUpdate(1, 100), c.WriteWindowUpdate(0, 100)) // every 20 ms: 5 KB/s
		return err != nil || c.hasEnded()
	}, time.Second, 20*time.Millisecond)
	c.mu.Lock()
	defer c.mu.Unlock()
	require.Positive(t, c.taken)
}

// waiting is an Origin whose Find waits until the client disconnects.
type waiting struct {
	Origin
	waits chan struct{} // one value for each request that waits
}

func (w *waiting) Find(r *origin.Request, _ error) (string, error) {
	gone := make(chan struct{})
	done, err := r.Client.Wait("source", func() { close(gone) })
	if err != nil {
		return "", err
	}
	defer done()
	w.waits <- struct{}{}
	<-gone
	return "", origin.ErrClientGone
}

// TestHTTP2ClientsThatLeave: the wait of a request for another host ends when its stream is reset
// or its connection is closed. The other requests of the connection continue, and MinSendRate does
// not end such a wait.
func TestHTTP2ClientsThatLeave(t *testing.T) {
	w := &waiting{Origin: origin.NewResolver(origin.Options{}), waits: make(chan struct{})}
	s := storetest.New(t)
	missing := s.Missing("jpg", time.Now().Add(-time.Hour))
	r, config := runHTTP2(t, Options{Store: openLocal(t, s), Origin: w}, httpserver.Options{MinSendRate: 1000},
		200*time.Millisecond)
	var protocols http.Protocols
	protocols.SetHTTP2(true)
	transport := &http.Transport{TLSClientConfig: config, Protocols: &protocols}
	browser := &http.Client{Transport: transport}
	leave := make([]context.CancelFunc, 3)
	var asked sync.WaitGroup
	for i := range leave {
		ctx, cancel := context.WithCancel(t.Context())
		leave[i] = cancel
		asked.Go(func() {
			req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+r.address+missing.URL(), nil)
			if resp, err := browser.Do(req); err == nil {
				resp.Body.Close()
			}
		})
		<-w.waits
	}
	gone := func() float64 {
		return testutil.ToFloat64(r.handler.o.Metrics.requestsTotal.WithLabelValues("499", sourceNone))
	}
	require.Zero(t, gone())
	leave[0]()
	eventually.True(t, func() bool { return gone() == 1 })
	require.EqualValues(t, 1, r.server.Connections())
	leave[1]()
	leave[2]()
	eventually.True(t, func() bool { return gone() == 3 })
	asked.Wait()
	transport.CloseIdleConnections()

	c := r.stall(config, 0)
	require.NoError(t, c.get(1, missing.URL()))
	<-w.waits
	require.Never(t, func() bool { return c.hasEnded() || gone() > 3 }, 800*time.Millisecond, 50*time.Millisecond)
	require.NoError(t, c.conn.Close())
	eventually.True(t, func() bool { return gone() == 4 })
}

// pausing is a Protocol that sends the first bytes, and the rest after more is closed.
type pausing struct {
	*fakeProtocol
	first int
	more  chan struct{}
}

func (p *pausing) Open(ctx context.Context, w client.FetchRequest, part client.Part,
	servers []client.Server) (io.ReadCloser, error) {
	all, err := p.fakeProtocol.Open(ctx, w, part, servers)
	if err != nil {
		return nil, err
	}
	body, source := io.Pipe()
	go func() {
		_, err := io.CopyN(source, all, int64(p.first))
		<-p.more
		if err == nil {
			_, err = io.Copy(source, all)
		}
		_ = source.CloseWithError(err)
	}()
	return body, nil
}

// TestFirstBytesAreSent: bytes of a slow source are sent as soon as they arrive, by each protocol.
func TestFirstBytesAreSent(t *testing.T) {
	text := strings.Repeat("hello ", 1000)
	for _, protocol := range []string{"h2", "http/1.1"} {
		t.Run(protocol, func(t *testing.T) {
			source := &pausing{fakeProtocol: &fakeProtocol{content: text}, first: 1000, more: make(chan struct{})}
			release := sync.OnceFunc(func() { close(source.more) })
			defer release()
			_, o, _ := edge(t, Options{}, source)
			r, config := runTLS(t, o, httpserver.Options{}, time.Minute, protocol)
			transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
			defer transport.CloseIdleConnections()
			browser := &http.Client{Transport: transport, Timeout: 30 * time.Second}
			resp, err := browser.Get("https://" + r.address + "/") // settings and their replies are sent first
			require.NoError(t, err)
			_, err = io.Copy(io.Discard, resp.Body)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			resp, err = browser.Get("https://" + r.address + kinds(t, text)["normal"])
			require.NoError(t, err)
			defer resp.Body.Close()
			body := make([]byte, len(text))
			_, err = io.ReadFull(resp.Body, body[:source.first])
			require.NoError(t, err)
			release()
			_, err = io.ReadFull(resp.Body, body[source.first:])
			require.NoError(t, err)
			require.Equal(t, text, string(body))
		})
	}
}
