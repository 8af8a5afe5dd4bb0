package ops

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/internal/testing/redistest"
	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/lab"

	"github.com/stretchr/testify/require"
)

// reloads changes the configuration of a gateway, and reloads it.
func reloads(m *e2e.Member, changes ...string) (status int, answer string) {
	m.T.Helper()
	file := filepath.Join(m.Options.Dir, "gateway-"+strconv.Itoa(m.Options.Port), "mod_fastdfs.conf")
	text, err := os.ReadFile(file)
	require.NoError(m.T, err)
	require.NoError(m.T, os.WriteFile(file, []byte(strings.NewReplacer(changes...).Replace(string(text))), 0o600))
	status, answer = m.AdminPost("/reload", "")
	if status == http.StatusOK {
		return status, answer
	}
	require.NoError(m.T, os.WriteFile(file, text, 0o600))
	return status, answer
}

func reloaded(m *e2e.Member, changes ...string) {
	m.T.Helper()
	status, answer := reloads(m, changes...)
	require.Equal(m.T, http.StatusOK, status, answer)
	require.Equal(m.T, "reloaded\n", answer)
}

// readers read files through all gateways until the returned function is called, which requires
// that each answer was right.
func readers(f *e2e.Fleet, n int, files map[fdfs.FileID][]byte) (end func()) {
	f.T.Helper()
	var ids []fdfs.FileID
	for id := range files {
		ids = append(ids, id)
	}
	stop := make(chan struct{})
	var reading sync.WaitGroup
	var answers, failed atomic.Int64
	var first atomic.Pointer[error]
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: n}, Timeout: e2e.Timeout}
	read := func(url string, content []byte) error {
		resp, err := client.Get(url)
		if err != nil {
			return err
		}
		body, err := io.ReadAll(resp.Body)
		if err = errors.Join(err, resp.Body.Close()); err == nil && !bytes.Equal(body, content) {
			err = fmt.Errorf("%s: %s, %d other bytes", url, resp.Status, len(body))
		}
		return err
	}
	for i := range n {
		reading.Go(func() {
			m := f.Gateways[i%len(f.Gateways)]
			for {
				select {
				case <-stop:
					return
				default:
				}
				id := ids[rand.IntN(len(ids))]
				if err := read("http://"+m.Addrs[0]+e2e.Path(id), files[id]); err != nil {
					failed.Add(1)
					first.CompareAndSwap(nil, &err)
				}
				answers.Add(1)
			}
		})
	}
	stopped := sync.OnceFunc(func() {
		close(stop)
		reading.Wait()
		client.CloseIdleConnections()
	})
	f.T.Cleanup(stopped)
	return func() {
		f.T.Helper()
		stopped()
		if err := first.Load(); err != nil {
			f.T.Errorf("%d of %d requests have failed; the first: %v", failed.Load(), answers.Load(), *err)
		}
		require.Positive(f.T, answers.Load())
		f.T.Logf("%d answers, all right", answers.Load())
	}
}

// someFiles stores files, one of more than a segment.
func someFiles(f *e2e.Fleet, n int) map[fdfs.FileID][]byte {
	files := map[fdfs.FileID][]byte{}
	for i := range n {
		id, content := f.Put([]int{300, 70_000, 5 << 20}[i%3] + i)
		files[id] = content
	}
	return files
}

// together requires that the gateways are one fleet: a file has one download, as soon as none of
// them is in back-off for another one, and a purge by each reaches all.
func together(f *e2e.Fleet) {
	f.T.Helper()
	f.Formed()
	for _, m := range f.Gateways {
		var id fdfs.FileID
		var content []byte
		eventually.True(f.T, func() bool {
			id, content = f.Put(5000)
			f.Warm(id, content)
			return f.Cluster.Downloads(id).Downloads == 1
		})
		status, answer := m.AdminPost("/purge?id="+id.String(), "")
		require.Equal(f.T, http.StatusOK, status, answer)
		f.Warm(id, content)
		require.Greater(f.T, f.Cluster.Downloads(id).Downloads, 1)
	}
}

