package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"fastdfs-gateway/internal/cache"
	"fastdfs-gateway/internal/cache/tier"
	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/internal/testing/redistest"

	"github.com/stretchr/testify/require"
)

var testKey = cache.SegmentKey{File: testFile}

// testVersion is the version of a file of one segment.
var testVersion = cache.Version{Size: 3 << 20, ModTime: 1767225600e9, CRC32: 0xdeadbeef, Immutable: true}

// gateway is a Fleet that serves peers, with a cache or without one.
type gateway struct {
	*Fleet
	cache   *cache.Cache
	storage cache.Source // of the entries that peers request
}

// serveAs starts a gateway that serves peers on loopback. open returns the segments; nil = a new
// cache does.
func serveAs(t testing.TB, o Options, open PeerOpener) *gateway {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	o.Advertise = "https://" + ln.Addr().String()
	g := &gateway{Fleet: gatewayOf(t, o)}
	served := make(chan error, 1)
	if open == nil {
		g.cache = cache.New(cache.Options{Memory: 64 << 20, Fleet: g.Fleet,
			Source: func(string, string) (cache.Source, error) { return g.storage, nil }})
		t.Cleanup(func() { require.NoError(t, g.cache.Close()) })
		go func() { served <- g.ServePeers(ln, g.cache.PeerOpen) }()
		start(t, g.Fleet, Local{Purge: func(m cache.Match) { g.cache.Purge(m) }})
	} else {
		go func() { served <- g.ServePeers(ln, open) }()
	}
	t.Cleanup(func() { // runs before the cleanups above
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = g.StopPeers(ctx) // streams of a test may hang for ever
		require.NoError(t, <-served)
	})
	return g
}

// gives returns a PeerOpener that responds to each request with a stream.
func gives(v cache.Version, stream func(ctx context.Context, r cache.PeerRequest) io.Reader) PeerOpener {
	return func(ctx context.Context, r cache.PeerRequest) (cache.Meta, io.ReadCloser, error) {
		return cache.Meta{Version: v, Checked: time.Now()}, io.NopCloser(stream(ctx, r)), nil
	}
}

// rejects returns a PeerOpener that responds to each request with an error.
func rejects(err error) PeerOpener {
	return func(context.Context, cache.PeerRequest) (cache.Meta, io.ReadCloser, error) {
		return cache.Meta{}, nil, err
	}
}

