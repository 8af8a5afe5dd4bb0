package fleet

import (
	"net"
	"testing"

	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/lab"

	"github.com/stretchr/testify/require"
)

// TestCacheStartsWithoutRedis: a gateway starts and serves while Redis does not run.
func TestCacheStartsWithoutRedis(t *testing.T) {
	t.Parallel()
	f := e2e.StartFleet(t, e2e.FleetOptions{Gateways: 1, Storages: 1})
	f.Redis.Kill()
	m := f.Gateways[0]
	m.Stop()
	m.Start(t)
	id, content := f.Put(10 << 10)
	e2e.RequireWhole(t, f.Stampede(20, id, content))
	require.Equal(t, 1, f.Cluster.Downloads(id).Downloads)
}

// TestPeerListenerThatCannotBeBound: a gateway that cannot bind the address of listen in [peer]
// does not start, and its error names the key.
func TestPeerListenerThatCannotBeBound(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	o := lab.GatewayOptions{Binary: e2e.Binary, Dir: t.TempDir(), Redis: "127.0.0.1:1",
		Peers: taken.Addr().(*net.TCPAddr).Port}
	_, err = lab.StartGateway(o)
	require.ErrorContains(t, err, "address already in use; see listen in [peer]")
}
