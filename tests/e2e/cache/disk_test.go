package cache

import (
	"strings"
	"testing"

	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/tests/e2e"
)

// TestCachePurgedWhileDown: a gateway does not serve content from its disk that was purged while
// the gateway was down.
func TestCachePurgedWhileDown(t *testing.T) {
	t.Parallel()
	f := e2e.StartFleet(t, e2e.FleetOptions{Gateways: 2, Disk: true})
	c := f.PutChanging()
	f.Warm(c.ID, c.Content)
	down := f.Gateways[1]
	down.OnDisk(t, 1)
	down.Kill()
	f.Change(c)
	eventually.True(t, func() bool { // if Redis is too slow to record the purge, no other gateway applies it
		status, text := f.Gateways[0].AdminPost("/purge?id="+c.ID.String(), "")
		return status == 200 || strings.Contains(text, down.Name())
	})
	down.Start(t)
	e2e.RequireWhole(t, f.Stampede(10, c.ID, c.Content))
}
