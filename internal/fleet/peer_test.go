package fleet

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"fastdfs-gateway/internal/cache"
	"fastdfs-gateway/internal/redistest"

	"github.com/stretchr/testify/require"
)

var testKey = cache.SegmentKey{File: testFile}

// testVersion is that of a file of one segment.
var testVersion = cache.Version{Size: 3 << 20, ModTime: 1767225600e9, CRC32: 0xdeadbeef, Immutable: true}

// gateway is a Fleet that serves peers, and perhaps has a cache.
type gateway struct {
	*Fleet
	cache *cache.Cache
}

// serveAs starts a gateway that others reach on loopback. open gives the segments; nil = those of a cache.
func serveAs(t testing.TB, o Options, open segmentOpener) *gateway {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	o.Advertise = "https://" + ln.Addr().String()
	g := &gateway{}
	g.Fleet, err = New(o)
	require.NoError(t, err)
	unhurried(g.Fleet)
	t.Cleanup(func() { require.NoError(t, g.Fleet.Close()) })
	served := make(chan error, 1)
	if open == nil {
		g.cache, err = cache.New(cache.Options{Memory: 64 << 20, Fleet: g.Fleet})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, g.cache.Close()) })
		go func() { served <- g.ServePeers(ln, g.cache) }()
		start(t, g.Fleet, Local{Purge: func(m cache.Match) { g.cache.Purge(m) }})
	} else {
		go func() { served <- g.servePeers(ln, open) }()
	}
	t.Cleanup(func() { // before those above
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = g.StopPeers(ctx) // streams of a test may hang for ever
		require.NoError(t, <-served)
	})
	return g
}

// gives serves one stream to each request.
func gives(v cache.Version, stream func(ctx context.Context, r *segmentRequest) io.Reader) segmentOpener {
	return func(ctx context.Context, r *segmentRequest) (cache.Version, io.ReadCloser, error) {
		return v, io.NopCloser(stream(ctx, r)), nil
	}
}

// refuses serves an error to each request.
func refuses(err error) segmentOpener {
	return func(context.Context, *segmentRequest) (cache.Version, io.ReadCloser, error) {
		return cache.Version{}, nil, err
	}
}

func TestPeerGivesASegment(t *testing.T) {
	o := fleetOf(redistest.Shared(t).Addr())
	data := random(int(testVersion.Size))
	var asked []segmentRequest
	b := serveAs(t, o, gives(testVersion, func(_ context.Context, r *segmentRequest) io.Reader {
		asked = append(asked, *r)
		return bytes.NewReader(data[r.Offset:])
	}))
	a := member(t, o, 1)
	for _, offset := range []int64{0, 1, 1 << 20, testVersion.Size} {
		v, body, err := a.OpenPeer(t.Context(), b.o.Advertise, testKey, &testVersion, offset)
		require.NoError(t, err)
		require.Equal(t, testVersion, v)
		got, err := io.ReadAll(body)
		require.NoError(t, err)
		require.True(t, bytes.Equal(data[offset:], got))
		require.NoError(t, body.Close())
	}
	v, body, err := a.OpenPeer(t.Context(), b.o.Advertise, testKey, nil, 0)
	require.NoError(t, err)
	require.Equal(t, testVersion, v)
	require.NoError(t, body.Close())
	require.Len(t, asked, 5)
	require.Nil(t, asked[4].Want)
	require.Equal(t, segmentRequest{Key: testKey, Want: &testVersion, Offset: 1 << 20}, asked[2])
	require.Equal(t, map[string]int64{"ok": 4, "abandoned": 1}, a.Stats().PeerFetches)
	eventually(t, "requests are counted", func() bool { return b.Stats().PeerRequests[http.StatusOK] == 5 })
}

func TestPeerThatHasItNot(t *testing.T) {
	o := fleetOf(redistest.Shared(t).Addr())
	var answer atomic.Value
	answer.Store(cache.ErrNotHere)
	b := serveAs(t, o, func(context.Context, *segmentRequest) (cache.Version, io.ReadCloser, error) {
		return cache.Version{}, nil, answer.Load().(error)
	})
	a := member(t, o, 1)
	publish := func() {
		lease, err := b.Lead(t.Context(), testKey.String())
		require.NoError(t, err)
		require.NoError(t, lease.PublishLocation(t.Context(), testKey.String(), cache.Location{Version: testVersion}))
		lease.Release()
	}
	found := func() bool {
		_, found, err := a.Location(t.Context(), testKey.String())
		require.NoError(t, err)
		return found
	}
	publish()
	_, _, err := a.OpenPeer(t.Context(), b.o.Advertise, testKey, nil, 0)
	require.ErrorIs(t, err, cache.ErrNotHere)
	require.False(t, found(), "its location is dropped")
	publish()
	for want, given := range map[error]error{cache.ErrChanged: cache.ErrChanged, errRefused: cache.ErrBusy} {
		answer = atomic.Value{}
		answer.Store(given)
		_, _, err = a.OpenPeer(t.Context(), b.o.Advertise, testKey, nil, 0)
		require.ErrorIs(t, err, want)
		require.True(t, found())
	}
	require.Equal(t, map[string]int64{"not_here": 1, "changed": 1, "refused": 1}, a.Stats().PeerFetches)
}

