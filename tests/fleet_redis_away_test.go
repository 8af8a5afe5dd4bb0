package tests

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// formed waits until all gateways know each other, so that they agree on the owners.
func (f *fleet) formed() {
	f.t.Helper()
	for _, owner := range f.gateways {
		f.putOwnedBy(100, owner)
	}
}

// TestFleetWithoutRedis: a crowd that asks for a cold file, while Redis is killed or frozen, costs
// one download, and its first byte comes 200 ms later than that of the storage at most: in the
// moment of the failure, when gateways have noticed it, and after that. A busy machine makes a
// crowd late now and then, a gateway that waits for Redis each time; so each of these crowds is to
// be in time once.
func TestFleetWithoutRedis(t *testing.T) { // not in parallel: other tests would be in its times
	for name, away := range map[string]struct{ begin, end func(f *fleet) }{
		"killed": {func(f *fleet) { f.redis.Kill() }, func(f *fleet) { f.redis.Restart() }},
		"frozen": {func(f *fleet) { f.redis.Pause() }, func(f *fleet) { f.redis.Resume() }},
	} {
		t.Run(name, func(t *testing.T) {
			f := startFleet(t, fleetOptions{gateways: 3, storages: 1})
			f.formed()
			var late [5]error // of each crowd, unless it has been in time
			for scene := range 3 * scenes {
				f.sharing()
				away.begin(f)
				for i := range late {
					if err := f.crowdWithoutRedis(i); scene == 0 || late[i] != nil {
						late[i] = err
					}
				}
				away.end(f)
				if errors.Join(late[:]...) == nil {
					break
				}
			}
			require.NoError(t, errors.Join(late[:]...))
			f.sharing()
		})
	}
}

// storageTime is how long the storage takes to begin an answer.
const storageTime = 300 * time.Millisecond

// crowdWithoutRedis sends a crowd for a cold file. Its error says that it has cost too much.
func (f *fleet) crowdWithoutRedis(round int) error {
	const clients, size = 150, 1 << 20
	id, content := f.put(size)
	f.slow(storageTime, 200*time.Millisecond, size)
	r := f.crowd(clients, id, content)
	requireWhole(f.t, r)
	n, late := f.cluster.Downloads(id).Downloads, r.FirstByte(0.99)-storageTime
	f.t.Logf("crowd %d: %d downloads, first byte p99 %v after that of the storage", round, n,
		late.Round(time.Millisecond))
	switch {
	case n != 1:
		return fmt.Errorf("crowd %d: %d downloads", round, n)
	case late > 200*time.Millisecond+lateBy: // a gateway that waits for Redis is later by half a second
		return fmt.Errorf("crowd %d: the first byte comes %v after that of the storage", round, late)
	}
	return nil
}
