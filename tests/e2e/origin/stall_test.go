package origin

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/fdfstest"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

// longestGap downloads a file and returns the longest time without a byte of its body. On a machine
// so busy that the tracker does not reply in time, the response is 503, and the request is sent
// again.
func longestGap(url string, want []byte) (longest time.Duration, err error) {
	client := http.Client{Transport: &http.Transport{}, Timeout: e2e.Timeout}
	defer client.CloseIdleConnections()
	for began := time.Now(); ; {
		resp, err := client.Get(url)
		if err != nil {
			return 0, err
		}
		if resp.StatusCode == http.StatusServiceUnavailable && time.Since(began) < e2e.Timeout {
			_ = resp.Body.Close() // a line of text
			continue
		}
		defer resp.Body.Close()
		return readWithGaps(resp, want)
	}
}

// readWithGaps reads a response, and returns the longest time without a byte of its body.
func readWithGaps(resp *http.Response, want []byte) (longest time.Duration, err error) {
	got := make([]byte, 0, len(want)+1)
	for last := time.Now(); ; last = time.Now() {
		n, err := resp.Body.Read(got[len(got):cap(got)])
		got, longest = got[:len(got)+n], max(longest, time.Since(last))
		switch {
		case err == nil:
		case err != io.EOF || resp.StatusCode != http.StatusOK:
			return longest, fmt.Errorf("status %d, %d bytes: %w", resp.StatusCode, len(got), err)
		case !bytes.Equal(got, want):
			return longest, fmt.Errorf("%d bytes that are not those of the file", len(got))
		default:
			return longest, nil
		}
	}
}

// stallBound is the longest time that a client waits for a stalled storage: 2 s, and the delay of a
// slow machine. The timeout of the storage's connection is 30 s or more.
const stallBound = 25 * time.Second

// TestSourceFreezesMidway: a storage that stalls in the middle of a file, with its connection open,
// is replaced from the next byte on.
func TestSourceFreezesMidway(t *testing.T) {
	t.Parallel()
	const size = 6 << 20
	content := storetest.New(t).Bytes(size)
	at := 1 << 20
	freeze := fdfstest.Faults{Commands: []byte{fdfstest.CmdDownload}, FreezeAt: &at}
	for name, lines := range map[string][]string{"without a cache": {"[cache]", "memory_max = 0"},
		"through the cache": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := e2e.NewCluster(t, fdfstest.Options{})
			id := e2e.Put(t, c, fdfstest.FileSpec{Storage: c.Storage(0), Content: content, Ext: "mp4",
				Created: e2e.LongAgo})
			p := e2e.ServeConfig(t, e2e.WriteConfig(t, e2e.EdgeConfig(c, lines...)))
			c.Storage(0).SetFaults(freeze)
			gap, err := longestGap("http://"+p.Addrs[0]+e2e.Path(id), content)
			require.NoError(t, err)
			require.Less(t, gap, stallBound)
			t.Logf("longest gap: %v", gap)
		})
	}
	t.Run("fleet", func(t *testing.T) { // one gateway reads from the other one, which fetches
		t.Parallel()
		f := e2e.StartFleet(t, e2e.FleetOptions{Gateways: 2})
		id := e2e.Put(t, f.Cluster, fdfstest.FileSpec{Storage: f.Cluster.Storage(0), Content: content, Ext: "mp4",
			Created: e2e.LongAgo})
		f.Cluster.Storage(0).SetFaults(freeze)
		var clients errgroup.Group
		for _, url := range f.Urls(id) {
			clients.Go(func() error {
				gap, err := longestGap(url, content)
				if err == nil && gap >= stallBound {
					err = fmt.Errorf("longest gap of %s: %v", url, gap)
				}
				return err
			})
		}
		require.NoError(t, clients.Wait())
	})
}
