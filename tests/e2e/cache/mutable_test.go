package cache

import (
	"io"
	"net/http"
	"testing"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/fdfstest"

	"github.com/stretchr/testify/require"
)

// TestMutableThroughTheCache: an appender that grows and a slave that is replaced are stale for
// mutable_ttl at most, at every gateway of a fleet. As long as they stay as they are, they are
// asked for and not downloaded again.
func TestMutableThroughTheCache(t *testing.T) {
	t.Parallel()
	f := e2e.StartFleet(t, e2e.FleetOptions{Gateways: 2, Storages: 1, Mutable: "1s"})
	c := f.PutChanging()
	master, _ := f.Put(10)
	slave := &e2e.Changing{Content: e2e.RandomContent(700)}
	slave.ID = e2e.Put(t, f.Cluster, fdfstest.FileSpec{Master: master, Kind: fdfs.KindSlave, Prefix: "_150x150",
		Content: slave.Content, Modified: e2e.LongAgo})
	for _, c := range []*e2e.Changing{c, slave} {
		f.Warm(c.ID, c.Content)
		downloads := f.Cluster.Downloads(c.ID).Downloads
		for range 2 {
			asked := f.Questions()
			time.Sleep(1100 * time.Millisecond)
			began := time.Now()
			e2e.RequireWhole(t, f.Stampede(20, c.ID, c.Content))
			require.Greater(t, f.Questions(), asked, "it is asked for")
			expired := 1 + int(time.Since(began)/time.Second) // on a slow machine also during the requests
			require.LessOrEqual(t, f.Questions(), asked+10*expired, "and not by each request")
		}
		require.Equal(t, downloads, f.Cluster.Downloads(c.ID).Downloads, "unchanged content is not downloaded again")
		f.Change(c)
		time.Sleep(1100 * time.Millisecond)
		e2e.RequireWhole(t, f.Stampede(20, c.ID, c.Content))
	}
}

// TestMutableStorageDead: when the version cannot be asked for, what is known is served.
func TestMutableStorageDead(t *testing.T) {
	t.Parallel()
	f := e2e.StartFleet(t, e2e.FleetOptions{Gateways: 1, Storages: 1, Mutable: "1s", NoRedis: true})
	c := f.PutChanging()
	f.Warm(c.ID, c.Content)
	f.Cluster.Storage(0).Kill()
	time.Sleep(1100 * time.Millisecond)
	e2e.RequireWhole(t, f.Stampede(5, c.ID, c.Content))
}

// TestVersionsAreNotMixed: an appender changes between the question for its version and the
// download of its second segment. The response, which began with the old one, is cut; the next one
// is the new one.
func TestVersionsAreNotMixed(t *testing.T) {
	t.Parallel()
	f := e2e.StartFleet(t, e2e.FleetOptions{Gateways: 1, Storages: 1, NoRedis: true})
	m, content := f.Gateways[0], e2e.RandomContent(e2e.Segment+2<<20)
	id := e2e.Put(t, f.Cluster, fdfstest.FileSpec{Group: "group1", Content: content, Kind: fdfs.KindAppender,
		Created: e2e.LongAgo})
	first := m.Get(e2e.Path(id), "Range: bytes=0-99")
	require.Equal(t, content[:100], first.Body)
	f.Settled()
	storage := f.Cluster.Storage(0)
	downloads := storage.Counts().Requests[fdfstest.CmdDownload]
	f.Fault(fdfstest.Faults{Commands: []byte{fdfstest.CmdDownload}, Hang: true})
	done := make(chan error, 1)
	go func() {
		resp, err := http.Get("http://" + m.Addrs[0] + e2e.Path(id))
		if err == nil {
			_, err = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
		done <- err
	}()
	eventually.True(t, func() bool { return storage.Counts().Requests[fdfstest.CmdDownload] > downloads })
	changed := e2e.RandomContent(len(content) + 1) // other bytes, and longer
	require.NoError(t, f.Cluster.Change(id, changed, time.Now()))
	f.Fault()
	require.Error(t, <-done, "the response began with the old version")
	require.Equal(t, changed, m.Get(e2e.Path(id)).Body)
}
