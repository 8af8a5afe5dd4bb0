package origin

import (
	"context"
	"io"
	"net"
	"net/http"
	"testing"

	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/fdfstest"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
)

// TestHTTP2ClientLeaves: a client that resets its stream, or closes its connection, ends the
// download of its file from a slow storage. The other responses of the connection go on.
func TestHTTP2ClientLeaves(t *testing.T) {
	t.Parallel()
	c := e2e.NewCluster(t, fdfstest.Options{})
	content := storetest.New(t).Bytes(8 << 20)
	p := e2e.Edge(t, c, "[gateway]", "try_replicas = false").OverHTTP2(t)
	var conn net.Conn
	p.HTTP2.Transport.(*http.Transport).DialContext = func(_ context.Context, network, address string) (c net.Conn,
		err error) {
		conn, err = net.Dial(network, address)
		return conn, err
	}
	ask := func(storage int) (leave func()) {
		id := e2e.Put(t, c, fdfstest.FileSpec{Storage: c.Storage(storage), Content: content, Ext: "mp4",
			Created: e2e.LongAgo})
		c.Storage(storage).SetFaults(fdfstest.Faults{Commands: []byte{fdfstest.CmdDownload}, Rate: 20_000})
		ctx, cancel := context.WithCancel(t.Context())
		t.Cleanup(cancel)
		resp, err := p.HTTP2.Do(p.NewRequest(http.MethodGet, e2e.Path(id), nil).WithContext(ctx))
		require.NoError(t, err)
		t.Cleanup(func() { _ = resp.Body.Close() })
		_, err = io.ReadFull(resp.Body, make([]byte, 1000))
		require.NoError(t, err)
		return cancel
	}
	leave, _ := ask(0), ask(1)
	open := func(storage int) int { return c.Storage(storage).Counts().Open }
	first, second := open(0), open(1)
	leave() // RST_STREAM
	eventually.True(t, func() bool { return open(0) < first }, "the download goes on without its client")
	require.Equal(t, 1.0, p.Metric(`fdfs_gateway_aborted_total{reason="client"}`))
	require.Equal(t, second, open(1))
	require.NoError(t, conn.Close())
	eventually.True(t, func() bool { return open(1) < second }, "the download goes on without its client")
	require.Equal(t, 2.0, p.Metric(`fdfs_gateway_aborted_total{reason="client"}`))
	require.Zero(t, p.Metric("fdfs_gateway_connections"))
}
