package origin

import (
	"context"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"fastdfs-gateway/internal/cache"
	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/storage/client"
	"fastdfs-gateway/storage/local"

	"github.com/stretchr/testify/require"
)

// lostStore is a Store without files.
type lostStore struct{}

func (lostStore) Path(fdfs.FileID) (string, error)           { return "", nil }
func (lostStore) Deleted(fdfs.FileID, error, time.Time) bool { return false }

// TestOnePath: requests, prefetches and explanations make the same decisions. The cache stores
// nothing of a young file of this host. It stores metadata of a file of another host after a
// request for it.
func TestOnePath(t *testing.T) {
	c := newCache(t, cache.Options{Memory: 64 << 20})
	here := netip.MustParseAddr("10.0.0.1")
	a := NewResolver(Options{Protocol: &oneFile{bytes: []byte("hello")}, Cache: c, Store: lostStore{},
		TryReplicas: true, SyncDelay: func() time.Duration { return time.Hour },
		Sources: NewSources(SourcesOptions{LocalIPs: []netip.Addr{here}, HasStore: func(string) bool { return true },
			Members: members(t, "100001 group1 10.0.0.1", "100002 group1 10.0.0.2")})})
	for source, kept := range map[string]bool{"10.0.0.1": false, "10.0.0.2": true} {
		id := fileID(t, []byte("hello"), func(f *fdfs.Fields) {
			f.Source, f.Created = netip.MustParseAddr(source).As4(), time.Now().Unix()-60
		})
		var steps []string
		explain := func() (Outcome, []string) {
			steps = nil
			out := a.Explain(t.Context(), &Request{ID: id, Now: time.Now()}, fdfs.ErrNoFile,
				func(name, _ string, _ ...any) { steps = append(steps, name) })
			return out, steps
		}
		out, steps := explain()
		require.NoError(t, out.Err)
		require.Contains(t, out.Text.String(), "fetched from 10.0.0.2:23000")
		want := []string{"replication", "source", "decision", "host"}
		if kept {
			want = []string{"replication", "cache", "source", "decision", "host"}
		}
		require.Equal(t, want, steps)
		_, _, ok := c.Meta(id.String())
		require.False(t, ok, "an explanation keeps nothing")

		r := &Request{ID: id, Now: time.Now(), Client: patient{}}
		_, err := a.Find(r, fdfs.ErrNoFile)
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
		require.Contains(t, out.Text.String(), "by what the cache knows")
	}
	require.Zero(t, a.o.Running.Load())
}

// countingFile is a oneFile that counts the requests for metadata.
type countingFile struct {
	oneFile
	stats atomic.Int64
}

func (o *countingFile) Stat(ctx context.Context, w client.FetchRequest, s []client.Server) (client.Part, error) {
	o.stats.Add(1)
	return o.oneFile.Stat(ctx, w, s)
}

// TestExpiredWithoutAPlace: while too many requests wait for other hosts, expired metadata is used,
// and revalidated in the background, within stale_while_revalidate and stale_if_error.
func TestExpiredWithoutAPlace(t *testing.T) {
	content := []byte("hello")
	appender := func(f *fdfs.Fields) { f.Kind, f.Size = fdfs.KindAppender, 0 }
	for name, change := range map[string]func(f *fdfs.Fields){"file": nil, "appender": appender} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCache(t, cache.Options{Memory: 64 << 20, TTL: time.Hour, MutableTTL: time.Hour,
					StaleWhileRevalidate: time.Hour, StaleIfError: 24 * time.Hour})
				protocol := &countingFile{oneFile: oneFile{bytes: content}}
				a := NewResolver(Options{Protocol: protocol, Cache: c, Sources: anyHost()})
				id := fileID(t, content, change)
				find := func(full bool) (stale bool, err error) {
					r := &Request{ID: id, Now: time.Now(), Client: &counting{full: full}}
					_, err = a.Find(r, local.ErrNoGroup)
					stale = r.File.Stale()
					r.File.Close()
					synctest.Wait()
					return stale, err
				}
				_, err := find(true)
				require.ErrorIs(t, err, ErrTooManyWaiting, "nothing is known")
				_, err = find(false)
				require.NoError(t, err)
				for _, age := range []time.Duration{90 * time.Minute, 20 * time.Hour} {
					time.Sleep(age)
					before := protocol.stats.Load()
					stale, err := find(true)
					require.NoError(t, err, age)
					require.True(t, stale)
					require.Equal(t, before+1, protocol.stats.Load())
					stale, err = find(true)
					require.NoError(t, err, age)
					require.False(t, stale, "it was asked for in the background")
				}
				time.Sleep(26 * time.Hour)
				_, err = find(true)
				require.ErrorIs(t, err, ErrTooManyWaiting, "after stale_if_error")
				require.Zero(t, a.o.Running.Load())
			})
		})
	}
}
