package gateway

import (
	"context"
	"io"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"fastdfs-gateway/internal/cache"
	"fastdfs-gateway/internal/eventually"
	"fastdfs-gateway/internal/origin"
	"fastdfs-gateway/storage"
	"fastdfs-gateway/tests/fdfstest"

	"github.com/stretchr/testify/require"
)

func TestPurgeTarget(t *testing.T) {
	for query, want := range map[string]PurgeTarget{
		"id=group1/M00/00/00/a": {ID: "group1/M00/00/00/a"}, "id=%2Fgroup1/M00": {ID: "group1/M00"}, "prefix=/group1/": {Prefix: "group1/"}, "all=1": {All: true},
	} {
		q, err := url.ParseQuery(query)
		require.NoError(t, err)
		got, err := purgeTarget(q)
		require.NoError(t, err, query)
		require.Equal(t, want, got, query)
	}
	// What is not understood as a whole is not obeyed in part, and least of all taken for everything.
	for _, query := range []string{
		"", "id=", "id=/", "prefix=", "prefix=/", "all=", "all=0", "all=true", "id=a&id=b", "id=a&id=", "prefix=a&prefix=b", "id=a&all=1", "all=1&all=1", "all=1&x=1", "ID=a",
	} {
		q, err := url.ParseQuery(query)
		require.NoError(t, err)
		_, err = purgeTarget(q)
		require.ErrorIs(t, err, ErrPurgeTarget, query)
	}
}

// brokenProtocol is storages that cannot be reached.
type brokenProtocol struct{}

func (*brokenProtocol) Order(servers []storage.Server) []storage.Server { return servers }

func (*brokenProtocol) Stat(context.Context, origin.Wanted, []storage.Server) (storage.Info, error) {
	return storage.Info{}, storage.ErrNoSource
}

func (*brokenProtocol) Open(context.Context, origin.Wanted, storage.Info, int64, int64, []storage.Server) (io.ReadCloser, error) {
	return nil, storage.ErrNoSource
}

// TestPrefetchTellsWhy: people see why a file was not fetched, and nothing uses the clients of other hosts any more.
func TestPrefetchTellsWhy(t *testing.T) {
	c, err := cache.New(cache.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	store, err := storage.OpenLocal(storage.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	for _, test := range []struct {
		group, want string
		protocol    origin.Protocol
	}{
		{"group1", "the storage cannot be reached", &brokenProtocol{}},
		{"group2", "file not found", &fakeProtocol{}},
		{"group3", "", &fakeProtocol{content: "hello"}},
	} {
		running := &atomic.Int64{}
		o := origin.Options{
			Protocol: test.protocol, Cache: c, Store: store, Running: running,
			Sources: origin.NewSources(origin.SourcesOptions{Allow: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}),
		}
		h := NewHandler(Options{Store: store, GroupInURL: true, Origin: origin.NewResolver(o)})
		id := fdfstest.IDFrom(t, test.group, "10.0.0.1", 0).String()
		admin := &CacheAdmin{Prefetch: func(ctx context.Context, id string) (int64, string, error) { return h.Prefetch(ctx, id, time.Now()) }}
		w := httptest.NewRecorder()
		admin.prefetch(w, httptest.NewRequestWithContext(t.Context(), "POST", "/prefetch", strings.NewReader(id)))
		want := id + " error: " + test.want + "\ndone: 1 files, 1 failed\n"
		if test.want == "" {
			want = id + " fetched 5\ndone: 1 files, 0 failed\n"
		}
		require.Equal(t, want, w.Body.String())
		eventually.True(t, func() bool { return running.Load() == 0 }, "nothing is fetched any more")
	}
}

// TestPrefetchOfABadList: a list that cannot be read to its end is a failure, and what stands in it does nothing to a terminal.
func TestPrefetchOfABadList(t *testing.T) {
	admin := &CacheAdmin{Prefetch: func(context.Context, string) (int64, string, error) { return 0, "", errNotFound }}
	for list, want := range map[string]string{
		strings.Repeat("a", maxPrefetchLine+1):         "error: cannot read the list: bufio.Scanner: token too long\ndone: 0 files, 1 failed\n",
		"\x1b[31mred\x07\n\n":                          "?[31mred? error: file not found\ndone: 1 files, 1 failed\n",
		"a\n" + strings.Repeat("b", maxPrefetchLine+1): "a error: file not found\nerror: cannot read the list: bufio.Scanner: token too long\ndone: 1 files, 2 failed\n",
	} {
		w := httptest.NewRecorder()
		admin.prefetch(w, httptest.NewRequestWithContext(t.Context(), "POST", "/prefetch", strings.NewReader(list)))
		require.Equal(t, want, w.Body.String())
	}
}

// TestStatusPage: what is inside of a value has a row of its own, what is not there is said to be, and names are no markup.
func TestStatusPage(t *testing.T) {
	admin := &CacheAdmin{Status: func(context.Context) any {
		return map[string]any{"cache": map[string]any{"Memory": map[string]any{"Bytes": 5, "Off": false}, "Peers": nil, "Records": 1}, "gateways": map[string]string{"<b>": "live"}}
	}}
	w := httptest.NewRecorder()
	admin.statusPage(w, httptest.NewRequestWithContext(t.Context(), "GET", "/status", nil))
	for _, row := range []string{
		"<th>Memory Bytes</th><td><pre>5</pre>", "<th>Memory Off</th><td><pre>false</pre>", "<th>Peers</th><td><pre>none</pre>", "<th>Records</th><td><pre>1</pre>",
		"<th>&lt;b&gt;</th><td><pre>live</pre>",
	} {
		require.Contains(t, w.Body.String(), row)
	}
}
