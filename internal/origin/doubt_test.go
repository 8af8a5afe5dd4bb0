package origin

import (
	"bytes"
	"context"
	"net/netip"
	"testing"
	"time"

	"fastdfs-gateway/internal/cache"
	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/storage/client"
	"fastdfs-gateway/storage/local"
	"fastdfs-gateway/tests/fdfstest"
	"fastdfs-gateway/tracker"

	"github.com/stretchr/testify/require"
)

// rig is a resolver in front of a cluster with two storages in group1 and one in group2.
type rig struct {
	*fdfstest.Cluster
	trackers *tracker.Client
	a        *Resolver
}

func newRig(t *testing.T, prepare func(*fdfstest.Cluster), change func(*SourcesOptions, *Options)) *rig {
	cluster, err := fdfstest.Start(fdfstest.Options{})
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	prepare(cluster)
	trackers := tracker.New(tracker.Options{Trackers: [][]string{cluster.Trackers()}, Timeout: testTimeout})
	t.Cleanup(trackers.Close)
	<-trackers.Loaded()
	storages := client.New(client.Options{})
	t.Cleanup(storages.Close)
	s := SourcesOptions{Members: trackers.Members(), Trackers: true}
	o := Options{Protocol: Storages{Client: storages}, TryReplicas: true, StatTimeout: testTimeout,
		SyncDelay: func() time.Duration { return time.Hour }}
	change(&s, &o)
	o.Sources = NewSources(s)
	return &rig{cluster, trackers, NewResolver(o)}
}

func (r *rig) find(id fdfs.FileID, localErr error) error {
	q := &Request{ID: id, Now: time.Now(), Client: patient{}}
	_, err := r.a.Find(q, localErr)
	q.File.Close()
	return err
}

// deletingStore is a sound Store without files.
type deletingStore struct{ lostStore }

func (deletingStore) Deleted(fdfs.FileID, error, time.Time) bool { return true }

// TestYoungSlaveThatItsSourceLacks: a young slave file that its source does not have is missing,
// also if other storages fail or send nothing. A storage that has it sends it. Other files may be
// on the storages that cannot be asked.
func TestYoungSlaveThatItsSourceLacks(t *testing.T) {
	t.Parallel()
	nothing := func(*fdfstest.Cluster) {}
	kill := func(n int) func(*fdfstest.Cluster) { return func(c *fdfstest.Cluster) { c.Storage(n).Kill() } }
	hang := func(c *fdfstest.Cluster) { c.Storage(1).SetFaults(fdfstest.Faults{Hang: true}) }
	young, old := time.Now().Add(-time.Minute), time.Now().Add(-2*time.Hour)
	for name, tt := range map[string]struct {
		fail    func(*fdfstest.Cluster)
		created time.Time
		slave   bool
		isHere  bool // the source is this host
		has     bool // the replica has the file
		want    error
	}{
		"replica dead":                   {kill(1), young, true, false, false, ErrNotYet},
		"replica hangs":                  {hang, young, true, false, false, ErrNotYet},
		"replica dead, the source is us": {kill(1), young, true, true, false, ErrNotYet},
		"replica hangs, source is us":    {hang, young, true, true, false, ErrNotYet},
		"replica has it":                 {nothing, young, true, false, true, nil},
		"replica has it, source is us":   {nothing, young, true, true, true, nil},
		"source dead":                    {kill(0), young, true, false, false, ErrUnreachable},
		"old slave":                      {kill(1), old, true, false, false, ErrUnreachable},
		"normal file":                    {kill(1), young, false, false, false, ErrUnreachable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			localErr := local.ErrNoGroup
			r := newRig(t, tt.fail, func(s *SourcesOptions, o *Options) {
				if tt.isHere {
					localErr = fdfs.ErrNoFile
					s.HasStore, o.Store = func(string) bool { return true }, deletingStore{}
				}
			})
			source := r.Storage(0).AddrPort().Addr()
			if tt.isHere {
				r.a.o.Sources.o.LocalIPs = []netip.Addr{source}
			}
			id := fileID(t, []byte("hello"), func(f *fdfs.Fields) {
				f.Source, f.Created = source.As4(), tt.created.Unix()
			})
			if tt.slave {
				var err error
				id, err = fdfs.EncodeSlave(id, "_small", "jpg")
				require.NoError(t, err)
			}
			if tt.has {
				_, err := r.Put(fdfstest.FileSpec{ID: id.String(), Content: []byte("hello"),
					On: []*fdfstest.Storage{r.Storage(1)}})
				require.NoError(t, err)
			}
			require.ErrorIs(t, r.find(id, localErr), tt.want)
			q, step := &Request{ID: id, Now: time.Now()}, func(string, string, ...any) {}
			out := r.a.Explain(context.Background(), q, localErr, step)
			require.Equal(t, tt.want == nil, out.Err == nil)
			require.Equal(t, tt.want == ErrUnreachable, out.Err == ErrUnreachable)
		})
	}
}

