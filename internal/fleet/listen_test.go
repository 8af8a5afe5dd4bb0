package fleet

import (
	"bytes"
	"context"
	"net"
	"sync/atomic"
	"syscall"
	"testing"

	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/internal/testing/redistest"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// firstFails is a connection on which the first subscription of a client cannot be sent.
type firstFails struct {
	net.Conn
	failed *atomic.Bool // of the client
}

func (c firstFails) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte("subscribe")) && c.failed.CompareAndSwap(false, true) {
		return 0, syscall.ECONNRESET
	}
	return c.Conn.Write(p)
}

// TestSubscriptionNotSent: a gateway whose first subscription could not be sent subscribes again,
// so it receives the notifications of purges.
func TestSubscriptionNotSent(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	f := member(t, fleetOf(server.Addr()), 1)
	require.NoError(t, f.rdb.Close())
	failed := new(atomic.Bool)
	f.rdb = redis.NewClient(&redis.Options{Addr: server.Addr(),
		Dialer: func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, network, address)
			return firstFails{c, failed}, err
		}})
	start(t, f, (&memory{}).local())
	client, channel := server.Client(), f.key("purged")
	eventually.True(t, func() bool { return client.PubSubNumSub(t.Context(), channel).Val()[channel] == 1 })
	require.True(t, failed.Load())
}
