package fleet

import (
	"encoding/json"
	"net/http"
	"sync"
	"testing"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/tests/e2e"

	"github.com/stretchr/testify/require"
)

// TestFleetPurgeWhileOneFails: while one gateway is killed and started repeatedly, every gateway
// that responds has applied each purge with a successful response.
func TestFleetPurgeWhileOneFails(t *testing.T) {
	t.Parallel()
	f := e2e.StartFleet(t, e2e.FleetOptions{Gateways: 3, Disk: true})
	f.Formed()
	stop, restarts := make(chan struct{}), 0
	var failing sync.WaitGroup
	failing.Go(func() {
		for restarts = 0; ; restarts++ {
			f.Gateways[2].Kill()
			f.Gateways[2].Start(t)
			select {
			case <-stop:
				return
			case <-time.After(100 * time.Millisecond):
			}
		}
	})
	steady := f.Gateways[:2]
	purges, reached := 20, 0
	for i := range purges {
		c := f.PutChanging()
		read(f, steady, c.ID, c.Content)
		requireCurrent := func() { // checks the gateway that may be killed meanwhile
			if status, got, err := f.Gateways[2].Try(e2e.Path(c.ID)); err == nil && status == http.StatusOK {
				require.Equal(t, c.Content, got)
			}
		}
		requireCurrent()
		f.Change(c)
		status, text := f.Gateways[i%2].AdminPost("/purge?id="+c.ID.String(), "")
		var response struct{ Missing []string }
		require.NoError(t, json.Unmarshal([]byte(text), &response), text)
		for _, name := range response.Missing {
			require.Equal(t, f.Gateways[2].Name(), name, "those that live have applied it")
		}
		require.Equal(t, status == http.StatusOK, len(response.Missing) == 0, text)
		if status == http.StatusOK {
			reached++
		}
		read(f, steady, c.ID, c.Content)
		requireCurrent() // that gateway applies the purge before it serves
	}
	close(stop)
	failing.Wait()
	t.Logf("%d of %d purges have reached all; the gateway was killed %d times", reached, purges, restarts+1)
	require.NotZero(t, reached)
	f.RequirePurged(func(id string) error {
		status, text := f.Gateways[0].AdminPost("/purge?id="+id, "")
		return e2e.ReachedAll(status == http.StatusOK, text)
	})
}

// read requests a file from some gateways and compares the responses.
func read(f *e2e.Fleet, from []*e2e.Member, id fdfs.FileID, content []byte) {
	f.T.Helper()
	for _, m := range from {
		require.Equal(f.T, content, m.Get(e2e.Path(id)).Body)
	}
}
