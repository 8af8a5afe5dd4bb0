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

	"fastdfs-gateway/internal/backoff"
	"fastdfs-gateway/internal/cache"
	"fastdfs-gateway/internal/eventually"
	"fastdfs-gateway/internal/redistest"

	"github.com/stretchr/testify/require"
)

var testKey = cache.SegmentKey{File: testFile}

// testVersion is that of a file of one segment.
var testVersion = cache.Version{Size: 3 << 20, ModTime: 1767225600e9, CRC32: 0xdeadbeef, Immutable: true}

// gateway is a Fleet that serves peers, and perhaps has a cache.
type gateway struct {
	*Fleet
	cache   *cache.Cache
	storage cache.Source // for what the others ask of it
}

// serveAs starts a gateway that others reach on loopback. open gives the segments; nil = those of a
// cache.
func serveAs(t testing.TB, o Options, open entryOpener) *gateway {
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
		g.cache, err = cache.New(cache.Options{Memory: 64 << 20, Fleet: g.Fleet,
			Source: func(string) (cache.Source, error) { return g.storage, nil }})
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
func gives(v cache.Version, stream func(ctx context.Context, r *entryRequest) io.Reader) entryOpener {
	return func(ctx context.Context, r *entryRequest) (cache.Meta, io.ReadCloser, error) {
		return cache.Meta{Version: v, Checked: time.Now()}, io.NopCloser(stream(ctx, r)), nil
	}
}

// refuses serves an error to each request.
func refuses(err error) entryOpener {
	return func(context.Context, *entryRequest) (cache.Meta, io.ReadCloser, error) {
		return cache.Meta{}, nil, err
	}
}

func TestPeerGivesASegment(t *testing.T) {
	o := fleetOf(redistest.Shared(t).Addr())
	data := random(int(testVersion.Size))
	var asked []entryRequest
	b := serveAs(t, o, gives(testVersion, func(_ context.Context, r *entryRequest) io.Reader {
		asked = append(asked, *r)
		return bytes.NewReader(data[r.Offset:])
	}))
	a := member(t, o, 1)
	for _, offset := range []int64{0, 1, 1 << 20, testVersion.Size} {
		m, body, err := a.Open(t.Context(), b.o.Advertise,
			cache.PeerRequest{Key: testKey, Want: &testVersion, Offset: offset})
		require.NoError(t, err)
		require.Equal(t, testVersion, m.Version)
		got, err := io.ReadAll(body)
		require.NoError(t, err)
		require.True(t, bytes.Equal(data[offset:], got))
		require.NoError(t, body.Close())
	}
	m, body, err := a.Open(t.Context(), b.o.Advertise, cache.PeerRequest{Key: testKey, MaxAge: time.Second, Copy: true})
	require.NoError(t, err)
	require.Equal(t, testVersion, m.Version)
	require.WithinDuration(t, time.Now(), m.Checked, testTimeout)
	require.NoError(t, body.Close())
	require.Len(t, asked, 5)
	require.Equal(t, cache.PeerRequest{Key: testKey, MaxAge: time.Second, Copy: true}, asked[4].PeerRequest)
	require.Equal(t, cache.PeerRequest{Key: testKey, Want: &testVersion, Offset: 1 << 20}, asked[2].PeerRequest)
	require.Equal(t, map[string]int64{"ok": 4, "abandoned": 1}, a.Stats().PeerFetches)
	eventually.True(t, func() bool { return b.Stats().PeerRequests[http.StatusOK] == 5 }, "requests are counted")
}

// Each answer without a body is the error that the cache of the other gateway has given.
func TestPeerThatHasItNot(t *testing.T) {
	o := fleetOf(redistest.Shared(t).Addr())
	var given error
	var meta cache.Meta
	b := serveAs(t, o, func(context.Context, *entryRequest) (cache.Meta, io.ReadCloser, error) {
		return meta, nil, given
	})
	a := member(t, o, 1)
	for _, c := range []struct{ given, want error }{
		{cache.ErrNotHere, cache.ErrNotHere}, {cache.ErrChanged, cache.ErrChanged}, {cache.ErrBusy, errRefused},
		{cache.ErrNotFound, cache.ErrNotFound},
	} {
		given = c.given
		for ttl, want := range map[time.Duration]time.Duration{-1: -1,
			1500 * time.Millisecond: 1500 * time.Millisecond} {
			meta.TTL = ttl
			m, _, err := a.Open(t.Context(), b.o.Advertise, cache.PeerRequest{Key: testKey})
			require.ErrorIs(t, err, c.want)
			require.Equal(t, given == cache.ErrNotFound, m.Gone)
			if m.Gone {
				require.Equal(t, want, m.TTL)
			}
		}
	}
	require.Equal(t, map[string]int64{"not_here": 2, "changed": 2, "refused": 2, "not_found": 2}, a.Stats().PeerFetches)
	given, meta = nil, cache.Meta{Version: testVersion}
	m, body, err := a.Open(t.Context(), b.o.Advertise,
		cache.PeerRequest{Key: cache.SegmentKey{File: testFile, Index: cache.Facts}})
	require.NoError(t, err)
	require.Nil(t, body)
	require.Equal(t, testVersion, m.Version)
	require.True(t, m.Checked.IsZero(), "it is not known when")
}

// A peer that has not applied the purges that the asking gateway has applies them before it
// answers, or does not answer.
func TestPeerThatIsBehind(t *testing.T) {
	server := redistest.Shared(t)
	o := fleetOf(server.Addr())
	relay := redistest.NewRelay(t, server.Addr())
	behind := o
	behind.Addresses = []string{relay.Addr()}
	storage := &origin{data: random(100)}
	a, b := serveAs(t, o, nil), serveAs(t, behind, nil)
	a.storage, b.storage = storage, storage
	_, err := b.read(testFile, storage)
	require.NoError(t, err)
	open := func() error {
		_, _, err := a.Open(t.Context(), b.o.Advertise, cache.PeerRequest{Key: testKey, Copy: true, Offset: 100})
		return err
	}
	require.NoError(t, open())
	relay.Hang()
	require.Equal(t, b.appliedUpTo(), a.appliedUpTo())
	a.purges.confirm = time.Second
	_, missing, err := a.Purge(t.Context(), MatchAll())
	require.NoError(t, err)
	require.Equal(t, []string{b.o.Name}, missing)
	require.ErrorIs(t, open(), cache.ErrNotHere)
	require.Less(t, b.appliedUpTo(), a.appliedUpTo())
	relay.Restore()
	require.Error(t, open(), "it was purged")
	eventually.True(t, func() bool { return b.appliedUpTo() == a.appliedUpTo() }, "it catches up")
}

// However a body goes wrong, its reader gets an error other than io.EOF.
func TestPeerThatBreaks(t *testing.T) {
	o := fleetOf(redistest.Shared(t).Addr())
	data := random(1 << 20)
	small := testVersion
	small.Size = int64(len(data))
	broken := errors.New("the source broke")
	for name, c := range map[string]struct {
		open  entryOpener
		want  error // of open; nil = of the body
		bytes int   // that may be read
	}{
		"ends early": {gives(small, func(context.Context, *entryRequest) io.Reader {
			return bytes.NewReader(data[:300_000])
		}), nil, 300_000},
		"fails in the middle": {gives(small, func(context.Context, *entryRequest) io.Reader {
			return io.MultiReader(bytes.NewReader(data[:300_000]), &failing{broken})
		}), nil, 300_000},
		"fails at the last byte": {gives(small, func(context.Context, *entryRequest) io.Reader {
			return io.MultiReader(bytes.NewReader(data[:len(data)-1]), &failing{broken})
		}), nil, len(data) - 1},
		"panics": {func(context.Context, *entryRequest) (cache.Meta, io.ReadCloser, error) { panic("a bug") },
			errUnreachable, 0},
		"gives another version": {gives(testVersion, func(context.Context, *entryRequest) io.Reader {
			return bytes.NewReader(data)
		}),
			cache.ErrChanged, 0},
	} {
		t.Run(name, func(t *testing.T) {
			b, a := serveAs(t, o, c.open), member(t, o, 1)
			_, body, err := a.Open(t.Context(), b.o.Advertise, cache.PeerRequest{Key: testKey, Want: &small})
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

// A connection that ends while a request waits for its answer says nothing about the gateway: the
// request is sent once more, over a new connection.
func TestPeerWhoseConnectionEnds(t *testing.T) {
	o := fleetOf(redistest.Shared(t).Addr())
	for name, c := range map[string]struct {
		end  func(*redistest.Relay)
		ends int // of connections
		want error
	}{
		"reset":                          {(*redistest.Relay).Drop, 1, nil},
		"half-closed towards the client": {func(r *redistest.Relay) { r.HalfClose(redistest.Client) }, 1, nil},
		"half-closed towards the peer":   {func(r *redistest.Relay) { r.HalfClose(redistest.Target) }, 1, nil},
		"known to the client alone":      {func(r *redistest.Relay) { r.Strand(redistest.Client) }, 1, nil},
		"the second one too":             {(*redistest.Relay).Drop, 2, errUnreachable},
		"and the peer is gone":           {(*redistest.Relay).Cut, 1, errUnreachable},
	} {
		t.Run(name, func(t *testing.T) {
			var relay *redistest.Relay
			var asked atomic.Int32
			b := serveAs(t, o, func(ctx context.Context, _ *entryRequest) (cache.Meta, io.ReadCloser, error) {
				if int(asked.Add(1)) <= c.ends {
					c.end(relay)
					<-ctx.Done()
				}
				return cache.Meta{}, nil, cache.ErrNotHere
			})
			relay = redistest.NewRelay(t, strings.TrimPrefix(b.o.Advertise, "https://"))
			a, peer := member(t, o, 1), "https://"+relay.Addr()
			_, _, err := a.Open(t.Context(), peer, cache.PeerRequest{Key: testKey})
			if c.want == nil {
				require.ErrorIs(t, err, cache.ErrNotHere)
				require.NotErrorIs(t, err, errUnreachable)
				require.EqualValues(t, 2, asked.Load())
				return
			}
			require.ErrorIs(t, err, c.want)
			require.EqualValues(t, c.ends, asked.Load())
			require.False(t, a.peers.backoff.Allow(peer), "others do not wait for it")
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
		"no version": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", fmt.Sprint(size))
		},
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
		"a redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, a.o.Advertise, http.StatusFound)
		},
		"a page of errors": func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusTeapot) },
	} {
		t.Run(name, func(t *testing.T) {
			url := serveHandler(t, o.Secret, answer)
			_, _, err := a.Open(t.Context(), url, cache.PeerRequest{Key: testKey, Want: &testVersion})
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
		"", a.o.Advertise, "10.0.0.2:8888", "ftp://10.0.0.2", "file:///etc/passwd", "https://", "https://u:p@10.0.0.2",
		"https://10.0.0.2/x",
		"https://10.0.0.2?x", "https://10.0.0.2#x", "https://10.0.0.2\r\nX: y", "gopher://10.0.0.2:1",
		"https://10.0.0.2:port", "http://127.0.0.1:1",
	} {
		_, _, err := a.Open(t.Context(), holder, cache.PeerRequest{Key: testKey})
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
		_, _, err := a.Open(t.Context(), b.o.Advertise, cache.PeerRequest{Key: testKey})
		require.Error(t, err)
		a.peers.backoff = backoff.NewSet[string](peerBackoff, maxPeers)
	}
	require.Equal(t, map[string]int64{"refused": 3}, a.Stats().PeerFetches)
	require.Equal(t, 1, here.count("gateway="+b.o.Advertise), here)
	require.Equal(t, 1, here.count("give all gateways the same secret in [peer]"), here)
	eventually.True(t, func() bool { return there.count("a connection to [peer] listen was refused") == 1 },
		"the other side says so")
	require.Empty(t, b.Stats().PeerRequests)
	_, _, err := a.Open(t.Context(), "https://127.0.0.1:1", cache.PeerRequest{Key: testKey})
	require.ErrorIs(t, err, errUnreachable)
	require.Equal(t, 1, here.count("gateway=https://127.0.0.1:1 error="), here)
}

// Strangers get no byte from the listener of peers: without TLS 1.3, without a certificate, or with
// one of their own.
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
		"no certificate": {InsecureSkipVerify: true, NextProtos: []string{"h2"}}, "own certificate": own,
		"old TLS": old,
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
	_, err = io.WriteString(conn,
		"GET /entry?file=f&index=0&offset=0&maxage=0&copy=0&purge=0 HTTP/1.1\r\nHost: a\r\n\r\n")
	require.NoError(t, err)
	answer, _ := io.ReadAll(conn)
	require.NotContains(t, string(answer), "200")
	require.Empty(t, b.Stats().PeerRequests)
}

const http2Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"

// TestStopBeforeServe: a gateway that is told to stop as soon as it has started does not begin to
// serve peers.
func TestStopBeforeServe(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	f, err := New(Options{Addresses: []string{"127.0.0.1:1"}, Advertise: "https://" + ln.Addr().String(),
		Secret: "the secret of a test"})
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

// Connections of strangers that say nothing take a bounded number of places, each for a short time
// only.
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
func FuzzEntryRequest(f *testing.F) {
	for _, r := range []cache.PeerRequest{
		{Key: testKey}, {Key: testKey, Want: &testVersion, Offset: 5},
		{Key: cache.SegmentKey{File: "a b&c", Index: 7}, Copy: true},
		{Key: cache.SegmentKey{File: "f", Index: cache.Facts}, MaxAge: time.Second},
	} {
		request := entryRequest{r, 77}
		f.Add(request.uri())
	}
	f.Add(entryPath + "?file=f&index=9223372036854775808&offset=0&maxage=0&copy=0&purge=0")
	f.Add(entryPath + "?file=f&index=0&offset=-1&maxage=0&copy=0&purge=0")
	f.Add(entryPath + "?file=f&index=-2&offset=0&maxage=-1&copy=2&purge=9007199254740992")
	f.Fuzz(func(t *testing.T, uri string) {
		r, err := parseEntryRequest(uri)
		if err == nil {
			require.Equal(t, uri, r.uri())
			require.True(t, r.Key.Index >= cache.Facts && r.Offset >= 0 && r.Offset <= cache.SegmentSize &&
				r.MaxAge >= 0 && r.Purge >= 0)
			require.True(t, r.Want == nil || r.Want.Size >= 0)
			return
		}
		require.ErrorIs(t, err, errRequest)
		if v, err := parseVersion(uri); err == nil {
			require.Equal(t, uri, formatVersion(v))
		}
		if d, ok := parseMillis(uri); ok {
			require.True(t, d >= 0 && d <= maxAge)
		}
	})
}

// origin is a storage that counts. Each content that it has is another version.
type origin struct {
	delay   time.Duration // before the first byte
	fetches atomic.Int32
	bytes   atomic.Int64

	mu      sync.Mutex // guards what follows
	data    []byte
	changes int64
}

func (o *origin) Name() string { return "storage" }

func (o *origin) NegativeTTL() time.Duration { return 0 }

// Distrust implements cache.Source.
func (o *origin) Distrust() {}

func (o *origin) set(data []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.data = data
	o.changes++
}

func (o *origin) now() ([]byte, cache.Version) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.data, cache.Version{Size: int64(len(o.data)), ModTime: 1 + o.changes}
}

func (o *origin) Stat(context.Context) (cache.Version, error) {
	_, v := o.now()
	return v, nil
}

func (o *origin) Fetch(ctx context.Context, want *cache.Version, offset, length int64) (cache.Version, io.ReadCloser,
	error) {
	o.fetches.Add(1)
	select {
	case <-time.After(o.delay):
	case <-ctx.Done():
		return cache.Version{}, nil, context.Cause(ctx)
	}
	data, v := o.now()
	if want != nil && *want != v {
		return cache.Version{}, nil, cache.ErrChanged
	}
	part := data[offset:min(offset+length, int64(len(data)))]
	o.bytes.Add(int64(len(part)))
	return v, io.NopCloser(&dribble{bytes.NewReader(part)}), nil
}

// dribble gives a little at a time.
type dribble struct{ r io.Reader }

func (d *dribble) Read(p []byte) (int, error) {
	time.Sleep(200 * time.Microsecond)
	return d.r.Read(p[:min(len(p), 16<<10)])
}

// read reads a whole file through a gateway's cache.
func (g *gateway) read(file string, o *origin) ([]byte, error) {
	entry, err := g.cache.Get(context.Background(), file, o, cache.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("lookup: %w", err)
	}
	stream := g.cache.Open(context.Background(), entry, o, 0, entry.Version.Size)
	defer stream.Close()
	return io.ReadAll(stream)
}

// Three gateways with caches, Redis and HTTP between them: one cold file that all clients want
// costs the storage one fetch.
func TestStampedeCostsOneFetch(t *testing.T) {
	o := fleetOf(redistest.Shared(t).Addr())
	gateways := []*gateway{serveAs(t, o, nil), serveAs(t, o, nil), serveAs(t, o, nil)}
	know(gateways[0].Fleet, gateways[1].Fleet, gateways[2].Fleet)
	for round := range 3 {
		file := fmt.Sprintf("group1/M00/00/00/%d", round)
		storage := &origin{data: random(300 << 10), delay: 100 * time.Millisecond}
		for _, g := range gateways {
			g.storage = storage
		}
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
	require.EqualValues(t, 2*3, fetches, "each of the others has read it from the owner")
	// After a purge it is fetched again, once.
	storage := &origin{data: random(100 << 10)}
	for _, g := range gateways {
		g.storage = storage
	}
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
		storage.set(random(100 << 10))
	}
}

// random gives n bytes.
func random(n int) []byte {
	p := make([]byte, n)
	_, _ = rand.Read(p) // never fails
	return p
}