// However a body goes wrong, its reader gets an error other than io.EOF.
func TestPeerThatBreaks(t *testing.T) {
	o := fleetOf(redistest.Shared(t).Addr())
	data := random(1 << 20)
	small := testVersion
	small.Size = int64(len(data))
	broken := errors.New("the source broke")
	for name, c := range map[string]struct {
		open  segmentOpener
		want  error // of open; nil = of the body
		bytes int   // that may be read
	}{
		"ends early": {gives(small, func(context.Context, *segmentRequest) io.Reader { return bytes.NewReader(data[:300_000]) }), nil, 300_000},
		"fails in the middle": {gives(small, func(context.Context, *segmentRequest) io.Reader {
			return io.MultiReader(bytes.NewReader(data[:300_000]), &failing{broken})
		}), nil, 300_000},
		"fails at the last byte": {gives(small, func(context.Context, *segmentRequest) io.Reader {
			return io.MultiReader(bytes.NewReader(data[:len(data)-1]), &failing{broken})
		}), nil, len(data) - 1},
		"panics": {func(context.Context, *segmentRequest) (cache.Version, io.ReadCloser, error) { panic("a bug") }, errUnreachable, 0},
		"gives another version": {gives(testVersion, func(context.Context, *segmentRequest) io.Reader { return bytes.NewReader(data) }),
			cache.ErrChanged, 0},
	} {
		t.Run(name, func(t *testing.T) {
			b, a := serveAs(t, o, c.open), member(t, o, 1)
			_, body, err := a.OpenPeer(t.Context(), b.o.Advertise, testKey, &small, 0)
			if c.want != nil {
				require.ErrorIs(t, err, c.want)
				return
			}
			require.NoError(t, err)
			defer body.Close()
			got, err := io.ReadAll(body) // nil = it was io.EOF
			require.Error(t, err)
			require.NotErrorIs(t, err, io.EOF)
			require.LessOrEqual(t, len(got), c.bytes)
			require.True(t, bytes.HasPrefix(data, got))
			require.Equal(t, map[string]int64{"broken": 1}, a.Stats().PeerFetches)
		})
	}
}

// failing is a reader that fails.
type failing struct{ err error }

func (f *failing) Read([]byte) (int, error) { return 0, f.err }

// A body that says less or more than the segment has is an error before a byte of it is used.
func TestPeerWithAWrongHead(t *testing.T) {
	o := fleetOf(redistest.Shared(t).Addr())
	a := member(t, o, 1)
	size := testVersion.SegmentLength(0)
	for name, answer := range map[string]http.HandlerFunc{
		"no version": func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", fmt.Sprint(size)) },
		"no length": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(versionHeader, formatVersion(testVersion))
			_, _ = w.Write(nil)
		},
		"another length": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(versionHeader, formatVersion(testVersion))
			w.Header().Set("Content-Length", "1")
			_, _ = w.Write([]byte("x"))
		},
		"a negative size": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(versionHeader, "size=-1&mtime=0&crc=0&flags=0")
		},
		"a redirect":       func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, a.o.Advertise, http.StatusFound) },
		"a page of errors": func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusTeapot) },
	} {
		t.Run(name, func(t *testing.T) {
			url := serveHandler(t, o.Secret, answer)
			_, _, err := a.OpenPeer(t.Context(), url, testKey, &testVersion, 0)
			require.Error(t, err)
			require.True(t, errors.Is(err, errAnswer) || errors.Is(err, errRefused), "%v", err)
		})
	}
}

// serveHandler serves what is no gateway, but knows the secret.
func serveHandler(t *testing.T, secret string, h http.Handler) (url string) {
	t.Helper()
	config, err := peerTLS(secret)
	require.NoError(t, err)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := &http.Server{Handler: h, TLSConfig: config, Protocols: onlyHTTP2()}
	served := make(chan error, 1)
	go func() { served <- server.ServeTLS(ln, "", "") }()
	t.Cleanup(func() {
		require.NoError(t, server.Close())
		require.ErrorIs(t, <-served, http.ErrServerClosed)
	})
	return "https://" + ln.Addr().String()
}