// TestReloadToOtherRedis: two gateways move to another Redis one after the other. No request fails,
// what is cached stays, and they are a fleet there.
func TestReloadToOtherRedis(t *testing.T) {
	t.Parallel()
	f := e2e.StartFleet(t, e2e.FleetOptions{Gateways: 2, Disk: true, Storages: 1,
		Lines: []string{"shutdown_timeout = 3s"}})
	f.Formed()
	files := someFiles(f, 12)
	for id, content := range files {
		f.Warm(id, content)
	}
	f.ForgetCounts()
	end := readers(f, 6, files)
	to := redistest.Start(t)
	for _, m := range f.Gateways {
		reloaded(m, f.Redis.Addr(), to.Addr())
	}
	for _, m := range f.Gateways {
		eventually.True(t, func() bool { return strings.Contains(m.Log(), "the fleet before the reload was left") })
		require.EqualValues(t, 1, m.Metric("fdfs_gateway_redis_up"))
	}
	end()
	for id := range files {
		require.Zero(t, f.Cluster.Downloads(id).Downloads, "it was cached")
	}
	together(f)
	f.Redis.Kill()
	together(f)
}

// TestReloadToOtherSecret: no request fails while the secret of a fleet is changed, and the
// gateways ask each other for files afterwards.
func TestReloadToOtherSecret(t *testing.T) {
	t.Parallel()
	f := e2e.StartFleet(t, e2e.FleetOptions{Gateways: 2, Storages: 1, Cache: []string{"memory_max = 8MB"}})
	f.Formed()
	end := readers(f, 6, someFiles(f, 12))
	for _, m := range f.Gateways {
		reloaded(m, lab.Secret, "the next secret of this experiment")
	}
	f.Formed()
	end()
	together(f)
}

// TestReloadRefusedKeepsFleet: a fleet that cannot be used is refused with the reason, and
// everything is as before.
func TestReloadRefusedKeepsFleet(t *testing.T) {
	t.Parallel()
	f := e2e.StartFleet(t, e2e.FleetOptions{Gateways: 2, Storages: 1})
	f.Formed()
	m := f.Gateways[0]
	peers := lab.Address(m.Options.Peers)
	stop := watchMember(t, f.Redis.Addr(), m.Name())
	for _, tt := range []struct{ before, after, want string }{
		{"addresses = " + f.Redis.Addr(), "addresses = 127.0.0.1:1", "connection refused"},
		{"listen = " + peers, "listen = " + f.Gateways[1].Addrs[0], "address already in use"},
		{lab.Secret, "short", "secret"},
		{"[redis]", "[redis]\ntls = true\nca_file = " + filepath.Join(m.Options.Dir, "none.pem"),
			"outside of the Landlock rules"},
	} {
		status, answer := reloads(m, tt.before, tt.after)
		require.Equal(t, http.StatusUnprocessableEntity, status, answer)
		require.Contains(t, answer, tt.want)
	}
	together(f)
	looks, missing := stop()
	require.Zero(t, missing, "of %d looks", looks)
}

// TestReloadFleetsOften: 20 reloads from one fleet to another one, to none and back fail no
// request, and leave neither goroutines nor descriptors.
func TestReloadFleetsOften(t *testing.T) {
	t.Parallel()
	f := e2e.StartFleet(t, e2e.FleetOptions{Gateways: 2, Disk: true, Cache: []string{"memory_max = 8MB"},
		Lines: []string{"shutdown_timeout = 1s"}})
	f.Formed()
	m, one, other := f.Gateways[0], f.Redis.Addr(), redistest.Start(t).Addr()
	goroutines, open := func() float64 { return m.Metric("go_goroutines") },
		func() float64 { return m.Metric("process_open_fds") }
	requests := func() float64 { return m.Metric(`fdfs_gateway_lock_acquire_total{result="ok"}`) }
	before, opened := goroutines(), open()
	end := readers(f, 4, someFiles(f, 12))
	last := requests()
	for range 5 {
		reloaded(m, "addresses = "+one, "addresses = "+other)
		reloaded(m, "advertise = ", "#advertise = ")
		reloaded(m, "addresses = ", "#addresses = ")
		reloaded(m, "#advertise = ", "advertise = ", "#addresses = "+other, "addresses = "+one)
		require.GreaterOrEqual(t, requests(), last)
		last = requests()
	}
	end()
	together(f)
	eventually.True(t, func() bool { return goroutines() < before+20 && open() < opened+20 },
		"the last fleet that was left has ended")
	require.NotContains(t, m.Log(), "everything is dropped")
}
