package fleet

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	neturl "net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/fdfstest"
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

// TestCacheBreaksOff: a download that breaks off at half is resumed where it ended, and clients
// notice nothing.
func TestCacheBreaksOff(t *testing.T) {
	t.Parallel()
	size := 3 << 20
	f := e2e.StartFleet(t, e2e.FleetOptions{Gateways: 2})
	half := size / 2
	f.Fault(fdfstest.Faults{Commands: []byte{fdfstest.CmdDownload}, BreakAt: &half})
	require.NoError(t, f.Punctually(func() error {
		id, content := f.Put(size)
		e2e.RequireWhole(t, f.Stampede(60, id, content))
		if n := f.Cluster.Downloads(id); n.Downloads != 2 || float64(n.Bytes) > 1.05*float64(size) {
			return fmt.Errorf("%d downloads with %d bytes of %d, want two halves", n.Downloads, n.Bytes, size)
		}
		return nil
	}))
}

// TestCacheBreaksForGood: a download that always breaks off after a few bytes is an error that
// every client can see.
func TestCacheBreaksForGood(t *testing.T) {
	t.Parallel()
	f := e2e.StartFleet(t, e2e.FleetOptions{Gateways: 2})
	id, content := f.Put(3 << 20)
	few := 1000
	f.Fault(fdfstest.Faults{Commands: []byte{fdfstest.CmdDownload}, BreakAt: &few})
	r := f.Stampede(60, id, content)
	e2e.RequireHonest(t, r)
	require.Zero(t, r.Count(stampede.Whole), r.String())
	f.Fault()
	e2e.RequireWhole(t, f.Stampede(60, id, content))
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

// TestCachePeersAreChecked: segments are served to gateways of the fleet on the peer listener, and
// to other clients on no listener.
func TestCachePeersAreChecked(t *testing.T) {
	t.Parallel()
	f := e2e.StartFleet(t, e2e.FleetOptions{Gateways: 1})
	id, content := f.Put(1000)
	f.Warm(id, content)
	g := f.Gateways[0]
	segment := "/entry?file=" + neturl.QueryEscape(id.String()) + "&index=0&offset=0&maxage=0&copy=0&purge=0"
	require.Equal(t, 400, g.Get(segment).StatusCode, "the listener for clients knows no peers")
	require.Equal(t, 400, g.Get("/_peer"+segment).StatusCode)

	address := lab.Address(g.Options.Peers)
	resp, err := http.Get("http://" + address + segment)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, 400, resp.StatusCode, "net/http tells clients without TLS so")
	client := &http.Client{Transport: &http.Transport{ForceAttemptHTTP2: true,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	_, err = client.Get("https://" + address + segment)
	require.Error(t, err, "without the key of the fleet")
	require.Zero(t, g.Metric(`fdfs_gateway_peer_requests_total{code="200"}`))
	require.Contains(t, g.Log(), "a connection to [peer] listen was rejected")

	alone := e2e.StartFleet(t, e2e.FleetOptions{Gateways: 1, NoRedis: true}).Gateways[0]
	_, err = net.Dial("tcp", lab.Address(alone.Options.Peers))
	require.ErrorIs(t, err, syscall.ECONNREFUSED, "there is no listener without advertise")
}

// TestCachePeersWithAnotherSecret: each gateway runs standalone, and both say why.
func TestCachePeersWithAnotherSecret(t *testing.T) {
	t.Parallel()
	f := e2e.StartFleet(t, e2e.FleetOptions{Gateways: 2, Storages: 1})
	one, two := f.Gateways[0], f.Gateways[1]
	two.Stop()
	two.Options.Secret = "not the secret of the experiment"
	two.Start(t)
	id, content := f.Put(100_000)
	f.Slow(500*time.Millisecond, 0, 0)
	e2e.RequireWhole(t, f.Stampede(20, id, content))
	require.Equal(t, 2, f.Cluster.Downloads(id).Downloads, "one for each")
	says := func(m *e2e.Member, text string) {
		eventually.True(t, func() bool { return strings.Contains(m.Log(), text) }, m.Log())
	}
	says(one, "a gateway is no member of this fleet")
	says(two, "a gateway is no member of this fleet")
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
