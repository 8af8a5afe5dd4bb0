package fdfs_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/tests/fdfstest"

	"github.com/stretchr/testify/require"
)

const (
	connectTimeout = time.Second
	networkTimeout = 5 * time.Minute
	patient        = 20 * time.Second // less than the time for trying all idle connections in turn
	idleConns      = 32
)

// idlePool returns a storage and a pool with idle connections to it.
func idlePool(t *testing.T) (*fdfstest.Storage, *fdfs.Pool) {
	t.Helper()
	c, err := fdfstest.Start(fdfstest.Options{})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	s := c.Storage(0)
	p := fdfs.NewPool(s.Addr(), fdfs.PoolOptions{MaxIdle: idleConns, IdleTimeout: networkTimeout,
		ConnectTimeout: connectTimeout, NetworkTimeout: networkTimeout})
	t.Cleanup(p.Close)
	var conns []*fdfs.Conn
	for range idleConns {
		conn, _, err := p.Request(t.Context(), fdfs.CmdActiveTest, 0, nil)
		require.NoError(t, err)
		conns = append(conns, conn)
	}
	for _, conn := range conns {
		conn.Release()
	}
	return s, p
}

// ask sends a request, and cancels it if it hangs.
func ask(t *testing.T, p *fdfs.Pool) error {
	ctx, cancel := context.WithTimeoutCause(t.Context(), patient, errors.New("the request hangs"))
	defer cancel()
	_, err := p.Call(ctx, fdfs.CmdActiveTest, 0, nil, 0)
	return err
}

// TestPoolHostIsGone: if the host of idle connections disappears without a notice, a request fails
// after the connect timeout, neither after the network timeout nor once for each connection.
func TestPoolHostIsGone(t *testing.T) {
	t.Parallel()
	s, p := idlePool(t)
	require.NoError(t, s.Silence())
	err := ask(t, p)
	require.ErrorContains(t, err, "cannot connect to "+p.Addr())
}

// TestPoolConnectionsAreLost: if a firewall has dropped the idle connections, a request is repeated
// on a new one, and the other idle ones are not tried.
func TestPoolConnectionsAreLost(t *testing.T) {
	t.Parallel()
	s, p := idlePool(t)
	require.NoError(t, s.Lose())
	for range 2 {
		require.NoError(t, ask(t, p))
	}
	require.Equal(t, idleConns+1, s.Counts().Accepted)
}
