package origin

import (
	"context"
	"io"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"fastdfs-gateway/antisteal"
	"fastdfs-gateway/storage"
	"fastdfs-gateway/tests/fdfstest"

	"github.com/stretchr/testify/require"
)

// fakeProtocol is storages that have one content for every file, or nothing.
type fakeProtocol struct {
	mu      sync.Mutex // guards what follows
	content string     // "" = no such file
	targets []string   // that were asked for
	opened  int
}

func (o *fakeProtocol) Order(servers []storage.Server) []storage.Server { return servers }

func (o *fakeProtocol) Stat(_ context.Context, w Wanted, _ []storage.Server) (storage.Info, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.targets = append(o.targets, w.Target)
	if o.content == "" {
		return storage.Info{}, storage.ErrNotFound
	}
	return storage.Info{Size: int64(len(o.content)), ModTime: time.Unix(w.ID.Created, 0), CRC32: w.ID.CRC32}, nil
}

func (o *fakeProtocol) Open(_ context.Context, w Wanted, _ storage.Info, offset, length int64, _ []storage.Server) (io.ReadCloser, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.targets = append(o.targets, w.Target)
	o.opened++
	if o.content == "" {
		return nil, storage.ErrNoSource
	}
	return io.NopCloser(strings.NewReader(o.content[offset : offset+length])), nil
}

// TestTokensOfFetches: web servers of storages check tokens too. A fetch for the cache may begin
// long after the request that it was made for, so it has a token of its own.
func TestTokensOfFetches(t *testing.T) {
	id := fdfstest.IDFrom(t, "group1", "10.0.0.1", 0)
	protocol := &fakeProtocol{content: "hello"}
	tokens := antisteal.NewChecker(antisteal.Options{Secrets: []string{"secret"}, TTL: time.Minute})
	a := NewResolver(Options{Protocol: protocol, Targets: Targets{Group: true, Tokens: tokens}})
	f := &cacheSource{a: a, wanted: Wanted{ID: id, Target: "/old?token=expired&ts=1&redirect=1"}}
	f.once.Do(func() { f.first = candidates{servers: []storage.Server{{Host: "10.0.0.1", Port: 80}}} })
	_, err := f.Stat(t.Context())
	require.NoError(t, err)
	_, body, err := f.Fetch(t.Context(), nil, 0, 5)
	require.NoError(t, err)
	require.NoError(t, body.Close())
	require.Len(t, protocol.targets, 3, "this id may be that of a link, so it is asked for first")
	for _, text := range protocol.targets {
		target, err := url.Parse(text)
		require.NoError(t, err)
		require.Equal(t, "/"+id.String(), target.Path)
		q := target.Query()
		require.NoError(t, tokens.Check(id.Logic, []byte(q.Get("token")), []byte(q.Get("ts")), time.Now()), text)
		require.Equal(t, "1", q.Get("redirect"))
	}
}
