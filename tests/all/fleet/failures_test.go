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
func (x *failure) harms(gateway int) bool { return x.harmsLeader && gateway == 0 }

// failureCase is a failure while many clients read a file.
type failureCase struct {
	*failure
	clients, size int
}

func (x failureCase) String() string { return fmt.Sprintf("%s, %d bytes", x.name, x.size) }

// failureCases returns the cases for the time of the run. In a short run, size is the size of the
// file.
func failureCases(size int) (list []failureCase) {
	sizes, clients := []int{size}, 60
	if e2e.Long {
		sizes, clients = []int{4 << 10, 1 << 20, 64 << 20}, 500
	}
	for i := range failures {
		for _, size := range sizes {
			list = append(list, failureCase{&failures[i], clients, size})
		}
	}
	return list
}

// failingFleets returns the fleets for the time of the run, with short leases and relays.
func failingFleets(cache ...string) (list []e2e.FleetOptions) {
	sizes := []int{2}
	if e2e.Long {
		sizes = append(sizes, 3)
	}
	for _, n := range sizes {
		list = append(list, e2e.FleetOptions{Gateways: n, Relayed: true, Cache: append(cache, "memory_max = 512MB"),
			Lines: []string{"[lock]", "ttl = " + leaseTTL.String()}})
	}
	return list
}

// TestCacheFailures: after any failure in the middle of a fill, every client gets the exact content
// or an error that it can detect, the clients of running gateways get the content, and each segment
// is downloaded at most twice.
func TestCacheFailures(t *testing.T) {
	t.Parallel()
	atOnce := 2
	if e2e.Long {
		atOnce = 1 // 500 clients need the whole machine
	}
	for _, o := range failingFleets() {
		e2e.OnFleets(t, atOnce, o, failureCases(1<<20), failureCase.play)
	}
}

// play plays a failure. Its error means that there were too many downloads.
func (x failureCase) play(f *e2e.Fleet) error {
	t, gateways, size := f.T, len(f.Gateways), x.size
	id, content := f.Put(size)
	f.Slow(300*time.Millisecond, 3*time.Second, size)
	lone := make(chan stampede.Report)
	go func() { // the first gateway leads
		lone <- stampede.Run(stampede.Options{Clients: 1, URLs: e2e.URLs(f.Gateways[:1], id), Want: content})
	}()
	f.Begun(id, 1)
	all := make(chan stampede.Report)
	go func() { all <- f.Stampede(x.clients, id, content) }()
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
