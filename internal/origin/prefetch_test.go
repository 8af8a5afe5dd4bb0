package origin

import (
	"bytes"
	"testing"
	"time"

	"fastdfs-gateway/internal/cache"
	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/storage/local"

	"github.com/stretchr/testify/require"
)

// TestPrefetchReportsFetchedParts: the prefetch of a file whose first segment alone is in the cache
// reports "fetched". The next prefetch reports "cached".
func TestPrefetchReportsFetchedParts(t *testing.T) {
	o := &oneFile{bytes: bytes.Repeat([]byte("0123456789abcdef"), cache.SegmentSize/10)}
	id := fileID(t, o.bytes, nil)
	kept := newCache(t, cache.Options{Memory: 64 << 20})
	a := NewResolver(Options{Protocol: o, Cache: kept, Sources: anyHost()})
	stored := func(segments int) {
		t.Helper()
		eventually.True(t, func() bool { return kept.Stats().Fills == 0 })
		require.Equal(t, segments, kept.Stats().Memory.Entries)
	}
	r := &Request{ID: id, Now: time.Now(), Client: patient{}}
	_, err := a.Find(r, local.ErrNoGroup)
	require.NoError(t, err)
	_, err = r.File.Open(0, 5)
	require.NoError(t, err)
	stored(1)
	r.File.Close()
	for _, want := range []string{"fetched", "cached"} {
		size, where, err := a.Prefetch(t.Context(), id, local.ErrNoGroup, time.Now())
		require.NoError(t, err)
		require.EqualValues(t, len(o.bytes), size)
		require.Equal(t, want, where)
		stored(2)
	}
}
