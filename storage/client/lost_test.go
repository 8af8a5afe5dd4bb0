package client

import (
	"context"
	"testing"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/tests/fdfstest"

	"github.com/stretchr/testify/require"
)

// TestLostConnectionsOfBothPools: the idle connections to a storage are lost without a notice. A
// download waits for a timeout to detect that; a short request after it does not wait again.
func TestLostConnectionsOfBothPools(t *testing.T) {
	t.Parallel()
	const connectTimeout = 3 * time.Second
	cluster, err := fdfstest.Start(fdfstest.Options{})
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	content := []byte("some content")
	id, err := cluster.Put(fdfstest.FileSpec{Storage: cluster.Storage(0), Content: content, Ext: "bin"})
	require.NoError(t, err)
	addr := cluster.Storage(0).AddrPort()
	tcp := newTCPTransport(Server{Host: addr.Addr().String(), Port: int(addr.Port())},
		fdfs.PoolOptions{ConnectTimeout: connectTimeout, NetworkTimeout: 5 * time.Minute})
	t.Cleanup(tcp.Close)
	r := FetchRequest{ID: id}
	stat := func(within time.Duration) {
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		_, err := tcp.Stat(ctx, r)
		require.NoError(t, err)
	}
	download := func() {
		body, err := tcp.Open(t.Context(), r, Part{Length: int64(len(content))})
		require.NoError(t, err)
		_, err = body.Read(make([]byte, len(content)))
		require.NoError(t, err)
		require.NoError(t, body.Close())
	}
	stat(time.Minute)
	download()
	require.NoError(t, cluster.Storage(0).Lose())
	download()
	stat(connectTimeout - 500*time.Millisecond)
}
