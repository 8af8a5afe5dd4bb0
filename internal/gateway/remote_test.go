package gateway

import (
	"context"
	"crypto/rand"
	"hash/crc32"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"fastdfs-gateway/internal/content"
	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/httpserver"
	"fastdfs-gateway/internal/origin"
	"fastdfs-gateway/internal/testing/origintest"
	"fastdfs-gateway/internal/variant"
	"fastdfs-gateway/storage/client"
	"fastdfs-gateway/storage/local"
	"fastdfs-gateway/tests/fdfstest"
	"fastdfs-gateway/tests/storetest"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
)

// fakeProtocol is a Protocol for storages that have the same content for every file, or no file.
type fakeProtocol struct {
	origintest.Unreachable

	mu      sync.Mutex // guards the fields below
	content string     // "" = no such file
	opened  int
}

func (o *fakeProtocol) Stat(_ context.Context, w client.FetchRequest, _ []client.Server) (client.Part, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.content == "" {
		return client.Part{}, fdfs.ErrNoFile
	}
	return client.Part{Version: content.Version{Size: int64(len(o.content)),
		ModTime: content.Nanoseconds(w.ID.Created), CRC32: w.ID.CRC32, Immutable: w.ID.Immutable()}}, nil
}

func (o *fakeProtocol) Open(_ context.Context, w client.FetchRequest, part client.Part,
	_ []client.Server) (io.ReadCloser, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.opened++
	if o.content == "" {
		return nil, client.ErrNoSource
	}
	return io.NopCloser(strings.NewReader(o.content[part.Offset:][:part.Length])), nil
}

// fetches returns the number of fetches of content.
func (o *fakeProtocol) fetches() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.opened
}

// TestRangeBehindTheEnd: a range that begins behind the end of a file needs no byte of it, but a
// request to the storages still decides between 404 and 416.
func TestRangeBehindTheEnd(t *testing.T) {
	content := strings.Repeat("hello ", 1000)
	idOf := func(random uint32) string {
		source := fdfs.Source{10, 0, 0, 1}
		id, err := fdfs.Encode(fdfs.Fields{Group: "group1", Source: source, Created: 1700000000,
			Size: int64(len(content)), Random: random,
			CRC32: crc32.ChecksumIEEE([]byte(content)), Ext: "bin"})
		require.NoError(t, err)
		return id.String()
	}
	protocol := &fakeProtocol{}
	r, _, _ := edge(t, Options{}, protocol)
	for i, first := range []string{"5999", "6000", "99999999999"} {
		id := "/" + idOf(uint32(i))
		require.Contains(t, r.ask("GET", id, "Range: bytes="+first+"-"), " 404 ", "from %s", first)
		require.Contains(t, r.ask("HEAD", id), " 404 ", "after a range from %s", first)
	}
	protocol.mu.Lock() // a fetch without a reader may still read it
	protocol.content = content
	protocol.mu.Unlock()
	for i, first := range []string{"6000", "99999999999"} {
		id := "/" + idOf(uint32(10+i))
		require.Contains(t, r.ask("GET", id, "Range: bytes="+first+"-"), " 416 ")
		require.True(t, strings.HasSuffix(r.ask("GET", id), "\r\n\r\n"+content))
	}
}

// TestForeignTokens: if this gateway checks no tokens, the web servers of the storages may. The
// token of one client is not used to fetch content for the cache, which is shared by all clients. A
// token does not bypass the cache either.
func TestForeignTokens(t *testing.T) {
	var asked, tokens atomic.Int64
	ln, err := net.Listen("tcp", "127.0.0.7:0")
	require.NoError(t, err)
	server := &httptest.Server{Listener: ln,
		Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked.Add(1)
			if r.URL.Query().Has("token") {
				tokens.Add(1)
			}
			http.ServeContent(w, r, "", time.Unix(1700000000, 0), strings.NewReader("hello"))
		})}}
	server.Start()
	t.Cleanup(server.Close)
	web := origin.NewHTTPClient(origin.HTTPOptions{
		Port: ln.Addr().(*net.TCPAddr).Port, ConnectTimeout: testTimeout, NetworkTimeout: testTimeout,
	})
	t.Cleanup(web.Close)
	id := fdfstest.IDFrom(t, "group1", "127.0.0.7", 0)
	r, _, _ := edge(t, Options{}, origin.Storages{Client: web, Web: true})
	require.Contains(t, r.ask("GET", "/"+id.String()+"?token=x&ts=1"), "\r\n\r\nhello")
	first := asked.Load()
	for range 5 {
		require.Contains(t, r.ask("GET", "/"+id.String()+"?token="+rand.Text()), "\r\n\r\nhello")
	}
	require.Equal(t, first, asked.Load(), "the file is in the cache")
	require.Zero(t, tokens.Load())
}

