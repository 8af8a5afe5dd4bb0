package fdfstest

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSilenceBesideForks: a node can be silenced and revived while other processes start, which
// have copies of its closed listener for a moment.
func TestSilenceBesideForks(t *testing.T) {
	t.Parallel()
	c := start(t, Options{})
	stop := make(chan struct{})
	started := make(chan error)
	go func() {
		defer close(started)
		for {
			select {
			case <-stop:
				return
			default:
			}
			if err := exec.Command("true").Run(); err != nil {
				started <- err
				return
			}
		}
	}()
	for range 100 {
		require.NoError(t, c.Storage(0).Silence())
		require.NoError(t, c.Storage(0).Revive())
	}
	close(stop)
	require.NoError(t, <-started)
}
