package gateway

import (
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"fastdfs-gateway/antisteal"
	"fastdfs-gateway/internal/cache"
	"fastdfs-gateway/storage"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"
	"github.com/valyala/fasthttp/fasthttputil"
)

// fakeOrigin is storages that have one content for every file, or nothing.
type fakeOrigin struct {
	mu      sync.Mutex // guards what follows
	content string     // "" = no such file
	targets []string   // that were asked for
	opened  int
}

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

// cachedGateway serves what the origin has through a cache, and returns a function that asks it.
func cachedGateway(t *testing.T, o Options, origin Origin) func(method, target string, headers ...string) *fasthttp.Response {
	t.Helper()
	c, err := cache.New(cache.Options{Memory: 16 << 20})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	store, err := storage.OpenLocal(storage.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	_, anybody, err := net.ParseCIDR("0.0.0.0/0")
	require.NoError(t, err)
	o.Store, o.GroupInURL = store, true
	o.Remote = &RemoteOptions{Origin: origin, Cache: c, TryReplicas: true, Port: 80, Sources: allowAll(anybody)}
	s := NewServer(ServerOptions{}, NewHandler(o))
	ln := fasthttputil.NewInmemoryListener()
	done := make(chan error, 1)
	go func() { done <- s.Serve(ln) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		require.NoError(t, s.Shutdown(ctx))
		require.NoError(t, <-done)
	})
	client := &fasthttp.HostClient{Addr: "gateway", Dial: func(string) (net.Conn, error) { return ln.Dial() }}
	t.Cleanup(client.CloseIdleConnections)
	return func(method, target string, headers ...string) *fasthttp.Response {
		t.Helper()
		req, resp := &fasthttp.Request{}, &fasthttp.Response{}
		req.Header.SetMethod(method)
		req.SetRequestURI("http://gateway" + target)
		for i := 0; i < len(headers); i += 2 {
			req.Header.Set(headers[i], headers[i+1])
		}
		resp.SkipBody = method == fasthttp.MethodHead
		require.NoError(t, client.DoTimeout(req, resp, 10*time.Second))
		return resp
	}
}