// TestRedirectScheme: a redirect keeps the scheme and the port of the request, unless the
// configuration sets others.
func TestRedirectScheme(t *testing.T) {
	store := storetest.New(t)
	url := store.Missing("", time.Now()).URL()
	for want, test := range map[string]struct {
		secure bool
		o      Options
	}{
		"http://192.0.2.1:PORT":  {false, Options{}},
		"https://192.0.2.1:PORT": {true, Options{}},
		"http://192.0.2.1:8080":  {true, Options{RedirectScheme: "http", RedirectPort: 8080}},
		"https://192.0.2.1:8443": {false, Options{RedirectScheme: "https", RedirectPort: 8443}},
	} {
		test.o.Store, test.o.Origin = openLocal(t, store), redirecting{}
		r, config := runTLS(t, test.o, httpserver.Options{}, time.Minute, "http/1.1")
		scheme := "https://"
		if !test.secure {
			r, scheme = run(t, test.o, httpserver.Options{}), "http://"
		}
		transport := &http.Transport{TLSClientConfig: config}
		t.Cleanup(transport.CloseIdleConnections)
		req, err := http.NewRequest(http.MethodGet, scheme+r.address+url, nil)
		require.NoError(t, err)
		resp, err := transport.RoundTrip(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		_, port, err := net.SplitHostPort(r.address)
		require.NoError(t, err)
		require.Equal(t, strings.Replace(want, "PORT", port, 1)+url+"?redirect=1", resp.Header.Get("Location"))
	}
}

// reusingStore is a store that calls reuse once, after the first Open.
type reusingStore struct {
	*local.FileCache
	after sync.Once
	reuse func()
}

func (s *reusingStore) Open(id fdfs.FileID) (*local.File, error) {
	f, err := s.FileCache.Open(id)
	s.after.Do(s.reuse)
	return f, err
}

// TestChangedHereAndFoundElsewhere: if a slot is reused after it was opened, the second attempt
// finds the file at another host, and uses nothing of the first attempt.
func TestChangedHereAndFoundElsewhere(t *testing.T) {
	s := storetest.New(t)
	o := s.Trunk("txt", s.Bytes(100_000))
	store := &reusingStore{FileCache: openCache(t, s, local.FileCacheOptions{Memory: -1}),
		reuse: func() { s.Reuse(o, "bin", s.Bytes(90_000)) }}
	protocol := &fakeProtocol{content: string(o.Content)}
	resolver := origin.NewResolver(origin.Options{Protocol: protocol, TryReplicas: true, Port: 80,
		Store: openLocal(t, s), Targets: origin.Targets{Group: true},
		SyncDelay: func() time.Duration { return 1_000_000 * time.Hour },
		Sources:   origin.NewSources(origin.SourcesOptions{Allow: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}})})
	r := run(t, Options{Store: store, Origin: resolver}, httpserver.Options{MinSendRate: 1})
	response := r.ask("GET", o.URL())
	require.Contains(t, response[:min(len(response), 20)], "200 OK")
	require.True(t, strings.HasSuffix(response, "\r\n\r\n"+string(o.Content)))
	require.Positive(t, protocol.fetches())
}

// unreadable is a store on a disk that fails.
type unreadable struct{ *local.FileCache }

func (unreadable) Open(fdfs.FileID) (*local.File, error) { return nil, local.ErrUnavailable }

// without is an Origin that finds no file: Find and Explain fail with err.
type without struct {
	Origin
	err error
}

func (o without) Find(*origin.Request, error) (string, error) { return "", o.err }

func (o without) Explain(context.Context, *origin.Request, error, func(string, string, ...any)) origin.Outcome {
	return origin.Outcome{Err: o.err}
}

// TestUnreadableStore: if the disk fails and no other host has the file, the status is 503, also in
// an explanation. A disconnect during the search is no error of the store.
func TestUnreadableStore(t *testing.T) {
	s := storetest.New(t)
	store := unreadable{openCache(t, s, local.FileCacheOptions{})}
	url := s.Missing("jpg", time.Now().Add(-time.Hour)).URL()
	images := variant.NewRules(variant.RulesOptions{Forms: variant.Query, Any: true})
	r := run(t, Options{Store: store, Origin: without{err: fdfs.ErrNoFile}, Images: images,
		Types: map[string]string{"jpg": "image/jpeg"}}, httpserver.Options{MinSendRate: 1})
	require.Contains(t, r.ask("GET", url), " 503 ")
	require.Contains(t, r.ask("GET", url+"?w=9"), " 503 ", "of a picture")
	require.Equal(t, 503, r.handler.Explain(t.Context(), url, time.Now()).Status)
	r = run(t, Options{Store: store, Origin: without{err: origin.ErrClientGone}}, httpserver.Options{MinSendRate: 1})
	r.ask("GET", url)
	require.EqualValues(t, 1,
		testutil.ToFloat64(r.handler.o.Metrics.requestsTotal.WithLabelValues("499", sourceNone)))
}
