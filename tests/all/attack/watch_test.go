package attack

import (
	"fmt"
	"testing"
	"time"

	"fastdfs-gateway/internal/testing/eventually"
)

// usage is the resource usage of the gateway.
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

// usage returns the usage in the metrics of the gateway.
func (g *target) usage() (usage, error) {
	of, err := g.Metrics()
	return usage{memory: int(of["process_resident_memory_bytes"]), descriptors: int(of["process_open_fds"]),
		goroutines: int(of["go_goroutines"]), connections: int(of["fdfs_gateway_connections"])}, err
}

// settles waits until the gateway has detected the end of all connections, and returns the usage.
func (g *target) settles(t *testing.T) (now usage) {
	t.Helper()
	eventually.True(t, func() bool {
		var err error
		now, err = g.usage()
		return err == nil && now.connections == 0
	}, "%v", &now)
	return now
}

// watch samples the usage until stop is closed, and returns the peak. A sample without a response
// is an error.
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

// pooled is the number of idle connections to a storage that a gateway keeps.
const pooled = 8

// recovers waits until the goroutines, descriptors and connections of the gateway are those before
// the attack, plus a small allowance. fasthttp keeps idle goroutines for 10 s, and idle connections
// to storages stay for a minute: only a long attack waits for their end.
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
