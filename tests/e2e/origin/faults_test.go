package origin

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/fdfstest"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
)

// zeros is a file of any size that needs no memory.
type zeros struct{}

func (zeros) ReadAt(p []byte, _ int64) (int, error) {
	clear(p)
	return len(p), nil
}

// TestMemoryOfManyDownloads: 50 clients, each pulling a large file through the gateway, at under
// 100 MB resident.
func TestMemoryOfManyDownloads(t *testing.T) {
	t.Parallel()
	size := int64(16 << 20)
	if e2e.Long {
		size = 200 << 20
	}
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

// TestRandomFaults: many downloads while the storages fail in every way in turn. Each client gets
// the exact bytes, an error, or a visibly short body.
func TestRandomFaults(t *testing.T) {
	t.Parallel()
	downloads := 300
	if e2e.Long {
		downloads = 5000
	}
	c := e2e.NewCluster(t, fdfstest.Options{})
	s := storetest.New(t)
	contents := map[fdfs.FileID][]byte{}
	var ids []fdfs.FileID
	for _, size := range []int{0, 1, 1000, 70000, 300000, 1 << 20} {
		content := s.Bytes(size)
		id := e2e.Put(t, c, fdfstest.FileSpec{Group: "group1", Content: content, Ext: "bin", Created: e2e.LongAgo})
		ids, contents[id] = append(ids, id), content
	}
	p := e2e.Edge(t, c)
	var stop atomic.Bool
	var breaker, clients sync.WaitGroup
	breaker.Go(func() {
		random := rand.New(rand.NewPCG(1, 2))
		for !stop.Load() {
			c.Storage(random.IntN(2)).SetFaults(randomFault(random))
			time.Sleep(5 * time.Millisecond)
		}
	})
	var whole, short, rejected atomic.Int64
	for i := range 8 {
		clients.Go(func() {
			for j := range downloads / 8 {
				id := ids[(i+j)%len(ids)]
				resp, err := http.Get("http://" + p.Addrs[0] + e2e.Path(id))
				if err != nil {
					t.Error(err)
					return
				}
				body, err := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				switch {
				case resp.StatusCode >= 500:
					rejected.Add(1)
				case resp.StatusCode != 200:
					t.Errorf("%s: status %d", e2e.Path(id), resp.StatusCode)
				case err != nil:
					short.Add(1)
				case !bytes.Equal(body, contents[id]):
					t.Errorf("%s: %d bytes with a clean end, other than the %d of the file", e2e.Path(id), len(body),
						len(contents[id]))
				default:
					whole.Add(1)
				}
			}
		})
	}
	clients.Wait()
	stop.Store(true)
	breaker.Wait()
	t.Logf("%d whole, %d visibly short, %d rejected", whole.Load(), short.Load(), rejected.Load())
	require.Greater(t, whole.Load(), int64(downloads/4))
	for i := range 2 {
		c.Storage(i).SetFaults(fdfstest.Faults{})
	}
	eventually.True(t, func() bool { return bytes.Equal(p.Get(e2e.Path(ids[5])).Body, contents[ids[5]]) })
}

func randomFault(random *rand.Rand) fdfstest.Faults {
	at := random.IntN(100000)
	switch random.IntN(10) {
	case 0:
		return fdfstest.Faults{BreakAt: &at}
	case 1:
		return fdfstest.Faults{ResetAt: &at}
	case 2:
		return fdfstest.Faults{Garbage: true}
	case 3:
		return fdfstest.Faults{WrongLength: int64(random.IntN(2000) - 1000)}
	case 4:
		return fdfstest.Faults{Delay: 20 * time.Millisecond}
	case 5:
		return fdfstest.Faults{Status: 16}
	}
	return fdfstest.Faults{}
}