// TestYoungSlaveIsAskedOnceASecond: the storages are asked for a young slave file of this host that
// none of them has once a second, and not at each request. A file that arrives is found.
func TestYoungSlaveIsAskedOnceASecond(t *testing.T) {
	t.Parallel()
	c := newCache(t, cache.Options{Memory: 64 << 20})
	r := newRig(t, func(*fdfstest.Cluster) {}, func(s *SourcesOptions, o *Options) {
		s.HasStore, o.Store, o.Cache = func(string) bool { return true }, deletingStore{}, c
	})
	source, replica := r.Storage(0).AddrPort().Addr(), r.Storage(1)
	r.a.o.Sources.o.LocalIPs = []netip.Addr{source}
	id, err := fdfs.EncodeSlave(fileID(t, []byte("hello"), func(f *fdfs.Fields) {
		f.Source, f.Created = source.As4(), time.Now().Add(-time.Minute).Unix()
	}), "_small", "jpg")
	require.NoError(t, err)
	begin := time.Now()
	for range 500 {
		require.ErrorIs(t, r.find(id, fdfs.ErrNoFile), ErrNotYet)
	}
	asked := replica.Counts().Total()
	require.LessOrEqual(t, time.Duration(asked-1)*900*time.Millisecond, time.Since(begin), "%d requests", asked)
	eventually.True(t, func() bool {
		require.ErrorIs(t, r.find(id, fdfs.ErrNoFile), ErrNotYet)
		return replica.Counts().Total() > asked
	}, "it is asked again")

	_, err = r.Put(fdfstest.FileSpec{ID: id.String(), Content: []byte("hello"), On: []*fdfstest.Storage{replica}})
	require.NoError(t, err)
	eventually.True(t, func() bool { return r.find(id, fdfs.ErrNoFile) == nil }, "it has arrived")
}

// TestMissingPartOfADownSource: if the cache has only the first bytes of the range, and all
// storages are down, the request fails before the first byte of its response. It does not if the
// storages run, or if the range is here.
func TestMissingPartOfADownSource(t *testing.T) {
	t.Parallel()
	data := bytes.Repeat([]byte("0123456789abcdef"), cache.SegmentSize/8) // two segments
	for name, tt := range map[string]struct {
		ttl   time.Duration // negative: none
		known bool          // a request to the storages has failed before
		down  bool
		want  error
	}{
		"expired":        {-1, false, true, ErrUnreachable},
		"known":          {time.Hour, true, true, ErrUnreachable},
		"expired and up": {-1, false, false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCache(t, cache.Options{Memory: 64 << 20, TTL: tt.ttl})
			r := newRig(t, func(*fdfstest.Cluster) {}, func(_ *SourcesOptions, o *Options) { o.Cache = c })
			id, err := r.Put(fdfstest.FileSpec{Storage: r.Storage(0), Content: data, Ext: "bin"})
			require.NoError(t, err)
			open := func(offset, length int64, confirm bool) error {
				q := &Request{ID: id, Now: time.Now(), Client: patient{}}
				_, err := r.a.Find(q, local.ErrNoGroup)
				require.NoError(t, err)
				defer q.File.Close()
				if _, err = q.File.Open(offset, length); err == nil && confirm {
					err = q.File.Confirm(cache.SegmentSize, 100)
				}
				return err
			}
			require.NoError(t, open(0, cache.SegmentSize, false))
			eventually.True(t, func() bool { return c.Stats().Fills == 0 })
			if tt.down {
				r.Storage(0).Kill()
				r.Storage(1).Kill()
			}
			if tt.known {
				require.Error(t, r.find(fileID(t, data, func(f *fdfs.Fields) {
					f.Source = r.Storage(0).AddrPort().Addr().As4()
				}), local.ErrNoGroup))
			}
			require.ErrorIs(t, open(0, int64(len(data)), false), tt.want)
			require.NoError(t, open(0, 100, false))
			require.ErrorIs(t, open(0, 100, true), tt.want)
		})
	}
}

// TestPartialListsAreNoDenial: while the lists of the trackers may not be complete, a file of an
// unknown group may exist, and so may one with an unknown source that the known storages do not
// have.
func TestPartialListsAreNoDenial(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *fdfstest.Cluster) {
		c.Tracker(0).Kill()
		c.Storage(1).SetListed(false)
	}, func(*SourcesOptions, *Options) {})
	require.NoError(t, r.Tracker(0).Revive())
	eventually.True(t, r.trackers.Members().Known)
	find := func(group string, source netip.Addr) error {
		return r.find(fileID(t, []byte("hello"), func(f *fdfs.Fields) { f.Group, f.Source = group, source.As4() }),
			local.ErrNoGroup)
	}
	listed, unlisted := r.Storage(0).AddrPort().Addr(), r.Storage(1).AddrPort().Addr()
	require.ErrorIs(t, find("group9", unlisted), ErrNoLists)
	require.ErrorIs(t, find("group1", unlisted), ErrNoLists)
	require.ErrorIs(t, find("group1", listed), ErrNotFound)
}
