package attack

import (
	"fmt"
	"testing"
	"time"

	"fastdfs-gateway/internal/testing/eventually"
)

// usage is what a process holds.
type usage struct {
	memory      int // resident bytes
	descriptors int
	goroutines  int
	connections int
}

func (u usage) String() string {
	return fmt.Sprintf("%d MB, %d descriptors, %d goroutines, %d connections", u.memory>>20, u.descriptors,
		u.goroutines, u.connections)
}

// usage asks the gateway itself.
func (g *target) usage() (usage, error) {
	of, err := g.Metrics()
	return usage{memory: int(of["process_resident_memory_bytes"]), descriptors: int(of["process_open_fds"]),
		goroutines: int(of["go_goroutines"]), connections: int(of["fdfs_gateway_connections"])}, err
}

// settles waits until the gateway has seen the end of all connections, which it does after their
// clients.
func (g *target) settles(t *testing.T) (now usage) {
	t.Helper()
	eventually.True(t, func() bool {
		var err error
		now, err = g.usage()
		return err == nil && now.connections == 0
	}, "%v", &now)
	return now
}

// watch looks at the gateway until stop is closed, and returns the most that it held. A look
// without a response is an error.
func (g *target) watch(stop <-chan struct{}) (peak usage, err error) {
	for tick := time.NewTicker(200 * time.Millisecond); ; {
		select {
		case <-stop:
			tick.Stop()
			return peak, nil
		case <-tick.C:
		}
		u, err := g.usage()
		if err != nil {
			return peak, fmt.Errorf("cannot watch the gateway: %w", err)
		}
		peak = usage{max(peak.memory, u.memory), max(peak.descriptors, u.descriptors), max(peak.goroutines,
			u.goroutines), max(peak.connections, u.connections)}
	}
}

// pooled is how many idle connections to a storage a gateway keeps.
const pooled = 8

// recovers waits until the gateway holds what it held before the attack, and a little for what
// happens beside. fasthttp keeps idle goroutines for 10 s, and idle connections to storages stay
// for a minute: only a long attack waits for that.
func (g *target) recovers(t *testing.T, base usage) {
	t.Helper()
	spare, files := 10, 10
	if *duration == 0 {
		spare, files = spare+attackers, files+pooled*g.storages
	}
	var now usage
	eventually.True(t, func() bool {
		var err error
		now, err = g.usage()
		return err == nil && now.goroutines <= base.goroutines+spare && now.descriptors <= base.descriptors+files &&
			now.connections == base.connections
	}, "before: %v, long after: %v", base, &now)
	t.Logf("after: %v", now)
}
