package origin

import (
	"hash/crc32"
	"net/netip"
	"testing"
	"time"

	"fastdfs-gateway/internal/cache"
	"fastdfs-gateway/internal/fdfs"

	"github.com/stretchr/testify/require"
)

// lostStore is a Store that has lost its files.
type lostStore struct{}

func (lostStore) Path(fdfs.FileID) (string, error)           { return "", nil }
func (lostStore) Deleted(fdfs.FileID, error, time.Time) bool { return false }

// TestOnePath: requests, prefetches and explanations decide alike. The cache keeps nothing of a
// young file of this host, and metadata of a file of another one once a request has asked.
func TestOnePath(t *testing.T) {
	c, err := cache.New(cache.Options{Memory: 64 << 20})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	here := netip.MustParseAddr("10.0.0.1")
	a := NewResolver(Options{Protocol: &oneFile{bytes: []byte("hello")}, Cache: c, Store: lostStore{},
		TryReplicas: true, SyncDelay: func() time.Duration { return time.Hour },
		Sources: NewSources(SourcesOptions{LocalIPs: []netip.Addr{here}, HasStore: func(string) bool { return true },
			Members: members(t, "100001 group1 10.0.0.1", "100002 group1 10.0.0.2")})})
	for source, kept := range map[string]bool{"10.0.0.1": false, "10.0.0.2": true} {
		id, err := fdfs.Encode(fdfs.Fields{Group: "group1", Source: fdfs.Source(netip.MustParseAddr(source).As4()),
			Created: time.Now().Unix() - 60, Size: 5, CRC32: crc32.ChecksumIEEE([]byte("hello")), Ext: "txt"})
		require.NoError(t, err)
		var steps []string
		explain := func() (Outcome, []string) {
			steps = nil
			out := a.Explain(t.Context(), &Request{ID: id, Now: time.Now()}, fdfs.ErrNoFile,
				func(name, _ string, _ ...any) { steps = append(steps, name) })
			return out, steps
		}
		out, steps := explain()
		require.NoError(t, out.Err)
		require.Contains(t, out.Text, "fetched from 10.0.0.2:23000")
		want := []string{"replication", "source", "decision", "host"}
		if kept {
			want = []string{"replication", "cache", "source", "decision", "host"}
		}
		require.Equal(t, want, steps)
		_, _, ok := c.Meta(id.String())
		require.False(t, ok, "an explanation keeps nothing")

		r := &Request{ID: id, Now: time.Now(), Client: patient{}}
		_, err = a.Find(r, fdfs.ErrNoFile)
		require.NoError(t, err)
		require.Equal(t, kept, r.File.isCached())
		r.File.Close()
		size, where, err := a.Prefetch(t.Context(), id, fdfs.ErrNoFile, time.Now())
		if !kept {
			require.ErrorIs(t, err, ErrNotCached)
			continue
		}
		require.NoError(t, err)
		require.EqualValues(t, 5, size)
		require.Equal(t, "fetched", where)
		out, _ = explain()
		require.Contains(t, out.Text, "by what the cache knows")
	}
	require.Zero(t, a.o.Running.Load())
}
