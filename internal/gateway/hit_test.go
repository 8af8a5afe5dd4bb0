package gateway

import (
	"context"
	"hash/crc32"
	"io"
	"net/netip"
	"regexp"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"fastdfs-gateway/internal/cache"
	"fastdfs-gateway/internal/cache/tier"
	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/httpserver"
	"fastdfs-gateway/internal/origin"
	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/storage/client"
	"fastdfs-gateway/storage/local"

	"github.com/stretchr/testify/require"
)

// edge runs a gateway without a store in front of an origin that has one content for every file.
func edge(t *testing.T, o Options, protocol origin.Protocol, so ...httpserver.Options) (*running, Options,
	origin.Options) {
	t.Helper()
	c := cache.New(cache.Options{Memory: 16 << 20})
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	store, err := local.Open(local.Options{})
	require.NoError(t, err)
	files := local.NewFileCache(store, local.FileCacheOptions{})
	t.Cleanup(func() { require.NoError(t, files.Close()) })
	o.Store, o.GroupInURL, o.XCache = files, true, true
	remote := origin.Options{
		Protocol: protocol, Cache: c, TryReplicas: true, Port: 80, Running: &atomic.Int64{}, Store: store,
		Targets: origin.Targets{Group: true},
		Sources: origin.NewSources(origin.SourcesOptions{Allow: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}}),
	}
	o.Origin = origin.NewResolver(remote)
	return run(t, o, append(so, httpserver.Options{MinSendRate: 1})[0]), o, remote
}

// kinds returns the URL of a file of each kind, all with the same content.
func kinds(t *testing.T, content string) map[string]string {
	t.Helper()
	source := fdfs.Source{10, 0, 0, 1}
	urls := map[string]string{}
	for name, fields := range map[string]fdfs.Fields{
		"normal":   {Size: int64(len(content)), CRC32: crc32.ChecksumIEEE([]byte(content))},
		"appender": {Kind: fdfs.KindAppender},
		"packed": {Kind: fdfs.KindTrunk, Size: int64(len(content)), CRC32: crc32.ChecksumIEEE([]byte(content)),
			Trunk: fdfs.Trunk{ID: 1, Alloc: uint32(len(content)) + 256}},
	} {
		fields.Group, fields.Source, fields.Created, fields.Ext = "group1", source, 1700000000, "jpg"
		id, err := fdfs.Encode(fields)
		require.NoError(t, err)
		urls[name] = "/" + id.String()
	}
	urls["without M00"] = strings.Replace(urls["normal"], "/M00/", "/", 1)
	return urls
}

// TestHitsSayTheSame: except for X-Cache, a response from the cache is byte by byte the response to
// the request that has caused the fetch. This holds for each method, range and condition, and for
// all later responses.
func TestHitsSayTheSame(t *testing.T) {
	content := strings.Repeat("0123456789", 60_000) // more than one chunk
	for kind, url := range kinds(t, content) {
		t.Run(kind, func(t *testing.T) {
			asked := map[string][]string{
				"whole": {"GET"}, "head": {"HEAD"}, "range": {"GET", "Range: bytes=10-19"},
				"across chunks": {"GET", "Range: bytes=262140-262150"},
				"ranges":        {"GET", "Range: bytes=0-9,300000-300009"}, "end": {"GET", "Range: bytes=-5"},
				"behind the end":   {"GET", "Range: bytes=600000-"},
				"not modified":     {"GET", "If-Modified-Since: Tue, 14 Nov 2023 22:13:20 GMT"},
				"condition failed": {"GET", `If-Match: "other"`},
			}
			cold := map[string]string{}
			for name, request := range asked {
				r, _, _ := edge(t, Options{CacheControl: "max-age=60"}, &fakeProtocol{content: content})
				cold[name] = r.ask(request[0], url, request[1:]...)
			}
			protocol := &fakeProtocol{content: content}
			warm, _, remote := edge(t, Options{CacheControl: "max-age=60"}, protocol)
			require.Contains(t, warm.ask("GET", url), "X-Cache: MISS")
			warm.untilHit(url)
			for name, request := range asked {
				for range 2 {
					require.Equal(t, plainCache(cold[name]), plainCache(warm.ask(request[0], url, request[1:]...)),
						name)
				}
			}
			require.Contains(t, warm.ask("GET", url), "X-Cache: HIT")
			require.Equal(t, 1, protocol.fetches(), "content was fetched once")
			require.Zero(t, remote.Running.Load(), "nothing is being fetched")
		})
	}
}

// untilHit requests a file until it is a hit. The first responses may be misses: the last bytes of
// a fetched file are sent before it is stored.
func (r *running) untilHit(url string) {
	r.t.Helper()
	for end := time.Now().Add(testTimeout); !strings.Contains(r.ask("GET", url), "X-Cache: HIT"); {
		require.True(r.t, time.Now().Before(end), "%s does not come out of the cache", url)
	}
}

// plainCache removes the X-Cache field of a response.
func plainCache(response string) string {
	return regexp.MustCompile(`X-Cache: [^\r]*`).ReplaceAllString(response, "")
}

// changingProtocol is a fakeProtocol whose file changes once, after a request has its metadata.
type changingProtocol struct {
	fakeProtocol
	before func() // called once by Open, which then fails
}

