package gateway

import (
	"fmt"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"fastdfs-gateway/internal/cache"
	"fastdfs-gateway/internal/origin"
	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/internal/testing/origintest"
	"fastdfs-gateway/storage/local"
	"fastdfs-gateway/tests/fdfstest"

	"github.com/stretchr/testify/require"
)

// TestPrefetchTellsWhy: Prefetch returns the reason why a file was not fetched, and no fetch goes
// on after it.
func TestPrefetchTellsWhy(t *testing.T) {
	c := cache.New(cache.Options{})
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	store, err := local.Open(local.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	for _, test := range []struct {
		group, want string
		protocol    origin.Protocol
	}{
		{"group1", "the storage cannot be reached", origintest.Unreachable{}},
		{"group2", "file not found", &fakeProtocol{}},
		{"group3", "", &fakeProtocol{content: "hello"}},
	} {
		running := &atomic.Int64{}
		o := origin.Options{
			Protocol: test.protocol, Cache: c, Store: store, Running: running,
			Sources: origin.NewSources(origin.SourcesOptions{
				Allow: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}),
		}
		h := NewHandler(Options{Store: store, GroupInURL: true, Origin: origin.NewResolver(o)})
		id := fdfstest.IDFrom(t, test.group, "10.0.0.1", 0).String()
		size, where, err := h.Prefetch(t.Context(), id, time.Now())
		if test.want == "" {
			require.NoError(t, err)
			require.Equal(t, "fetched 5", fmt.Sprint(where, " ", size))
		} else {
			require.EqualError(t, err, test.want)
		}
		eventually.True(t, func() bool { return running.Load() == 0 }, "nothing is fetched any more")
	}
}
