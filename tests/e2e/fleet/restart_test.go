package fleet

import (
	"testing"
	"time"

	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/stampede"

	"github.com/stretchr/testify/require"
)

// restartTTL is the ttl of a lease: so long that a client that waits for it fails the test.
const restartTTL = 2 * stampede.DefaultTimeout

// TestFleetRestartInTheFill: a gateway that is killed in the middle of a fill, and restarted while
// the lease of the fill lives, fetches the file at once when it is asked again. A gateway that
// waited for that lease gets the file too. Both cost one more download.
func TestFleetRestartInTheFill(t *testing.T) {
	t.Parallel()
	const size = 3 << 20
	f := e2e.StartFleet(t, e2e.FleetOptions{Gateways: 2, Storages: 1,
		Lines: []string{"[lock]", "ttl = " + restartTTL.String(), "wait = " + restartTTL.String()}})
	f.Formed()
	owner, other := f.Gateways[0], f.Gateways[1]
	f.Warm(f.PutOwnedBy(1000, owner))
	id, content := f.PutOwnedBy(size, owner)
	ask := func(m *e2e.Member) <-chan stampede.Report {
		asked := make(chan stampede.Report, 1)
		go func() {
			asked <- stampede.Run(stampede.Options{Clients: 1, URLs: e2e.URLs([]*e2e.Member{m}, id), Want: content})
		}()
		return asked
	}

	f.Slow(0, time.Minute, size) // the first fill does not end before the kill
	cut := ask(owner)
	f.Begun(id, size/100)
	owner.Kill()
	e2e.RequireHonest(t, <-cut)
	waiting := ask(other)
	eventually.True(t, func() bool {
		queues, err := f.Redis.Client().Keys(t.Context(), "fdfs:{0}:queue:*").Result()
		return err == nil && len(queues) == 1
	}, "it waits for the lease")
	require.Equal(t, 1, f.Cluster.Downloads(id).Downloads)

	f.Slow(0, 4*time.Second, size) // longer than the back-off of a gateway that could not be reached
	owner.Start(t)
	again := ask(owner)
	e2e.RequireWhole(t, <-again)
	e2e.RequireWhole(t, <-waiting)
	require.Equal(t, 2, f.Cluster.Downloads(id).Downloads)
}