func (o *changingProtocol) Open(ctx context.Context, w client.FetchRequest, part client.Part,
	servers []client.Server) (io.ReadCloser, error) {
	o.mu.Lock()
	before := o.before
	o.before = nil
	o.mu.Unlock()
	if before != nil {
		before()
		return nil, fdfs.ErrFileChanged
	}
	return o.fakeProtocol.Open(ctx, w, part, servers)
}

// hookedStore is a Store without files that calls asked at each Open.
type hookedStore struct {
	Store
	asked func()
}

func (s *hookedStore) Open(id fdfs.FileID) (*local.File, error) {
	if s.asked != nil {
		s.asked()
	}
	return s.Store.Open(id)
}

// TestSecondAttemptHits: a request whose file changes in its first attempt tries again. If the
// second attempt is a hit, since other requests have fetched the new content meanwhile, the
// response contains nothing of the first attempt.
func TestSecondAttemptHits(t *testing.T) {
	small := strings.Repeat("0123456789abcdefghij", 205)
	for _, c := range []struct{ name, content, field string }{
		{"whole", small, "X-None: 1"}, {"range", small, "Range: bytes=1005-1019"},
		{"ranges", small, "Range: bytes=1005-1019,2001-2019"},
		{"large", strings.Repeat(small, 50), "Range: bytes=1005-1019"}, // from a file in memory
	} {
		t.Run(c.name, func(t *testing.T) {
			content, field, url := c.content, c.field, kinds(t, c.content)["appender"]
			plain, _, _ := edge(t, Options{}, &fakeProtocol{content: content})
			for range 2 {
				plain.ask("GET", url)
			}
			want := plain.ask("GET", url, field)
			protocol := &changingProtocol{fakeProtocol: fakeProtocol{content: strings.ToUpper(content)}}
			r, o, remote := edge(t, Options{}, protocol)
			store := &hookedStore{Store: o.Store}
			o.Store = store
			r.reload(o)
			require.Contains(t, r.ask("HEAD", url), "200 OK") // now its size is known, and no content
			protocol.before = func() {
				remote.Cache.Purge(tier.MatchAll)
				store.asked = func() { // the second attempt begins
					store.asked = nil
					protocol.mu.Lock()
					protocol.content = content
					protocol.mu.Unlock()
					r.untilHit(url)
				}
			}
			got := r.ask("GET", url, field)
			require.Contains(t, got, "X-Cache: HIT")
			require.Equal(t, plainCache(want), plainCache(got))
			require.Nil(t, store.asked, "there was a second attempt")
		})
	}
}

// TestPinsAreGivenBack: however a response ends, it leaves no memory of the cache in use.
func TestPinsAreGivenBack(t *testing.T) {
	content := strings.Repeat("x", 3<<20)
	r, _, remote := edge(t, Options{}, &fakeProtocol{content: content})
	url := kinds(t, content)["normal"]
	r.untilHit(url)
	require.NotZero(t, remote.Cache.Stats().Memory.Moved)
	for _, request := range [][]string{
		{"GET"}, {"HEAD"}, {"GET", "Range: bytes=100-2000000"}, {"GET", "Range: bytes=0-9,100-200"},
		{"GET", "Range: bytes=9999999-"}, {"GET", `If-Match: "no"`},
		{"GET", "If-Modified-Since: Tue, 14 Nov 2023 22:13:20 GMT"},
	} {
		r.ask(request[0], url, request[1:]...)
	}
	for range 10 { // clients that disconnect in the middle
		c := r.dial()
		_, err := io.WriteString(c, "GET "+url+" HTTP/1.0\r\n\r\n")
		require.NoError(t, err)
		_, err = io.ReadFull(c, make([]byte, 1000))
		require.NoError(t, err)
		require.NoError(t, c.Close())
	}
	remote.Cache.Purge(tier.MatchAll)
	eventually.True(t, func() bool { return remote.Cache.Stats().Memory.Bytes == 0 }, "nothing is in use")
}

// TestConnectionsInSequence: a client that waits for the end of one connection before it opens the
// next one counts with one connection at a time.
func TestConnectionsInSequence(t *testing.T) {
	content := "hello"
	r, _, _ := edge(t, Options{}, &fakeProtocol{content: content}, httpserver.Options{MaxConnectionsPerIP: 1})
	url := kinds(t, content)["normal"]
	for range 300 {
		require.Contains(t, r.ask("GET", url), "200 OK")
	}
}

// TestFileThatKeepsChanging: a file that changes again in the second attempt is no error of this
// host. The response is a 503 with Retry-After.
func TestFileThatKeepsChanging(t *testing.T) {
	t.Run("all processors", keepsChanging)
	// With one processor, the change is seen before the metadata.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	t.Run("one processor", keepsChanging)
}

func keepsChanging(t *testing.T) {
	content := strings.Repeat("x", 1000)
	protocol := &changingProtocol{fakeProtocol: fakeProtocol{content: content}}
	var again func()
	again = func() {
		protocol.mu.Lock()
		defer protocol.mu.Unlock()
		protocol.before = again
	}
	again()
	r, o, remote := edge(t, Options{}, protocol)
	url := kinds(t, content)["appender"]
	for _, uncached := range []bool{false, true} {
		if uncached {
			remote.Cache = nil
			o.Origin = origin.NewResolver(remote)
			r.reload(o)
		}
		require.Contains(t, r.ask("HEAD", url), "200 OK") // its size is known, so a fetch is for one version
		got := r.ask("GET", url)
		require.Contains(t, got, "503 ", "uncached: %v", uncached)
		require.Contains(t, got, "Retry-After: 1\r\n")
	}
}
