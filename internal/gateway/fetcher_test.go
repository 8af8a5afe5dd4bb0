package gateway

import (
	"context"
	"crypto/rand"
	"hash/crc32"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"fastdfs-gateway/antisteal"
	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/storage"

	"github.com/stretchr/testify/require"
)

// fakeOrigin is storages that have one content for every file, or nothing.
type fakeOrigin struct {
	mu      sync.Mutex // guards what follows
	content string     // "" = no such file
	targets []string   // that were asked for
	opened  int
}

func (o *fakeOrigin) Order(servers []storage.Server) []storage.Server { return servers }

func (o *fakeOrigin) Stat(_ context.Context, w Wanted, _ []storage.Server) (storage.Info, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.targets = append(o.targets, w.Target)
	if o.content == "" {
		return storage.Info{}, storage.ErrNotFound
	}
	return storage.Info{Size: int64(len(o.content)), ModTime: time.Unix(w.ID.Created, 0), CRC32: w.ID.CRC32}, nil
}

func (o *fakeOrigin) Open(_ context.Context, w Wanted, _ storage.Info, offset, length int64, _ []storage.Server) (io.ReadCloser, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.targets = append(o.targets, w.Target)
	o.opened++
	if o.content == "" {
		return nil, storage.ErrNoSource
	}
	return io.NopCloser(strings.NewReader(o.content[offset : offset+length])), nil
}

// fetches is how often content was fetched.
func (o *fakeOrigin) fetches() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.opened
}

// cachedGateway serves what the origin has through a cache, and returns a function that asks it.
func cachedGateway(t *testing.T, o Options, origin Origin) func(method, target string, headers ...string) (status int, body string) {
	t.Helper()
	r, _ := edge(t, o, origin)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	return func(method, target string, headers ...string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, "http://"+r.address+target, nil)
		require.NoError(t, err)
		for i := 0; i < len(headers); i += 2 {
			req.Header.Set(headers[i], headers[i+1])
		}
		resp, err := client.Do(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, string(body)
	}
}

// TestRangeBehindTheEnd: a range that begins behind the end of a file needs no byte of it, but whether there is such a file has to be
// asked all the same.
func TestRangeBehindTheEnd(t *testing.T) {
	content := strings.Repeat("hello ", 1000)
	idOf := func(random uint32) string {
		source := fdfs.Source{10, 0, 0, 1}
		id, err := fdfs.Encode(fdfs.Fields{Group: "group1", Source: source, Created: 1700000000, Size: int64(len(content)), Random: random,
			CRC32: crc32.ChecksumIEEE([]byte(content)), Ext: "bin"})
		require.NoError(t, err)
		return id.String()
	}
	origin := &fakeOrigin{}
	ask := cachedGateway(t, Options{}, origin)
	for i, first := range []string{"5999", "6000", "99999999999"} {
		id := "/" + idOf(uint32(i))
		status, _ := ask("GET", id, "Range", "bytes="+first+"-")
		require.Equal(t, 404, status, "from %s", first)
		status, _ = ask("HEAD", id)
		require.Equal(t, 404, status, "after a range from %s", first)
	}
	origin.mu.Lock() // a fetch that nobody waits for may still look
	origin.content = content
	origin.mu.Unlock()
	for i, first := range []string{"6000", "99999999999"} {
		id := "/" + idOf(uint32(10+i))
		status, _ := ask("GET", id, "Range", "bytes="+first+"-")
		require.Equal(t, 416, status)
		_, body := ask("GET", id)
		require.Equal(t, content, body)
	}
}

// TestTokensOfFetches: web servers of storages check tokens too. A fetch for the cache may begin long after the request that it was
// made for, so it has a token of its own.
func TestTokensOfFetches(t *testing.T) {
	id := idFrom(t, "group1", "10.0.0.1", 0)
	origin := &fakeOrigin{content: "hello"}
	tokens := antisteal.NewChecker(antisteal.Options{Secrets: []string{"secret"}, TTL: time.Minute})
	h := NewHandler(Options{Tokens: tokens, GroupInURL: true, Remote: &RemoteOptions{Origin: origin}})
	f := &fetcher{a: h.away.(*away), wanted: Wanted{ID: id, Target: "/old?token=expired&ts=1&redirect=1"}}
	f.once.Do(func() { f.plan = plan{servers: []storage.Server{{Host: "10.0.0.1", Port: 80}}} })
	_, err := f.Stat(t.Context())
	require.NoError(t, err)
	_, body, err := f.Fetch(t.Context(), nil, 0, 5)
	require.NoError(t, err)
	require.NoError(t, body.Close())
	require.Len(t, origin.targets, 3, "this id may be that of a link, so it is asked for first")
	for _, text := range origin.targets {
		var target target
		require.NoError(t, target.parse([]byte(text)))
		require.NoError(t, tokens.Check(id.Logic, target.params.token, target.params.ts, time.Now()), text)
		require.Equal(t, "1", string(target.params.redirect))
	}
}

// TestForeignTokens: where this gateway checks no tokens, the web servers of the storages may. What
// one client's token opens is not for others, so nothing that is cached is fetched by it; nor does
// a token lead around the cache.
func TestForeignTokens(t *testing.T) {
	var asked, tokens atomic.Int64
	server := newWebServer(t, listen(t, "127.0.0.7")[0], func(w io.Writer, r *http.Request) {
		asked.Add(1)
		if r.URL.Query().Has("token") {
			tokens.Add(1)
		}
		serveFile([]byte("hello"), nil)(w, r)
	})
	id := idFrom(t, "group1", "127.0.0.7", 0)
	ask := cachedGateway(t, Options{}, newOrigin(t, server))
	_, body := ask("GET", "/"+id.String()+"?token=x&ts=1")
	require.Equal(t, "hello", body)
	first := asked.Load()
	for range 5 {
		_, body := ask("GET", "/"+id.String()+"?token="+rand.Text())
		require.Equal(t, "hello", body)
	}
	require.Equal(t, first, asked.Load(), "the file is in the cache")
	require.Zero(t, tokens.Load())
}
