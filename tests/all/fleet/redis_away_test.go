package fleet

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/tests/e2e"

	"github.com/stretchr/testify/require"
)

// TestFleetWithoutRedis: while Redis is killed or frozen, many requests for a cold file cost one
// download, and the first byte comes at most 200 ms after that of the storage: at the moment of the
// failure, when gateways have detected it, and after that. A busy machine delays some clients now
// and then, but a gateway that waits for Redis delays them each time. So each stampede has to be in
// time once.
func TestFleetWithoutRedis(t *testing.T) { // not in parallel: other tests would add to its times
	for name, away := range map[string]struct{ begin, end func(f *e2e.Fleet) }{
		"killed": {func(f *e2e.Fleet) { f.Redis.Kill() }, func(f *e2e.Fleet) { f.Redis.Restart() }},
		"frozen": {func(f *e2e.Fleet) { f.Redis.Pause() }, func(f *e2e.Fleet) { f.Redis.Resume() }},
	} {
		t.Run(name, func(t *testing.T) {
			f := e2e.StartFleet(t, e2e.FleetOptions{Gateways: 3, Storages: 1})
			f.Formed()
			var late [5]error // of each stampede; nil = it was in time once
			for scene := range 3 * e2e.Scenes {
				f.Sharing()
				away.begin(f)
				for i := range late {
					if err := stampedeWithoutRedis(f, i); scene == 0 || late[i] != nil {
						late[i] = err
					}
				}
				eventually.True(t, func() bool { return f.Metric("fdfs_gateway_redis_up") == 0 })
				away.end(f)
				if errors.Join(late[:]...) == nil {
					break
				}
			}
			require.NoError(t, errors.Join(late[:]...))
			f.Sharing()
		})
	}
}

// storageTime is the delay of the storage before each reply.
const storageTime = 300 * time.Millisecond

// stampedeWithoutRedis requests a cold file with many clients. Its error means too many downloads,
// or too late a first byte.
func stampedeWithoutRedis(f *e2e.Fleet, round int) error {
	const clients, size = 150, 256 << 10
	id, content := f.Put(size)
	f.Slow(storageTime, 200*time.Millisecond, size)
	r := f.Stampede(clients, id, content)
	e2e.RequireWhole(f.T, r)
	n, late := f.Cluster.Downloads(id).Downloads, r.FirstByte(0.99)-storageTime
	f.T.Logf("stampede %d: %d downloads, first byte p99 %v after that of the storage", round, n,
		late.Round(time.Millisecond))
	switch {
	case n != 1:
		return fmt.Errorf("stampede %d: %d downloads", round, n)
	case late > 200*time.Millisecond+e2e.LateBy: // a wait for Redis adds half a second
		return fmt.Errorf("stampede %d: the first byte comes %v after that of the storage", round, late)
	}
	return nil
}
