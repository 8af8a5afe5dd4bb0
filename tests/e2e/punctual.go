package e2e

import (
	"strings"
	"sync"
	"testing"
	"time"

	"fastdfs-gateway/internal/testing/eventually"
)

// Gateways do not wait for ever: for Redis half a second, for each other and for storages a few.
// What they do then is right and costs more, so a test that counts costs has to know whether the
// machine stood still.

// LateBy is how late a goroutine may wake up on a machine of which times may be expected.
const LateBy = 250 * time.Millisecond

// Scenes is how often a scene is played where the machine is late; the last time counts, whatever
// the machine does.
const Scenes = 8

// watchTime begins to look how late goroutines wake up. The function that it returns ends that, and
// tells whether one was too late.
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

// Sharing waits until all gateways have their Redis: one that has waited for it in vain runs
// standalone for a while.
func (f *Fleet) Sharing() {
	f.T.Helper()
	if f.Redis != nil {
		eventually.True(f.T, func() bool { return f.Metric("fdfs_gateway_redis_up") == float64(len(f.Gateways)) })
	}
}

// WaitedInVain counts what gateways have given up waiting for: Redis, another gateway, a storage.
func (f *Fleet) WaitedInVain() (sum float64) {
	f.T.Helper()
	for _, m := range f.Gateways {
		sum += float64(strings.Count(m.Log(), "Redis unavailable"))
	}
	return sum + f.StoragesLate() + f.Metric(
		`fdfs_gateway_lock_acquire_total{result="error"}`, "fdfs_gateway_lock_lost_total",
		`fdfs_gateway_peer_fetches_total{result="broken"}`, `fdfs_gateway_peer_fetches_total{result="unreachable"}`)
}

// StoragesLate counts requests to storages that gateways have given up or have hedged.
func (f *Fleet) StoragesLate() float64 {
	f.T.Helper()
	return f.Metric("fdfs_gateway_origin_hedges_total", `fdfs_gateway_origin_fetches_total{result="timeout"}`)
}

// Punctually plays a scene that prepares what it needs anew each time, and gives what was not as
// expected of a machine that keeps the time. Where that was not kept, by the machine or because a
// gateway has waited in vain, the scene is played again.
func (f *Fleet) Punctually(play func() error) error {
	f.T.Helper()
	return Punctually(f.T, f.WaitedInVain, func() error {
		f.Sharing()
		return play()
	})
}

// Punctually does so with another count of what was waited for in vain.
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
