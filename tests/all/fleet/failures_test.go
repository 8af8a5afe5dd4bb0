package fleet

import (
	"fmt"
	"testing"
	"time"

	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/stampede"

	"github.com/stretchr/testify/require"
)

// failure is a failure in the middle of a fill that the first gateway leads.
type failure struct {
	name        string
	begin       func(f *e2e.Fleet)
	end         func(f *e2e.Fleet) // ends the failure; nil = the failure stays
	after       time.Duration      // from begin to end
	harmsLeader bool               // the clients of the first gateway may get an error
}

// leaseTTL is the ttl of leases. It is short, so that the lease of a killed gateway ends soon.
const leaseTTL = 2 * time.Second

var failures = []failure{
	{name: "redis killed", begin: func(f *e2e.Fleet) { f.Redis.Kill() }, end: func(f *e2e.Fleet) {
		f.Redis.Restart()
	}, after: time.Second},
	{name: "redis stopped", begin: func(f *e2e.Fleet) { f.Redis.Pause() }, end: func(f *e2e.Fleet) {
		f.Redis.Resume()
	}, after: 2 * time.Second},
	{name: "leader killed", begin: func(f *e2e.Fleet) { f.Gateways[0].Kill() }, harmsLeader: true},
	{name: "leader stopped for longer than its lease", begin: func(f *e2e.Fleet) { f.Gateways[0].Pause() },
		end: func(f *e2e.Fleet) { f.Gateways[0].Resume() }, after: 3 * leaseTTL, harmsLeader: true},
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

// harms reports whether the clients of a gateway may get an error.
func (x failure) harms(gateway int) bool { return x.harmsLeader && gateway == 0 }

func (x failure) String() string { return x.name }

// TestCacheFailures: after any failure in the middle of a fill, every client gets the exact content
// or an error that it can detect, the clients of running gateways get the content, and each segment
// is downloaded at most twice.
func TestCacheFailures(t *testing.T) {
	t.Parallel()
	o := e2e.FleetOptions{Gateways: 2, Relayed: true, Lines: []string{"[lock]", "ttl = " + leaseTTL.String()}}
	e2e.OnFleets(t, 2, o, failures, failure.play)
}

// play plays a failure. Its error means that there were too many downloads.
func (x failure) play(f *e2e.Fleet) error {
	const clients, size = 60, 1 << 20
	t, gateways := f.T, len(f.Gateways)
	id, content := f.Put(size)
	f.Slow(300*time.Millisecond, 3*time.Second, size)
	lone := make(chan stampede.Report)
	go func() { // the first gateway leads
		lone <- stampede.Run(stampede.Options{Clients: 1, URLs: e2e.URLs(f.Gateways[:1], id), Want: content})
	}()
	f.Begun(id, 1)
	all := make(chan stampede.Report)
	go func() { all <- f.Stampede(clients, id, content) }()
	f.Begun(id, size/3)
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
