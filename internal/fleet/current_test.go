package fleet

import (
	"slices"
	"testing"
	"time"

	"fastdfs-gateway/internal/cache/tier"
	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/internal/testing/redistest"

	"github.com/stretchr/testify/require"
)

// TestCurrentWaitsForPurges: a gateway that has not confirmed a purge in time applies the purge
// before it serves from its caches.
func TestCurrentWaitsForPurges(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	o := fleetOf(server.Addr())
	relay := redistest.NewRelay(t, server.Addr())
	cutOff := o
	cutOff.Addresses, cutOff.Timeout = []string{relay.Addr()}, testTimeout // no request fails while the relay hangs
	a, b := member(t, o, 1), member(t, cutOff, 2)
	b.purges.confirm = shortConfirm
	var ma, mb memory
	start(t, a, ma.local())
	start(t, b, mb.local())
	for _, f := range []*Fleet{a, b} {
		ready(t, f)
		f.WaitApplied(t.Context()) // returns at once
	}
	mb.take()

	for try := range 10 {
		relay.Hang()
		purgeWithout(t, a, tier.MatchFile(testFile), 1, "https://10.0.0.2:8887")
		eventually.True(t, func() bool { return !b.IsCurrent() }, "it cannot be sure any more")
		require.Empty(t, mb.take())
		restored := make(chan struct{})
		time.AfterFunc(300*time.Millisecond, func() {
			defer close(restored)
			relay.Restore()
		})
		began := time.Now()
		b.WaitApplied(t.Context())
		waited := time.Since(began)
		<-restored
		if waited < catchUpTime {
			require.Equal(t, []string{testFile}, slices.Compact(mb.take()))
			return
		}
		t.Logf("try %d: the machine was too slow for a gateway that does not wait for longer than %s", try, catchUpTime)
		var applied []string
		eventually.True(t, func() bool {
			applied = append(applied, mb.take()...)
			return slices.Contains(applied, testFile) && b.IsCurrent()
		}, "it applies the purge after all")
	}
	t.Fatal("it never became current")
}

// shortConfirm makes a gateway not current soon after its last read of the log.
var shortConfirm = 500 * time.Millisecond

// TestCurrentGivesUp: WaitApplied waits for a silent Redis for catchUpTime only, and a gateway is
// current while Redis is known to be unavailable.
func TestCurrentGivesUp(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	o := fleetOf(server.Addr())
	relay := redistest.NewRelay(t, server.Addr())
	o.Addresses, o.Timeout = []string{relay.Addr()}, testTimeout
	f := member(t, o, 1)
	f.purges.confirm = shortConfirm
	f.WaitApplied(t.Context()) // not started yet: the caches have no old entries
	var m memory
	start(t, f, m.local())
	ready(t, f)
	relay.Hang()
	eventually.True(t, func() bool { return !f.IsCurrent() }, "it cannot be sure any more")
	began := time.Now()
	f.WaitApplied(t.Context())
	require.GreaterOrEqual(t, time.Since(began), catchUpTime)
	for range maxFailures {
		f.breaker.note(errStarted, false)
	}
	require.True(t, f.IsCurrent(), "redis is known to be away")
	relay.Restore()
}