func TestPeerThatIsNotAsked(t *testing.T) {
	a := member(t, fleetOf(redistest.Shared(t).Addr()), 1)
	for _, holder := range []string{
		"", a.o.Advertise, "10.0.0.2:8888", "ftp://10.0.0.2", "file:///etc/passwd", "https://", "https://u:p@10.0.0.2", "https://10.0.0.2/x",
		"https://10.0.0.2?x", "https://10.0.0.2#x", "https://10.0.0.2\r\nX: y", "gopher://10.0.0.2:1", "https://10.0.0.2:port", "http://127.0.0.1:1",
	} {
		_, _, err := a.OpenPeer(t.Context(), holder, testKey, nil, 0)
		require.Error(t, err, "holder %q", holder)
	}
}

// Who does not know the secret can neither ask nor answer; both sides say so once, and the asker
// does not try again at once.
func TestPeerWithAnotherSecret(t *testing.T) {
	o := fleetOf(redistest.Shared(t).Addr())
	here, there := &lines{}, &lines{}
	o.Log = slog.New(slog.NewTextHandler(there, nil))
	b := serveAs(t, o, refuses(errors.New("BUG: a stranger is answered")))
	o.Secret, o.Log = "another secret than the others have", slog.New(slog.NewTextHandler(here, nil))
	a := member(t, o, 1)
	for range 3 {
		_, _, err := a.OpenPeer(t.Context(), b.o.Advertise, testKey, nil, 0)
		require.Error(t, err)
		a.peers.backoff = map[string]time.Time{}
	}
	require.Equal(t, map[string]int64{"refused": 3}, a.Stats().PeerFetches)
	require.Equal(t, 1, here.count("gateway="+b.o.Advertise), here)
	require.Equal(t, 1, here.count("give all gateways the same secret in [peer]"), here)
	eventually(t, "the other side says so", func() bool { return there.count("a connection to [peer] listen was refused") == 1 })
	require.Empty(t, b.Stats().PeerRequests)
	_, _, err := a.OpenPeer(t.Context(), "https://127.0.0.1:1", testKey, nil, 0)
	require.ErrorIs(t, err, errUnreachable)
	require.Equal(t, 1, here.count("gateway=https://127.0.0.1:1 error="), here)
}

// Strangers get no byte from the listener of peers: without TLS 1.3, without a certificate, or with one of their own.
func TestStrangersAreNotAnswered(t *testing.T) {
	o := fleetOf(redistest.Shared(t).Addr())
	b := serveAs(t, o, refuses(errors.New("BUG: a stranger is answered")))
	address := strings.TrimPrefix(b.o.Advertise, "https://")
	own, err := peerTLS("the secret of a stranger")
	require.NoError(t, err)
	own.VerifyConnection, own.NextProtos = nil, []string{"h2"}
	old := b.peerTLS.Clone()
	old.MinVersion, old.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	for name, config := range map[string]*tls.Config{
		"no certificate": {InsecureSkipVerify: true, NextProtos: []string{"h2"}}, "own certificate": own, "old TLS": old,
	} {
		conn, err := tls.Dial("tcp", address, config)
		if err == nil { // in TLS 1.3 the client is refused when it has finished its part
			_, _ = io.WriteString(conn, http2Preface)
			_, err = io.ReadAll(conn)
			_ = conn.Close()
		}
		require.ErrorContains(t, err, "remote error: tls:", name)
	}
	conn, err := net.Dial("tcp", address)
	require.NoError(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, "GET /segment?file=f&index=0&offset=0 HTTP/1.1\r\nHost: a\r\n\r\n")
	require.NoError(t, err)
	answer, _ := io.ReadAll(conn)
	require.NotContains(t, string(answer), "200")
	require.Empty(t, b.Stats().PeerRequests)
}

const http2Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"

// TestStopBeforeServe: a gateway that is told to stop as soon as it has started does not begin to serve peers.
func TestStopBeforeServe(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	f, err := New(Options{Addresses: []string{"127.0.0.1:1"}, Advertise: "https://" + ln.Addr().String(), Secret: "the secret of a test"})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	require.NoError(t, f.StopPeers(t.Context()))
	served := make(chan error, 1)
	go func() { served <- f.servePeers(ln, nil) }()
	select {
	case err := <-served:
		require.NoError(t, err)
	case <-time.After(2 * time.Second):
		t.Error("it serves") // Close ends it
	}
}

