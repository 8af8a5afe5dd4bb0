package tests

import (
	"testing"
	"time"

	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/tests/crowd"

	"github.com/stretchr/testify/require"
)

// restartTTL is the ttl of a lease: so long that a client that waits for it fails the test.
const restartTTL = 2 * crowdTime

// TestFleetRestartInTheFill: a gateway that is killed in the middle of a fill, and restarted while
// the lease of the fill lives, fetches the file at once when it is asked again. A gateway that
// waited for that lease gets the file too. Both cost one more download.
func TestFleetRestartInTheFill(t *testing.T) {
	t.Parallel()
	const size = 3 << 20
	f := startFleet(t, fleetOptions{gateways: 2, storages: 1,
		lines: []string{"[lock]", "ttl = " + restartTTL.String(), "wait = " + restartTTL.String()}})
	f.formed()
	owner, other := f.gateways[0], f.gateways[1]
	f.warm(f.putOwnedBy(1000, owner))
	id, content := f.putOwnedBy(size, owner)
	ask := func(m *member) <-chan crowd.Report {
		asked := make(chan crowd.Report, 1)
		go func() {
			asked <- crowd.Run(crowd.Options{Clients: 1, URLs: urlsOf([]*member{m}, id), Want: content,
				Timeout: crowdTime})
		}()
		return asked
	}

	f.slow(0, testTimeout, size) // the first fill does not end before the kill
	cut := ask(owner)
	f.begun(id, size/100)
	owner.Kill()
	requireHonest(t, <-cut)
	waiting := ask(other)
	eventually.True(t, func() bool {
		queues, err := f.redis.Client().Keys(t.Context(), "fdfs:{0}:queue:*").Result()
		return err == nil && len(queues) == 1
	}, "it waits for the lease")
	require.Equal(t, 1, f.cluster.Downloads(id).Downloads)

	f.slow(0, 4*time.Second, size) // longer than the back-off of a gateway that could not be reached
	owner.start(t)
	again := ask(owner)
	requireWhole(t, <-again)
	requireWhole(t, <-waiting)
	require.Equal(t, 2, f.cluster.Downloads(id).Downloads)
}
