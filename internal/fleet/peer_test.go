package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"fastdfs-gateway/internal/cache"
	"fastdfs-gateway/internal/redistest"

	"github.com/stretchr/testify/require"
)

// gateway is a Fleet, what serves its peers, and perhaps a cache.
type gateway struct {
	*Fleet
	server *httptest.Server
	cache  *cache.Cache
	conns  atomic.Int32 // that were accepted
}

// serveAs starts a gateway that others reach by HTTP. open gives the segments; nil = those of a cache.
func serveAs(t testing.TB, o Options, open func(context.Context, *SegmentRequest) (cache.Version, io.ReadCloser, error)) *gateway {
	t.Helper()
	g := &gateway{}
	g.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		uri := r.URL.RequestURI()
		if _, err := g.Verify(r.Method, uri, r.Header.Get(SignatureHeader)); err != nil {
			http.Error(w, "", http.StatusForbidden)
			return
		}
		request, err := ParseSegmentRequest(uri)
		if err != nil {
			http.Error(w, "", http.StatusBadRequest)
			return
		}
		flush := http.NewResponseController(w).Flush
		if open == nil {
			err = g.WriteSegment(r.Context(), w, flush, g.cache, request)
		} else {
			err = writeSegment(r.Context(), w, flush, g.peers.heartbeat, func(ctx context.Context) (cache.Version, io.ReadCloser, error) {
				return open(ctx, request)
			})
		}
		if err != nil && !errors.Is(err, cache.ErrNotHere) && r.Context().Err() == nil {
			panic(http.ErrAbortHandler)
		}
	}))
	g.server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			g.conns.Add(1)
		}
	}
	g.server.Start()
	t.Cleanup(g.server.Close)
	o.Advertise = g.server.URL
	var err error
	g.Fleet, err = New(o)
	require.NoError(t, err)
	unhurried(g.Fleet)
	t.Cleanup(func() { require.NoError(t, g.Fleet.Close()) })
	if open == nil {
		g.cache, err = cache.New(cache.Options{Memory: 64 << 20, Fleet: g.Fleet})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, g.cache.Close()) })
		start(t, g.Fleet, Local{Purge: func(m cache.Match) { g.cache.Purge(m) }})
	}
	return g
}

var testKey = cache.SegmentKey{File: testFile}

func TestPeerGivesASegment(t *testing.T) {
	o := fleetOf(redistest.Shared(t).Addr())
	data := random(int(testVersion.Size))
	var asked []SegmentRequest
	b := serveAs(t, o, func(_ context.Context, r *SegmentRequest) (cache.Version, io.ReadCloser, error) {
		asked = append(asked, *r)
		return testVersion, io.NopCloser(bytes.NewReader(data[r.Offset:])), nil
	})
	a := member(t, o, 1)
	for _, offset := range []int64{0, 1, 1 << 20, testVersion.Size} {
		v, body, err := a.OpenPeer(t.Context(), b.o.Advertise, testKey, &testVersion, offset)
		require.NoError(t, err)
		require.Equal(t, testVersion, v)
		got, err := io.ReadAll(body)
		require.NoError(t, err)
		require.True(t, bytes.Equal(data[offset:], got))
		require.NoError(t, body.Close())
		require.NoError(t, body.Close())
	}
	v, body, err := a.OpenPeer(t.Context(), b.o.Advertise, testKey, nil, 0)
	require.NoError(t, err)
	require.Equal(t, testVersion, v)
	require.NoError(t, body.Close())
	require.Len(t, asked, 5)
	require.Nil(t, asked[4].Want)
	require.Equal(t, SegmentRequest{Key: testKey, Want: &testVersion, Offset: 1 << 20}, asked[2])
	require.Equal(t, map[string]int64{"ok": 4, "abandoned": 1}, a.Stats().PeerFetches)
	require.Less(t, b.conns.Load(), int32(5), "connections are used again") // but for one that a slow machine gave up: the client waits 50 ms for its own writes
}

