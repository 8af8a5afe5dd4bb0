package origin

import (
	"context"
	"net/netip"
	"testing"
	"time"

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
// also if other storages fail or send nothing. A storage that has it sends it. Other files may be on
// the storages that cannot be asked.
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
