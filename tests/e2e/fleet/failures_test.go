package fleet

import (
	"fmt"
	"net"
	"testing"
	"time"

	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/lab"
	"fastdfs-gateway/tests/stampede"

	"github.com/stretchr/testify/require"
)

// failure is something that goes wrong in the middle of a fill. The first gateway leads it.
type failure struct {
	name  string
	begin func(f *e2e.Fleet)
	end   func(f *e2e.Fleet) // after the clients have been asking for a while; nil = nothing
	after time.Duration      // when
	// harmed says whose clients may get an error; nil = no client's.
	harmed func(gateway int) bool
}

// leaseTTL is short, so that a test does not wait long for the lease of a dead gateway.
const leaseTTL = 2 * time.Second

var failures = []failure{
	{name: "redis killed", begin: func(f *e2e.Fleet) { f.Redis.Kill() }, end: func(f *e2e.Fleet) {
		f.Redis.Restart()
	}, after: time.Second},
	{name: "redis stopped", begin: func(f *e2e.Fleet) { f.Redis.Pause() }, end: func(f *e2e.Fleet) {
		f.Redis.Resume()
	}, after: 2 * time.Second},
	{name: "leader killed", begin: func(f *e2e.Fleet) { f.Gateways[0].Kill() }, harmed: isLeader},
	{name: "leader stopped for longer than its lease", begin: func(f *e2e.Fleet) { f.Gateways[0].Pause() },
		end: func(f *e2e.Fleet) { f.Gateways[0].Resume() }, after: 3 * leaseTTL, harmed: isLeader},
	{name: "leader cut off from the others", begin: func(f *e2e.Fleet) { f.Gateways[0].PeerRelay.Cut() },
		end: func(f *e2e.Fleet) {
			f.Gateways[0].PeerRelay.Restore()
		},
		after: 3 * time.Second},
	{name: "leader not responding to the others", begin: func(f *e2e.Fleet) {
		f.Gateways[0].PeerRelay.Hang()
	}, end: func(f *e2e.Fleet) { f.Gateways[0].PeerRelay.Restore() },
		after: 3 * leaseTTL},
}

// harms tells whether the clients of a gateway may get an error.
func (x *failure) harms(gateway int) bool { return x.harmed != nil && x.harmed(gateway) }

func isLeader(gateway int) bool { return gateway == 0 }

// failureCase is a failure in a fleet of some size, while many clients read a file.
type failureCase struct {
	*failure
	gateways, clients, size int
}

func (c failureCase) String() string {
	return fmt.Sprintf("%s, %d gateways, %d bytes", c.name, c.gateways, c.size)
}

// failureCases are those for which there is time; size is that of the file where there is little.
func failureCases(size int) (list []failureCase) {
	gateways, sizes, clients := []int{2}, []int{size}, 60
	if e2e.Long {
		gateways, sizes, clients = []int{2, 3}, []int{4 << 10, 1 << 20, 64 << 20}, 500
	}
	for i := range failures {
		for _, n := range gateways {
			for _, size := range sizes {
				list = append(list, failureCase{&failures[i], n, clients, size})
			}
		}
	}
	return list
}

// failuresAtOnce is how many of them run at a time: one with 500 clients has the machine for
// itself.
func failuresAtOnce() int {
	if e2e.Long {
		return 1
	}
	return 6
}

// TestCacheFailures: whatever fails in the middle of a fill, every client gets the exact content or
// an error that it can see, those of gateways that live get the content, and each segment is
// downloaded at most twice.
func TestCacheFailures(t *testing.T) {
	t.Parallel()
	e2e.Together(t, failuresAtOnce(), failureCases(1<<20), failureCase.String, func(c failureCase, t *testing.T) {
		require.NoError(t, e2e.Punctually(t, nil, func() error { return c.run(t, c.gateways, c.clients, c.size) }))
	})
}

// run plays a failure. Its error says that it has cost too much.
func (x *failure) run(t *testing.T, gateways, clients, size int) error {
	f := e2e.StartFleet(t, e2e.FleetOptions{Gateways: gateways, Relayed: true, Cache: []string{"memory_max = 512MB"},
		Lines: []string{"[lock]", "ttl = " + leaseTTL.String()}})
	id, content := f.Put(size)
	f.Slow(300*time.Millisecond, 3*time.Second, size)
	lone := make(chan stampede.Report)
	go func() { // the first gateway leads
		lone <- stampede.Run(stampede.Options{Clients: 1, URLs: e2e.URLs(f.Gateways[:1], id), Want: content})
	}()
	f.Begun(id, 1)
	all := make(chan stampede.Report)
	go func() { all <- f.Stampede(clients, id, content) }()
	f.Begun(id, int64(size/3))
	x.begin(f)
	if x.end != nil {
		time.Sleep(x.after)
		x.end(f)
	}
	first, report := <-lone, <-all
	e2e.RequireHonest(t, first)
	e2e.RequireHonest(t, report)
	for i := range report {
		if !x.harms(i % gateways) {
			require.Equal(t, stampede.Whole, report[i].Outcome, "client %d of gateway %d: %v", i, i%gateways,
				report[i].Err)
		}
	}
	n := f.Cluster.Downloads(id)
	if n.Downloads > 2*e2e.SegmentsOf(size) {
		return fmt.Errorf("%d downloads of %d segments, want each at most twice", n.Downloads, e2e.SegmentsOf(size))
	}
	t.Logf("%d downloads, %.2f of the bytes, whole after %v at most", n.Downloads, float64(n.Bytes)/float64(size),
		report.Whole(1))
	return nil
}

// TestCacheStartsWithoutRedis: a gateway whose Redis is away starts and serves.
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

// TestPeerListenerThatCannotBeBound: the gateway does not start, and says which key is at fault.
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
