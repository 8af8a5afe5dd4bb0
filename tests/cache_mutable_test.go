package tests

import (
	"io"
	"net/http"
	"testing"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/tests/fdfstest"

	"github.com/stretchr/testify/require"
)

// TestMutableThroughTheCache: an appender that grows and a slave that is replaced are stale for
// mutable_ttl at most, at every gateway of a fleet. As long as they stay as they are, they are
// asked for and not downloaded again.
func TestMutableThroughTheCache(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleetOptions{gateways: 2, storages: 1, mutable: "1s"})
	c := f.putChanging()
	master, _ := f.put(10)
	slave := &changing{content: randomContent(700)}
	slave.id = put(t, f.cluster, fdfstest.FileSpec{Master: master, Kind: fdfs.KindSlave, Prefix: "_150x150",
		Content: slave.content, Modified: longAgo})
	for _, c := range []*changing{c, slave} {
		f.warm(c.id, c.content)
		downloads := f.cluster.Downloads(c.id).Downloads
		for range 3 {
			asked := f.questions()
			time.Sleep(1100 * time.Millisecond)
			requireWhole(t, f.crowd(20, c.id, c.content))
			require.Greater(t, f.questions(), asked, "it is asked for")
			require.LessOrEqual(t, f.questions(), asked+10, "and not by each request")
		}
		require.Equal(t, downloads, f.cluster.Downloads(c.id).Downloads, "unchanged content is not downloaded again")
		f.change(c)
		time.Sleep(1100 * time.Millisecond)
		requireWhole(t, f.crowd(20, c.id, c.content))
	}
}

// TestMutableStorageDead: when the version cannot be asked for, what is known is served.
func TestMutableStorageDead(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleetOptions{gateways: 1, storages: 1, mutable: "1s", noRedis: true})
	c := f.putChanging()
	f.warm(c.id, c.content)
	f.cluster.Storage(0).Kill()
	time.Sleep(1100 * time.Millisecond)
	requireWhole(t, f.crowd(5, c.id, c.content))
}

// TestVersionsAreNotMixed: an appender changes between the question for its version and the
// download of its second segment. The answer, which began with the old one, is cut; the next one is
// the new one.
func TestVersionsAreNotMixed(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleetOptions{gateways: 1, storages: 1, noRedis: true})
	m, content := f.gateways[0], randomContent(segment+2<<20)
	id := put(t, f.cluster, fdfstest.FileSpec{Group: "group1", Content: content, Kind: fdfs.KindAppender,
		Created: longAgo})
	first := m.get(url(id), "Range: bytes=0-99")
	require.Equal(t, content[:100], first.body)
	f.settled()
	storage := f.cluster.Storage(0)
	downloads := storage.Counts().Requests[fdfstest.CmdDownload]
	f.fault(fdfstest.Faults{Commands: []byte{fdfstest.CmdDownload}, Delay: time.Second})
	done := make(chan error)
	go func() {
		resp, err := http.Get("http://" + m.addrs[0] + url(id))
		if err == nil {
			_, err = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
		done <- err
	}()
	eventually.True(t, func() bool { return storage.Counts().Requests[fdfstest.CmdDownload] > downloads })
	changed := randomContent(len(content) + 1) // other bytes, and longer
	require.NoError(t, f.cluster.Change(id, changed, time.Now()))
	require.Error(t, <-done, "the answer began with the old version")
	f.fault()
	require.Equal(t, changed, m.get(url(id)).body)
}
