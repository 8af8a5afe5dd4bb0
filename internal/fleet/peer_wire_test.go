package fleet

import (
	"fastdfs-gateway/internal/cache"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A request or a version is read as it was written, and nothing else is accepted.
func FuzzEntryRequest(f *testing.F) {
	for _, r := range []cache.PeerRequest{
		{Key: testKey}, {Key: testKey, Want: &testVersion, Offset: 5},
		{Key: cache.SegmentKey{File: "a b&c", Index: 7}, Copy: true},
		{Key: cache.SegmentKey{File: "f", Index: cache.Facts}, MaxAge: time.Second},
	} {
		request := entryRequest{r, 77}
		f.Add(request.uri())
	}
	f.Add(entryPath + "?file=f&index=9223372036854775808&offset=0&maxage=0&copy=0&purge=0")
	f.Add(entryPath + "?file=f&index=0&offset=-1&maxage=0&copy=0&purge=0")
	f.Add(entryPath + "?file=f&index=-2&offset=0&maxage=-1&copy=2&purge=9007199254740992")
	f.Fuzz(func(t *testing.T, uri string) {
		r, err := parseEntryRequest(uri)
		if err == nil {
			require.Equal(t, uri, r.uri())
			require.True(t, r.Key.Index >= cache.Facts && r.Offset >= 0 && r.Offset <= cache.SegmentSize &&
				r.MaxAge >= 0 && r.Purge >= 0)
			require.True(t, r.Want == nil || r.Want.Size >= 0)
			return
		}
		require.ErrorIs(t, err, errRequest)
		if v, err := parseVersion(uri); err == nil {
			require.Equal(t, uri, formatVersion(v))
		}
		if d, ok := parseMillis(uri); ok {
			require.True(t, d >= 0 && d <= maxAge)
		}
	})
}