func TestPeerGivesASegment(t *testing.T) {
	o := fleetOf(redistest.Shared(t).Addr())
	data := random(int(testVersion.Size))
	var asked []cache.PeerRequest
	b := serveAs(t, o, gives(testVersion, func(_ context.Context, r cache.PeerRequest) io.Reader {
		asked = append(asked, r)
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
	require.Equal(t, cache.PeerRequest{Key: testKey, MaxAge: time.Second, Copy: true}, asked[4])
	require.Equal(t, cache.PeerRequest{Key: testKey, Want: &testVersion, Offset: 1 << 20}, asked[2])
	require.Equal(t, map[string]int64{"ok": 4, "abandoned": 1}, a.Stats().PeerFetches)
	eventually.True(t, func() bool { return b.Stats().PeerRequests[http.StatusOK] == 5 }, "requests are counted")
}

// TestPeersOnTwoListeners: a gateway serves peers on two listeners, the second of which is added
// while the first one serves.
func TestPeersOnTwoListeners(t *testing.T) {
	o := fleetOf(redistest.Shared(t).Addr())
	open := rejects(cache.ErrNotHere)
	b, a := serveAs(t, o, open), member(t, o, 1)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- b.ServePeers(ln, open) }()
	for _, address := range []string{b.o.Advertise, "https://" + ln.Addr().String()} {
		_, _, err := a.Open(t.Context(), address, cache.PeerRequest{Key: testKey})
		require.ErrorIs(t, err, cache.ErrNotHere)
	}
	require.NoError(t, b.StopPeers(t.Context()))
	require.NoError(t, <-served)
}

// TestPeerTellsAge: metadata has the same age in the requesting gateway as in the responding one.
func TestPeerTellsAge(t *testing.T) {
	o := fleetOf(redistest.Shared(t).Addr())
	checked := time.Now().Add(-24 * time.Hour)
	b := serveAs(t, o, func(context.Context, cache.PeerRequest) (cache.Meta, io.ReadCloser, error) {
		return cache.Meta{Version: testVersion, Checked: checked}, nil, nil
	})
	key := cache.SegmentKey{File: testFile, Index: cache.MetaOnly}
	m, _, err := member(t, o, 1).Open(t.Context(), b.o.Advertise, cache.PeerRequest{Key: key})
	require.NoError(t, err)
	require.WithinDuration(t, checked, m.Checked, testTimeout)
}

// TestPeerThatHasItNot: a response without a body is an error that corresponds to the error of the
// cache of the other gateway.
func TestPeerThatHasItNot(t *testing.T) {
	o := fleetOf(redistest.Shared(t).Addr())
	var given error
	var meta cache.Meta
	b := serveAs(
		t,
		o,
		func(context.Context, cache.PeerRequest) (cache.Meta, io.ReadCloser, error) { return meta, nil, given },
	)
	a := member(t, o, 1)
	for _, c := range []struct{ given, want error }{
		{cache.ErrNotHere, cache.ErrNotHere}, {cache.ErrChanged, cache.ErrChanged}, {cache.ErrBusy, errRejected},
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
		cache.PeerRequest{Key: cache.SegmentKey{File: testFile, Index: cache.MetaOnly}})
	require.NoError(t, err)
	require.Nil(t, body)
	require.Equal(t, testVersion, m.Version)
	require.True(t, m.Checked.IsZero(), "it is not known when")
}

// TestPeerThatIsBehind: a peer that has not applied the purges of the requesting gateway applies
// them before it responds, or does not send the entry.
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
	eventually.True(t, func() bool { return open() == nil }, "a copy that came too late is asked for again later")
	relay.Hang()
	require.Equal(t, b.applied.Load(), a.applied.Load())
	a.purges.confirm = time.Second
	_, missing, err := a.Purge(t.Context(), tier.MatchAll)
	require.NoError(t, err)
	require.Equal(t, []string{b.o.Name}, missing)
	require.ErrorIs(t, open(), cache.ErrNotHere)
	require.Less(t, b.applied.Load(), a.applied.Load())
	relay.Restore()
	require.Error(t, open(), "it was purged")
	eventually.True(t, func() bool { return b.applied.Load() == a.applied.Load() }, "it catches up")
}

// TestPeerThatBreaks: whatever ends a body early, its reader gets an error other than io.EOF.
func TestPeerThatBreaks(t *testing.T) {
	o := fleetOf(redistest.Shared(t).Addr())
	data := random(1 << 20)
	small := testVersion
	small.Size = int64(len(data))
	broken := errors.New("the source broke")
	for name, c := range map[string]struct {
		open  PeerOpener
		want  error // of Open; nil = reading the body fails
		bytes int   // that may be read
	}{
		"ends early": {gives(small, func(context.Context, cache.PeerRequest) io.Reader {
			return bytes.NewReader(data[:300_000])
		}), nil, 300_000},
		"fails in the middle": {gives(small, func(context.Context, cache.PeerRequest) io.Reader {
			return io.MultiReader(bytes.NewReader(data[:300_000]), iotest.ErrReader(broken))
		}), nil, 300_000},
		"fails at the last byte": {gives(small, func(context.Context, cache.PeerRequest) io.Reader {
			return io.MultiReader(bytes.NewReader(data[:len(data)-1]), iotest.ErrReader(broken))
		}), nil, len(data) - 1},
		"panics": {func(context.Context, cache.PeerRequest) (cache.Meta, io.ReadCloser, error) { panic("a bug") },
			cache.ErrUnreachable, 0},
		"gives another version": {gives(testVersion, func(context.Context, cache.PeerRequest) io.Reader {
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

// TestPeerWhoseConnectionEnds: the end of a connection while a request waits for its response is no
// failure of the peer: the request is sent once more, over a new connection.
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
		"the second one too":             {(*redistest.Relay).Drop, 2, cache.ErrUnreachable},
		"and the peer is gone":           {(*redistest.Relay).Cut, 1, cache.ErrUnreachable},
	} {
		t.Run(name, func(t *testing.T) {
			var relay *redistest.Relay
			var asked atomic.Int32
			b := serveAs(t, o, func(ctx context.Context, _ cache.PeerRequest) (cache.Meta, io.ReadCloser, error) {
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
				require.NotErrorIs(t, err, cache.ErrUnreachable)
				require.EqualValues(t, 2, asked.Load())
				return
			}
			require.ErrorIs(t, err, c.want)
			require.EqualValues(t, c.ends, asked.Load())
			require.False(t, a.lives.ofPeer(peer).mayAsk(), "others do not wait for it")
		})
	}
}

// testHead is the head of a response for testVersion.
const testHead = `{"Version":{"Size":3145728,"ModTime":1767225600000000000,"CRC32":3735928559,` +
	`"Immutable":true,"Linked":false},"Age":0,"TTL":0}`

// TestPeerWithAWrongHead: a response with a wrong head, or with fewer or more bytes than the
// segment, is an error before a byte of its body is used.
func TestPeerWithAWrongHead(t *testing.T) {
	o := fleetOf(redistest.Shared(t).Addr())
	a := member(t, o, 1)
	size := testVersion.SegmentLength(0)
	for name, respond := range map[string]http.HandlerFunc{
		"no version": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", fmt.Sprint(size))
		},
		"no length": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(entryHeader, testHead)
			_, _ = w.Write(nil)
		},
		"another length": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(entryHeader, testHead)
			w.Header().Set("Content-Length", "1")
			_, _ = w.Write([]byte("x"))
		},
		"a negative size": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(entryHeader, strings.Replace(testHead, "3145728", "-1", 1))
		},
		"no JSON": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(entryHeader, testHead[1:])
		},
		"gone, but not for how long": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusNotFound)
		},
		"an age without end": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(entryHeader, strings.Replace(testHead, `"Age":0`, `"Age":9000000000000000000`, 1))
		},
		"a redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, a.o.Advertise, http.StatusFound)
		},
		"a page of errors": func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusTeapot) },
	} {
		t.Run(name, func(t *testing.T) {
			url := serveHandler(t, o.Secret, respond)
			_, _, err := a.Open(t.Context(), url, cache.PeerRequest{Key: testKey, Want: &testVersion})
			require.Error(t, err)
			require.True(t, errors.Is(err, errResponse) || errors.Is(err, errRejected), "%v", err)
		})
	}
}

// serveHandler serves as a program that is no gateway, but has the secret.
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
