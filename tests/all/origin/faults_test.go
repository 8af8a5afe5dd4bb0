package origin

import (
	"io"
	"net/http"
	"sync"
	"testing"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/fdfstest"

	"github.com/stretchr/testify/require"
)

// zeros is the content of a file of any size that needs no memory.
type zeros struct{}

func (zeros) ReadAt(p []byte, _ int64) (int, error) {
	clear(p)
	return len(p), nil
}

// TestMemoryOfManyDownloads: 50 clients that download a large file through the gateway at the same
// time need less than 100 MB of resident memory.
func TestMemoryOfManyDownloads(t *testing.T) {
	t.Parallel()
	const size = int64(16 << 20)
	c := e2e.NewCluster(t, fdfstest.Options{})
	id := e2e.Put(t, c, fdfstest.FileSpec{Storage: c.Storage(0), Reader: zeros{}, Size: size, Kind: fdfs.KindAppender,
		Ext: "mp4", Created: e2e.LongAgo})
	p := e2e.Edge(t, c)
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			resp, err := http.Get("http://" + p.Addrs[0] + e2e.Path(id))
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			if n, err := io.Copy(io.Discard, resp.Body); err != nil || n != size {
				t.Errorf("%d bytes of %d: %v", n, size, err)
			}
		})
	}
	wg.Wait()
	peak := p.Memory("VmHWM")
	t.Logf("peak of resident memory: %d KB", peak)
	require.Less(t, peak, 100<<10)
}
