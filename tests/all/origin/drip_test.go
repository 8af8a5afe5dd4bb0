package origin

import (
	"bytes"
	"io"
	"testing"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/fdfstest"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
)

// TestDrippingStorage: while 70 files of a storage arrive at 10 bytes a second, uncached files of
// another storage are served, in the default configuration.
func TestDrippingStorage(t *testing.T) {
	t.Parallel()
	const files = 70
	c := e2e.NewCluster(t, fdfstest.Options{})
	content := storetest.New(t).Bytes(8 << 20)
	for _, s := range []int{0, 1} { // no storage of the group is faster
		c.Storage(s).SetFaults(fdfstest.Faults{Commands: []byte{fdfstest.CmdDownload}, Rate: 10})
	}
	p := e2e.ServeConfig(t, e2e.WriteConfig(t, e2e.EdgeConfig(c)))
	var dripping []fdfs.FileID
	for i := range files {
		slow := e2e.Put(t, c, fdfstest.FileSpec{Storage: c.Storage(0), Content: content[:4<<20], Ext: "mp4",
			Created: e2e.LongAgo})
		_, err := io.WriteString(p.Dial(), "GET "+e2e.Path(slow)+" HTTP/1.1\r\nHost: gw.test\r\n\r\n")
		require.NoError(t, err, "client %d", i)
		dripping = append(dripping, slow)
	}
	for _, id := range dripping { // the size is known, and the request has memory or waits for it
		eventually.True(t, func() bool { return c.Downloads(id).Bytes > 0 })
	}
	for range 5 {
		id := e2e.Put(t, c, fdfstest.FileSpec{Storage: c.Storage(2), Content: content, Ext: "mp4",
			Created: e2e.LongAgo})
		resp := p.Get(e2e.Path(id))
		require.Equal(t, 200, resp.StatusCode)
		require.True(t, bytes.Equal(content, resp.Body))
	}
}
