package e2e

import (
	"strings"
	"sync"
	"testing"
	"time"

	"fastdfs-gateway/internal/testing/eventually"
)

// Gateways wait for half a second for Redis, and for a few seconds for each other and for storages.
// Their responses after such a timeout are correct, but cost more. So a test that counts costs must
// detect that the machine stood still.

// LateBy is the longest delay of a goroutine's wake-up on a machine that counts as punctual.
const LateBy = 250 * time.Millisecond

// Scenes is the largest number of times that a scene is played while the machine is late. The last
// time counts in any case.
const Scenes = 8

// watchTime starts to measure the delay of wake-ups. The returned function stops that and reports
// whether a delay exceeded LateBy.
func watchTime() func() bool {
	stop, worst := make(chan struct{}), time.Duration(0)
	var watching sync.WaitGroup
	watching.Go(func() {
		const beat = 10 * time.Millisecond
		tick := time.NewTicker(beat)
		defer tick.Stop()
		for last := time.Now(); ; {
			select {
			case <-stop:
				return
			case <-tick.C:
			}
			now := time.Now()
			worst, last = max(worst, now.Sub(last)-beat), now
		}
	})
	return func() bool {
		close(stop)
		watching.Wait()
		return worst > LateBy
	}
}

// Sharing waits until all gateways use Redis: after a timeout of Redis a gateway runs standalone
// for a while.
func (f *Fleet) Sharing() {
	f.T.Helper()
	if f.Redis != nil {
		eventually.True(f.T, func() bool { return f.Metric("fdfs_gateway_redis_up") == float64(len(f.Gateways)) })
	}
}

// WaitedInVain returns the number of waits for Redis, gateways and storages that have timed out or
// failed.
func (f *Fleet) WaitedInVain() (sum float64) {
	f.T.Helper()
	for _, m := range f.Gateways {
		sum += float64(strings.Count(m.Log(), "Redis unavailable"))
	}
	return sum + f.StoragesLate() + f.PeersLate() +
		f.Metric(`fdfs_gateway_lock_acquire_total{result="error"}`, "fdfs_gateway_lock_lost_total")
}

// PeersLate returns the number of requests to peers that got no reply in time, were not sent since
// an earlier one had failed, or whose reply broke off.
func (f *Fleet) PeersLate() float64 {
	f.T.Helper()
	return f.Metric(`fdfs_gateway_peer_fetches_total{result="broken"}`,
		`fdfs_gateway_peer_fetches_total{result="unreachable"}`)
}

// StoragesLate returns the number of requests to storages that have timed out or were hedged.
func (f *Fleet) StoragesLate() float64 {
	f.T.Helper()
	return f.Metric("fdfs_gateway_origin_hedges_total", `fdfs_gateway_origin_fetches_total{result="timeout"}`)
}

// Punctually plays a scene and returns its error. An error does not count if the machine was late
// or a gateway has waited in vain: then the scene is played again, Scenes times at most. The scene
// must prepare new files each time.
func (f *Fleet) Punctually(play func() error) error {
	f.T.Helper()
	return Punctually(f.T, f.WaitedInVain, func() error {
		f.Sharing()
		return play()
	})
}

// Punctually plays a scene like Fleet.Punctually; vain returns the number of waits in vain.
func Punctually(t *testing.T, vain func() float64, play func() error) error {
	t.Helper()
	for i := 1; ; i++ {
		before, late := vain(), watchTime()
		err := play()
		kept := !late() && vain() == before
		if err == nil || kept || i == Scenes {
			return err
		}
		t.Logf("once more, as something was late: %v", err)
	}
}
