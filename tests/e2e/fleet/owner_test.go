package fleet

import (
	"bytes"
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"time"

	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/stampede"

	"github.com/stretchr/testify/require"
)

// leaseTTL is the ttl of leases. The others give up the lease of a frozen gateway after 2 s. If it
// expired at that moment, one of them could take it while another takes the lease of those that
// gave up, and both would fetch.
const leaseTTL = 8 * time.Second

// ownerFailure is a failure of the owner of a file.
type ownerFailure struct {
	name      string
	begin     func(owner *e2e.Member)
	inTheFill bool // the owner fails in the middle of its fill; otherwise before it
}

func (x ownerFailure) String() string { return x.name }

var ownerFailures = []ownerFailure{
	{"killed, before the fill", func(m *e2e.Member) { m.Kill() }, false},
	{"frozen, before the fill", func(m *e2e.Member) { m.Pause() }, false},
	{"killed, in the fill", func(m *e2e.Member) { m.Kill() }, true},
	{"frozen, in the fill", func(m *e2e.Member) { m.Pause() }, true},
}

// TestFleetOwnerFails: when the owner of a file is killed or frozen, before or during its fill, the
// clients of the other gateways get the exact bytes from the next in rank, at most the ttl of a
// lease later. The file is downloaded twice at most. When the owner is back, the others request
// files from it again.
func TestFleetOwnerFails(t *testing.T) {
	t.Parallel()
	e2e.OnFleets(t, 1, e2e.FleetOptions{Gateways: 3, Storages: 1,
		Lines: []string{"[lock]", "ttl = " + leaseTTL.String()}}, ownerFailures, ownerFailure.play)
}

// play requests a file from the other gateways. Its error means too many downloads, or too long a
// time.
func (x ownerFailure) play(f *e2e.Fleet) error {
	const size = 3 << 20
	const fetchTime = time.Second
	owner, others := f.Gateways[0], f.Gateways[1:]
	id, content := f.PutOwnedBy(size, owner)
	f.Slow(0, fetchTime, size)
	if !x.inTheFill {
		x.begin(owner)
	}
	asked := make(chan stampede.Report)
	go func() {
		asked <- stampede.Run(stampede.Options{Clients: 40, URLs: e2e.URLs(others, id), Want: content})
	}()
	f.Begun(id, size/3)
	if x.inTheFill {
		x.begin(owner)
	}
	r := <-asked
	e2e.RequireWhole(f.T, r)
	n := f.Cluster.Downloads(id)
	f.T.Logf("%d downloads of %.2f of the bytes, first byte after %v at most, whole after %v at most",
		n.Downloads, float64(n.Bytes)/size, r.FirstByte(1).Round(time.Millisecond), r.Whole(1).Round(time.Millisecond))
	switch most := map[bool]int{false: 1, true: 2}[x.inTheFill]; {
	case n.Downloads > most:
		return fmt.Errorf("%d downloads, want %d at most", n.Downloads, most)
	case r.Whole(1) > 20*time.Second:
		// 3.1 s on an idle machine. A gateway that does not detect the failure of the owner reads
		// from it for ever, or waits for its lease for 30 s.
		return fmt.Errorf("the file was whole after %v", r.Whole(1))
	}
	return nil
}

// TestRestartWithoutStorages: a restarted gateway knows nothing of the files on its disk. While all
// storages are down, it serves them: by the metadata of the next gateway in rank, or by its disk.
func TestRestartWithoutStorages(t *testing.T) {
	t.Parallel()
	for _, gateways := range []int{1, 3} {
		t.Run(strconv.Itoa(gateways), func(t *testing.T) {
			t.Parallel()
			f := e2e.StartFleet(t, e2e.FleetOptions{Gateways: gateways, Storages: 1, Disk: true})
			owner := f.Gateways[0]
			id, content := f.Put(100_000)
			if gateways > 1 {
				id, content = f.PutOwnedBy(100_000, owner)
			}
			f.Warm(id, content)
			owner.Gateway.Stop()
			f.Cluster.Storages()[0].Kill()
			owner.Start(t)
			if gateways > 1 {
				f.Met()
			}
			r := owner.Get(e2e.Path(id))
			require.Equal(t, http.StatusOK, r.StatusCode, "%s", r.Body)
			require.True(t, bytes.Equal(content, r.Body))
		})
	}
}