func TestPeerThatHasItNot(t *testing.T) {
	o := fleetOf(redistest.Shared(t).Addr())
	answer := cache.ErrNotHere
	b := serveAs(t, o, func(context.Context, *SegmentRequest) (cache.Version, io.ReadCloser, error) {
		return cache.Version{}, nil, answer
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
	require.False(t, found(), "it is not said to be there any more")
	publish()
	answer = cache.ErrChanged
	_, _, err = a.OpenPeer(t.Context(), b.o.Advertise, testKey, nil, 0)
	require.ErrorIs(t, err, cache.ErrChanged)
	require.True(t, found())
	require.Equal(t, map[string]int64{"not_here": 1, "changed": 1}, a.Stats().PeerFetches)
}

// However an answer goes wrong, its reader gets an error other than io.EOF. TestPeerThatStops is about those that stop.
func TestPeerThatBreaks(t *testing.T) {
	o := fleetOf(redistest.Shared(t).Addr())
	data := random(1 << 20)
	small := testVersion
	small.Size = int64(len(data))
	begin := func(w io.Writer) *frameWriter { return beginFrames(w, small, data[:maxData]) }
	for name, c := range map[string]struct {
		answer func(w http.ResponseWriter, r *http.Request)
		want   error
		opens  bool
	}{
		"ends in the middle":       {func(w http.ResponseWriter, _ *http.Request) { begin(w) }, io.ErrUnexpectedEOF, true},
		"is reset":                 {func(w http.ResponseWriter, _ *http.Request) { begin(w); panic(http.ErrAbortHandler) }, nil, true},
		"ends early, in its words": {func(w http.ResponseWriter, _ *http.Request) { _ = begin(w).end() }, errFrame, true},
		"gives too much": {func(w http.ResponseWriter, _ *http.Request) {
			out := begin(w)
			for range 4 {
				_ = out.data(data[:maxData])
			}
			_ = out.end()
		}, errFrame, true},
		"gives another version": {func(w http.ResponseWriter, _ *http.Request) { _ = (&frameWriter{w: w}).version(testVersion) }, cache.ErrChanged, false},
		"gives a web page":      {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>hello</html>") }, errFrame, false},
		"refuses":               {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }, errRefused, false},
		"sends it elsewhere": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://127.0.0.1:1/", http.StatusFound)
		}, errRefused, false},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(c.answer))
			defer server.Close()
			a := member(t, o, 1)
			_, body, err := a.OpenPeer(t.Context(), server.URL, testKey, &small, 0)
			if !c.opens {
				require.ErrorIs(t, err, c.want)
				require.Nil(t, body)
				return
			}
			require.NoError(t, err)
			defer body.Close()
			got, err := io.ReadAll(body) // nil = it was io.EOF
			require.Error(t, err)
			require.True(t, c.want == nil || errors.Is(err, c.want), "%v", err)
			require.True(t, bytes.HasPrefix(data, got) || c.want == errFrame)
			_, again := body.Read(make([]byte, 1))
			require.Equal(t, err, again)
		})
	}
}

// beginFrames begins an answer.
func beginFrames(w io.Writer, v cache.Version, data []byte) *frameWriter {
	out := &frameWriter{w: w}
	_ = out.version(v) // the client sees what is missing
	_ = out.data(data)
	return out
}

func TestPeerThatIsNotAsked(t *testing.T) {
	o := fleetOf(redistest.Shared(t).Addr())
	a := member(t, o, 1)
	for _, holder := range []string{
		"", a.o.Advertise, "10.0.0.2:8888", "ftp://10.0.0.2", "file:///etc/passwd", "http://", "http://u:p@10.0.0.2", "http://10.0.0.2/x", "http://10.0.0.2?x",
		"http://10.0.0.2#x", "http://10.0.0.2\r\nX: y", "gopher://10.0.0.2:1", "http://10.0.0.2:port",
	} {
		_, _, err := a.OpenPeer(t.Context(), holder, testKey, nil, 0)
		require.Error(t, err, "holder %q", holder)
	}
}

// Only who knows the secret is answered, and nobody twice for one signature.
func TestPeerWithoutTheSecret(t *testing.T) {
	o := fleetOf(redistest.Shared(t).Addr())
	b := serveAs(t, o, func(context.Context, *SegmentRequest) (cache.Version, io.ReadCloser, error) {
		return cache.Version{Size: 1}, io.NopCloser(bytes.NewReader([]byte("x"))), nil
	})
	o.Secret = "guessed"
	a := member(t, o, 1)
	_, _, err := a.OpenPeer(t.Context(), b.o.Advertise, testKey, nil, 0)
	require.ErrorIs(t, err, errRefused)

	uri := (&SegmentRequest{Key: testKey}).uri()
	status := func(header string) int {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.o.Advertise+uri, nil)
		require.NoError(t, err)
		req.Header.Set(SignatureHeader, header)
		answer, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		return answer.StatusCode
	}
	defer http.DefaultClient.CloseIdleConnections()
	header := sign("secret", "me", http.MethodGet, b.o.Advertise, uri, time.Now())
	require.Equal(t, http.StatusOK, status(header))
	require.Equal(t, http.StatusForbidden, status(header))
	require.Equal(t, http.StatusForbidden, status(sign("secret", "me", http.MethodGet, b.o.Advertise, uri, time.Now().Add(-time.Minute))))
	require.Equal(t, http.StatusForbidden, status(""))
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

// TestPeerComplaints: an operator is told, once, that another gateway refuses this one or cannot be reached, and what to look at.
func TestPeerComplaints(t *testing.T) {
	log := &lines{}
	o := fleetOf(redistest.Shared(t).Addr())
	b := serveAs(t, o, func(context.Context, *SegmentRequest) (cache.Version, io.ReadCloser, error) {
		return testVersion, nil, cache.ErrNotHere
	})
	o.Secret, o.Log = "another secret than the others have", slog.New(slog.NewTextHandler(log, nil))
	a := member(t, o, 1)
	for range 3 {
		_, _, err := a.OpenPeer(t.Context(), b.o.Advertise, testKey, nil, 0)
		require.ErrorIs(t, err, errRefused)
	}
	require.Equal(t, 1, log.count("gateway="+b.o.Advertise+" error=\"403 Forbidden\" advice=\"give both the same secret in [peer]"), log)
	_, _, err := a.OpenPeer(t.Context(), "http://127.0.0.1:1", testKey, nil, 0)
	require.ErrorIs(t, err, errUnreachable)
	require.Equal(t, 1, log.count("gateway=http://127.0.0.1:1 error="), log)
	require.Equal(t, 1, log.count("its advertise in [peer]"), log)
}
