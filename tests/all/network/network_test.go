package network

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/tests/fdfstest"
	"fastdfs-gateway/tests/lab"
	"fastdfs-gateway/tests/stampede"

	"github.com/stretchr/testify/require"
)

// Ports are the same on all hosts.
const (
	filesPort, adminPort, peersPort, redisPort, trackerPort = 8888, 8889, 8887, 6379, 22122
)

// Hosts by the last byte of their addresses.
const (
	redisHost, trackerHost, storageHost, gatewayHost = 2, 3, 11, 21
	gateways                                         = 2
)

// TestBadNetwork: every client gets the whole file while packets between gateways, Redis, trackers
// and storages are lost, late and out of order. A cold file with many clients costs at most two
// downloads for each gateway, and one download on a good network.
func TestBadNetwork(t *testing.T) {
	if missing != nil {
		t.Skipf("SKIPPED: %v", missing)
	}
	for number, c := range []struct {
		name string
		conditions
	}{
		{"good", conditions{}},
		{"1 % lost", conditions{loss: .01}},
		{"5 % lost", conditions{loss: .05}},
		{"late", conditions{delay: 20 * time.Millisecond}},
		{"out of order", conditions{delay: 5 * time.Millisecond, jitter: 20 * time.Millisecond}},
		{"5 % lost, out of order", conditions{loss: .05, delay: time.Millisecond, jitter: 10 * time.Millisecond}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, number+1)
			w.bad.Store(&c.conditions)
			if c.name != "good" {
				w.play()
				return
			}
			// If a busy machine stops a gateway for longer than a lease, another gateway downloads
			// too: such a scene is repeated.
			for scene := 1; !w.play(); scene++ {
				require.Less(t, scene, 5, "in no scene each file was downloaded once")
			}
		})
	}
}

// world is a fleet whose parts run on separate hosts.
type world struct {
	*network
	cluster *fdfstest.Cluster
	urls    []string // of the gateways
}

func newWorld(t *testing.T, number int) *world {
	t.Helper()
	w := &world{network: newNetwork(t, number)}
	w.here(clientHost, redisHost, trackerHost, storageHost, storageHost+1)
	at := func(host, port int) string { return fmt.Sprint(w.address(host), ":", port) }
	dir, redis := t.TempDir(), at(redisHost, redisPort)
	server, err := lab.Start(redis, filepath.Join(dir, "redis.log"), lab.Listens(redis), "redis-server", "--bind",
		w.address(redisHost).String(), "--protected-mode", "no", "--dir", dir, "--save", "", "--daemonize", "no")
	require.NoError(t, err)
	t.Cleanup(server.Stop)
	w.cluster, err = fdfstest.Start(fdfstest.Options{TrackerListen: []string{at(trackerHost, trackerPort)},
		Groups: []fdfstest.GroupSpec{{Name: "group1", Storages: []fdfstest.StorageSpec{
			{Listen: at(storageHost, 0)}, {Listen: at(storageHost+1, 0)}}}}})
	require.NoError(t, err)
	t.Cleanup(w.cluster.Close)
	for i := range gateways {
		host := gatewayHost + i
		g, err := lab.StartGateway(lab.GatewayOptions{Binary: binary, Dir: t.TempDir(), Redis: redis,
			Trackers: w.cluster.Trackers(), Host: w.address(host).String(), Netns: w.network.host(host),
			Port: filesPort, Admin: adminPort, Peers: peersPort, Cache: []string{"memory_max = 64MB"}})
		require.NoError(t, err)
		t.Cleanup(func() {
			g.Stop()
			if t.Failed() {
				t.Logf("gateway %s:\n%s", g.Addr, g.Log())
			}
			require.NotContains(t, g.Log(), "BUG:")
		})
		w.urls = append(w.urls, "http://"+net.JoinHostPort(w.address(host).String(), fmt.Sprint(filesPort))+"/")
	}
	return w
}

// put stores a file of random content in the storages.
func (w *world) put(size int) (fdfs.FileID, []byte) {
	w.t.Helper()
	content := make([]byte, size)
	for i := range content {
		content[i] = byte(rand.Uint32())
	}
	id, err := w.cluster.Put(fdfstest.FileSpec{Group: "group1", Content: content, Ext: "bin",
		Created: time.Date(2024, 2, 29, 12, 30, 45, 0, time.UTC)})
	require.NoError(w.t, err)
	return id, content
}

// play sends requests of many clients for cold files, and again when the gateways have the files.
// It reports whether each file was downloaded once.
func (w *world) play() bool {
	t, once, all := w.t, 0, 0
	var worst time.Duration
	sizes := []int{2000, 300_000, 2_000_000}
	if os.Getenv("TEST_LONG") != "" {
		sizes = slices.Repeat(sizes, 20)
	}
	for _, size := range sizes {
		id, content := w.put(size)
		var urls []string
		for _, u := range w.urls {
			urls = append(urls, u+id.String())
		}
		for range 2 {
			r := stampede.Run(stampede.Options{Clients: 20, URLs: urls, Want: content, Timeout: time.Minute})
			require.Equal(t, len(r), r.Count(stampede.Whole), r.String())
			worst = max(worst, r.Whole(1))
		}
		n := w.cluster.Downloads(id).Downloads
		require.LessOrEqual(t, n, 2*gateways, "downloads of %d bytes", size)
		if all++; n == 1 {
			once++
		}
	}
	t.Logf("%d of %d files were downloaded once; slowest client %s; %d packets of %d lost", once, all,
		worst.Round(time.Millisecond), w.lost.Load(), w.moved.Load())
	if w.bad.Load().loss > 0 {
		require.Positive(t, w.lost.Load())
	}
	return once == all
}