// Connections of strangers that say nothing take a bounded number of places, each for a short time only.
func TestCappedListener(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ln := &cappedListener{Listener: inner, room: make(chan struct{}, 1)}
	defer ln.Close()
	dial := func() net.Conn {
		conn, err := net.Dial("tcp", inner.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	dial()
	first, err := ln.Accept()
	require.NoError(t, err)
	accepted := make(chan net.Conn, 1)
	go func() {
		conn, _ := ln.Accept()
		accepted <- conn
	}()
	_, err = dial().Read(make([]byte, 1)) // closed by Accept, which goes on waiting
	require.Error(t, err)
	require.NoError(t, first.Close())
	dial()
	second := <-accepted
	require.NotNil(t, second)
	require.NoError(t, second.Close())
}

// A request or a version is read as it was written, and nothing else is accepted.
func FuzzSegmentRequest(f *testing.F) {
	for _, r := range []segmentRequest{{Key: testKey}, {Key: testKey, Want: &testVersion, Offset: 5}, {Key: cache.SegmentKey{File: "a b&c", Index: 7}}} {
		f.Add(r.uri())
	}
	f.Add(segmentPath + "?file=f&index=9223372036854775808&offset=0")
	f.Add(segmentPath + "?file=f&index=0&offset=-1")
	f.Fuzz(func(t *testing.T, uri string) {
		r, err := parseSegmentRequest(uri)
		if err == nil {
			require.Equal(t, uri, r.uri())
			require.True(t, r.Key.Index >= 0 && r.Offset >= 0 && r.Offset <= cache.SegmentSize)
			require.True(t, r.Want == nil || r.Want.Size >= 0)
			return
		}
		require.ErrorIs(t, err, errRequest)
		if v, err := parseVersion(uri); err == nil {
			require.Equal(t, uri, formatVersion(v))
		}
	})
}

// origin is a storage that counts.
type origin struct {
	data    []byte
	delay   time.Duration // before the first byte
	fetches atomic.Int32
	bytes   atomic.Int64
}

func (o *origin) Name() string { return "storage" }

func (o *origin) version() cache.Version { return cache.Version{Size: int64(len(o.data)), ModTime: 1} }

func (o *origin) Stat(context.Context) (cache.Version, error) { return o.version(), nil }

func (o *origin) Fetch(ctx context.Context, _ *cache.Version, offset, length int64) (cache.Version, io.ReadCloser, error) {
	o.fetches.Add(1)
	select {
	case <-time.After(o.delay):
	case <-ctx.Done():
		return cache.Version{}, nil, context.Cause(ctx)
	}
	part := o.data[offset:min(offset+length, int64(len(o.data)))]
	o.bytes.Add(int64(len(part)))
	return o.version(), io.NopCloser(&dribble{bytes.NewReader(part)}), nil
}

// dribble gives a little at a time.
type dribble struct{ r io.Reader }

func (d *dribble) Read(p []byte) (int, error) {
	time.Sleep(200 * time.Microsecond)
	return d.r.Read(p[:min(len(p), 16<<10)])
}

// read reads a whole file through a gateway's cache.
func (g *gateway) read(file string, o *origin) ([]byte, error) {
	entry, err := g.cache.Lookup(context.Background(), file, o, cache.Ask{})
	if err != nil {
		return nil, fmt.Errorf("lookup: %w", err)
	}
	stream := g.cache.Open(context.Background(), entry, o, 0, entry.Version.Size)
	defer stream.Close()
	return io.ReadAll(stream)
}

// Three gateways with caches, Redis and HTTP between them: one cold file that all clients want costs the storage one fetch.
func TestStampedeCostsOneFetch(t *testing.T) {
	o := fleetOf(redistest.Shared(t).Addr())
	gateways := []*gateway{serveAs(t, o, nil), serveAs(t, o, nil), serveAs(t, o, nil)}
	for round := range 3 {
		file := fmt.Sprintf("group1/M00/00/00/%d", round)
		storage := &origin{data: random(300 << 10), delay: 100 * time.Millisecond}
		var wg sync.WaitGroup
		for i := range 30 {
			wg.Go(func() {
				got, err := gateways[i%3].read(file, storage)
				if err != nil || !bytes.Equal(storage.data, got) {
					t.Errorf("client %d: %d bytes: %v", i, len(got), err)
				}
			})
		}
		wg.Wait()
		require.EqualValues(t, 1, storage.fetches.Load())
		require.EqualValues(t, len(storage.data), storage.bytes.Load())
	}
	fetches := int64(0)
	for _, g := range gateways {
		fetches += g.Stats().PeerFetches["ok"]
		require.Zero(t, g.Stats().PeerFetches["broken"])
	}
	require.EqualValues(t, 2*3, fetches, "each of the others has read it from the leader")
	// After a purge it is fetched again, once.
	storage := &origin{data: random(100 << 10)}
	for n := range int32(3) {
		for _, g := range gateways {
			got, err := g.read(testFile, storage)
			require.NoError(t, err)
			require.True(t, bytes.Equal(storage.data, got))
		}
		require.Equal(t, n+1, storage.fetches.Load())
		_, missing, err := gateways[n%3].Purge(t.Context(), MatchAll())
		require.NoError(t, err)
		require.Empty(t, missing)
		storage.data = random(100 << 10)
	}
}

// random gives n bytes.
func random(n int) []byte {
	p := make([]byte, n)
	_, _ = rand.Read(p) // never fails
	return p
}
