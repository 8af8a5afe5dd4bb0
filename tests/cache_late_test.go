package tests

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

// lateBy is how late a goroutine may wake up on a machine of which times may be expected.
const lateBy = 250 * time.Millisecond

// scenes is how often a scene is played where the machine is late; the last time counts, whatever
// the machine does.
const scenes = 8

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
		return worst > lateBy
	}
}

// sharing waits until all gateways have their Redis: one that has waited for it in vain leaves it
// alone for a while.
func (f *fleet) sharing() {
	f.t.Helper()
	if f.redis != nil {
		eventually.True(f.t, func() bool { return f.metric("fdfs_gateway_redis_up") == float64(len(f.gateways)) })
	}
}

// waitedInVain counts what gateways have given up waiting for: Redis, another gateway, a storage.
func (f *fleet) waitedInVain() (sum float64) {
	f.t.Helper()
	for _, m := range f.gateways {
		sum += float64(strings.Count(m.Log(), "redis cannot be used"))
	}
	for _, series := range []string{`lock_acquire_total{result="error"}`, "lock_lost_total", "origin_hedges_total",
		`origin_fetches_total{result="timeout"}`,
		`peer_fetches_total{result="broken"}`, `peer_fetches_total{result="unreachable"}`} {
		sum += f.metric("fdfs_gateway_" + series)
	}
	return sum
}

// punctually plays a scene that prepares what it needs anew each time, and gives what was not as
// expected of a machine that keeps the time. Where that was not kept, by the machine or because a
// gateway has waited in vain, the scene is played again.
func (f *fleet) punctually(play func() error) error {
	f.t.Helper()
	return punctually(f.t, f.waitedInVain, func() error {
		f.sharing()
		return play()
	})
}

// punctually does so for a scene that has its own fleet: vain, which may be nil, is what was waited
// for in vain.
func punctually(t *testing.T, vain func() float64, play func() error) error {
	t.Helper()
	if vain == nil {
		vain = func() float64 { return 0 }
	}
	for i := 1; ; i++ {
		before, late := vain(), watchTime()
		err := play()
		kept := !late() && vain() == before
		if err == nil || kept || i == scenes {
			return err
		}
		t.Logf("once more, as something was late: %v", err)
	}
}
