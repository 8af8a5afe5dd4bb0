package origin

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/fdfstest"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
)

// besideStorage starts a gateway with a cache on the host of a storage, with the store and the
// trackers of the storage.
func besideStorage(t *testing.T, s *storetest.Store, c *fdfstest.Cluster, lines ...string) *e2e.Process {
	t.Helper()
	lines = append([]string{"storage_sync_file_max_delay = 3600", "tracker_server = " + c.Trackers()[0]}, lines...)
	return e2e.ServeConfig(t, e2e.WriteConfig(t, s.Config(e2e.WithListen(lines)...)))
}

// TestDeletedAtItsSource: a hot file that was deleted at its source, this host, is 404 soon, though
// replicas still have the file.
func TestDeletedAtItsSource(t *testing.T) {
	t.Parallel()
	c, s := e2e.NewCluster(t, fdfstest.Options{}), storetest.New(t)
	normal, packed, young := s.Normal("jpg", s.Bytes(3000)), s.Trunk("jpg", s.Bytes(3000)), s.Future("jpg")
	young.Created, young.Size, young.CRC32 = time.Now().Unix(), 5, 0x3610a686
	fresh := s.Put(young, []byte("hello"))
	for _, o := range []storetest.Object{normal, packed, fresh} {
		e2e.Put(t, c, fdfstest.FileSpec{ID: o.ID.String(), Content: o.Content})
	}
	p := besideStorage(t, s, c, "[gateway]", "local_ips = 127.0.0.1", "x_cache = true")
	for _, o := range []storetest.Object{normal, packed, fresh} {
		for range 5 {
			require.Equal(t, o.Content, p.Get(o.URL()).Body)
		}
	}
	require.NoError(t, os.Remove(normal.Path))
	p.RequireGoneSoon(normal.URL())
	s.Free(packed)
	p.RequireGoneSoon(packed.URL())
	require.Zero(t, c.Downloads(normal.ID).Downloads+c.Downloads(packed.ID).Downloads, "no replica counts")

	require.NoError(t, os.Remove(fresh.Path))
	p.RequireGoneSoon(fresh.URL())
	require.Zero(t, c.Downloads(fresh.ID).Downloads, "it was here before it was elsewhere")
	_, text := p.AdminGet("/explain?url=" + fresh.ID.String())
	require.Contains(t, text, "the source is this host, which has deleted it")
	require.NotContains(t, text, "may still bring")
}

// TestYoungSlaveOfAFileOfThisHost: a slave file that is not on this host is fetched from another
// storage of the group, though its id has the source of its master, this host: the slave may have
// been uploaded to that storage, and not be here yet.
func TestYoungSlaveOfAFileOfThisHost(t *testing.T) {
	t.Parallel()
	c, s := e2e.NewCluster(t, fdfstest.Options{}), storetest.New(t)
	f := s.Future("jpg")
	f.Created, f.Size, f.CRC32 = time.Now().Unix(), 5, 0x3610a686
	master := s.Put(f, []byte("hello"))
	id, err := fdfs.EncodeSlave(master.ID, "_small", "jpg")
	require.NoError(t, err)
	e2e.Put(t, c, fdfstest.FileSpec{ID: id.String(), Content: []byte("small"), Modified: time.Now()})
	p := besideStorage(t, s, c, "[gateway]", "local_ips = 127.0.0.1")
	require.Equal(t, "small", string(p.Get(e2e.Path(id)).Body))
}

// TestLostAtItsSource: a file that its source has lost or corrupted, but not deleted, comes from a
// replica.
func TestLostAtItsSource(t *testing.T) {
	t.Parallel()
	c, s := e2e.NewCluster(t, fdfstest.Options{}), storetest.New(t)
	cut, lost := s.Normal("jpg", s.Bytes(3000)), s.Normal("jpg", s.Bytes(3000))
	for _, o := range []storetest.Object{cut, lost} {
		e2e.Put(t, c, fdfstest.FileSpec{ID: o.ID.String(), Content: o.Content})
	}
	require.NoError(t, os.Truncate(cut.Path, 100))
	p := besideStorage(t, s, c, "[gateway]", "local_ips = 127.0.0.1")
	require.Equal(t, cut.Content, p.Get(cut.URL()).Body)
	require.NoError(t, os.Remove(lost.Path))
	require.NoError(t, os.WriteFile(filepath.Join(s.Root(storetest.Group, 0), "data", ".recovery.mark"), nil, 0o600))
	eventually.True(t, func() bool { return bytes.Equal(lost.Content, p.Get(lost.URL()).Body) },
		"FastDFS is bringing the disk back")
}

// TestDeletedAtAReplica: a file that was cached before its replication to this host is 404 soon
// after its deletion.
func TestDeletedAtAReplica(t *testing.T) {
	t.Parallel()
	c, s := e2e.NewCluster(t, fdfstest.Options{}), storetest.New(t)
	files := map[string]fdfs.FileID{}
	for name, created := range map[string]time.Time{"old": e2e.LongAgo, "young": time.Now()} {
		files[name] = e2e.Put(t, c, fdfstest.FileSpec{Storage: c.Storage(0), Content: s.Bytes(3000), Ext: "jpg",
			Created: created})
	}
	p := besideStorage(t, s, c, "[gateway]", "x_cache = true")
	for name, id := range files {
		t.Run(name, func(t *testing.T) {
			p := p.In(t)
			first := p.Get(e2e.Path(id))
			require.Equal(t, 200, first.StatusCode)
			from := func(xCache string) func() bool {
				return func() bool { return p.Get(e2e.Path(id)).Header.Get("X-Cache") == xCache }
			}
			eventually.True(t, from("HIT"), "it is cached")
			path := filepath.Join(s.Root(storetest.Group, 0), "data", id.DiskName())
			require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
			require.NoError(t, os.WriteFile(path, first.Body, 0o644))
			eventually.True(t, from("LOCAL"))
			require.NoError(t, os.Remove(path))
			require.NoError(t, c.Remove(id))
			p.RequireGoneSoon(e2e.Path(id))
		})
	}
}

// TestMissingFileAsksEachStorageOnce: a storage that replies "not found" to a download gets no
// further request for the size of the file.
func TestMissingFileAsksEachStorageOnce(t *testing.T) {
	t.Parallel()
	c := e2e.NewCluster(t, fdfstest.Options{Groups: []fdfstest.GroupSpec{{Name: "group1", Count: 4}}})
	p := e2e.ServeConfig(t, e2e.WriteConfig(t, e2e.EdgeConfig(c)))
	id := e2e.Put(t, c, fdfstest.FileSpec{Group: "group1", Content: e2e.RandomContent(5000), Ext: "bin",
		Created: e2e.LongAgo})
	require.NoError(t, c.Remove(id))
	for range 3 { // the result is cached
		require.Equal(t, 404, p.Get(e2e.Path(id)).StatusCode)
	}
	for _, s := range c.Storages() {
		n := s.Counts().Requests
		require.Equal(t, 1, n[fdfstest.CmdDownload]+n[fdfstest.CmdFileInfo], "storage %s: %v", s.Addr(), n)
	}
}
