package origin

import (
	"net/url"
	"testing"
	"time"

	"fastdfs-gateway/antisteal"
	"fastdfs-gateway/internal/cache"
	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/storage/client"
	"fastdfs-gateway/tests/fdfstest"

	"github.com/stretchr/testify/require"
)

// TestTokensOfFetches: each fetch from a web server has a new anti-steal token, since a storage's
// web server checks tokens too, and a fetch for the cache may begin long after its request.
func TestTokensOfFetches(t *testing.T) {
	id := fdfstest.IDFrom(t, "group1", "10.0.0.1", 0)
	web := newFakeWeb(t, listen(t, "127.0.0.31")[0], serveFile([]byte("hello"), nil))
	tokens := antisteal.NewChecker(antisteal.Options{Secrets: []string{"secret"}, TTL: time.Minute})
	a := NewResolver(Options{Protocol: newOrigin(t, web), Targets: Targets{Group: true, Tokens: tokens}})
	f := &fetcher{a: a, request: client.FetchRequest{ID: id}}
	f.candidates = &candidates{servers: []client.Server{web.server}}
	_, err := f.Stat(t.Context(), cache.Version{})
	require.NoError(t, err)
	_, body, err := f.Fetch(t.Context(), nil, 0, 5)
	require.NoError(t, err)
	require.NoError(t, body.Close())
	web.mu.Lock()
	defer web.mu.Unlock()
	require.Len(t, web.requests, 2)
	for _, r := range web.requests {
		target, err := url.Parse(r.RequestURI)
		require.NoError(t, err)
		require.Equal(t, "/"+id.String(), target.Path)
		q := target.Query()
		require.NoError(t, tokens.Check(id.Logic, []byte(q.Get("token")), []byte(q.Get("ts")), time.Now()),
			r.RequestURI)
		require.Equal(t, "1", q.Get("redirect"))
	}
}

// TestNegativeTTL: of files that replication may still bring, only slave files get negative
// entries, which last a second.
func TestNegativeTTL(t *testing.T) {
	old := fdfstest.IDFrom(t, "group1", "10.0.0.1", 0)
	young := old
	young.Created = time.Now().Unix()
	slave := young
	slave.Kind = fdfs.KindSlave
	delay := func() time.Duration { return time.Hour }
	storages := NewResolver(Options{Protocol: Storages{}, SyncDelay: delay})
	web := NewResolver(Options{Protocol: Storages{Web: true}, SyncDelay: delay})
	ttl := func(a *Resolver, id fdfs.FileID) time.Duration {
		return (&fetcher{a: a, request: client.FetchRequest{ID: id}}).NegativeTTL()
	}
	require.Zero(t, ttl(storages, old), "the default of the cache")
	require.Zero(t, ttl(web, old), "the default of the cache")
	require.Negative(t, ttl(storages, young))
	require.Negative(t, ttl(web, young))
	require.Equal(t, time.Second, ttl(storages, slave))
	require.Equal(t, time.Second, ttl(web, slave))
}
