package tests

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
	"fastdfs-gateway/tests/lab"

	"github.com/stretchr/testify/require"
)

// reloads changes the configuration of a gateway, and reloads it.
func (m *member) reloads(changes ...string) (status int, answer string) {
	m.t.Helper()
	file := filepath.Join(m.o.Dir, "gateway-"+strconv.Itoa(m.o.Port), "mod_fastdfs.conf")
	text, err := os.ReadFile(file)
	require.NoError(m.t, err)
	require.NoError(m.t, os.WriteFile(file, []byte(strings.NewReplacer(changes...).Replace(string(text))), 0o600))
	status, answer = m.adminPost("/reload", "")
	if status == http.StatusOK {
		return status, answer
	}
	require.NoError(m.t, os.WriteFile(file, text, 0o600))
	return status, answer
}

func (m *member) reloaded(changes ...string) {
	m.t.Helper()
	status, answer := m.reloads(changes...)
	require.Equal(m.t, http.StatusOK, status, answer)
	require.Equal(m.t, "reloaded\n", answer)
}

// readers read files through all gateways until the returned function is called, which requires
// that each answer was right.
func (f *fleet) readers(n int, files map[fdfs.FileID][]byte) (end func()) {
	f.t.Helper()
	var ids []fdfs.FileID
	for id := range files {
		ids = append(ids, id)
	}
	stop := make(chan struct{})
	var reading sync.WaitGroup
	var answers, failed atomic.Int64
	var first atomic.Pointer[error]
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: n}, Timeout: testTimeout}
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
			m := f.gateways[i%len(f.gateways)]
			for {
				select {
				case <-stop:
					return
				default:
				}
				id := ids[rand.IntN(len(ids))]
				if err := read("http://"+m.addrs[0]+url(id), files[id]); err != nil {
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
	f.t.Cleanup(stopped)
	return func() {
		f.t.Helper()
		stopped()
		if err := first.Load(); err != nil {
			f.t.Errorf("%d of %d requests have failed; the first: %v", failed.Load(), answers.Load(), *err)
		}
		require.Positive(f.t, answers.Load())
		f.t.Logf("%d answers, all right", answers.Load())
	}
}

// someFiles stores files, one of more than a segment.
func (f *fleet) someFiles(n int) map[fdfs.FileID][]byte {
	files := map[fdfs.FileID][]byte{}
	for i := range n {
		id, content := f.put([]int{300, 70_000, 5 << 20}[i%3] + i)
		files[id] = content
	}
	return files
}

// together requires that the gateways are one fleet: a file has one download, as soon as none of
// them is in back-off for another one, and a purge by each reaches all.
func (f *fleet) together() {
	f.t.Helper()
	f.formed()
	for _, m := range f.gateways {
		var id fdfs.FileID
		var content []byte
		eventually.True(f.t, func() bool {
			id, content = f.put(5000)
			f.warm(id, content)
			return f.cluster.Downloads(id).Downloads == 1
		})
		status, answer := m.adminPost("/purge?id="+id.String(), "")
		require.Equal(f.t, http.StatusOK, status, answer)
		f.warm(id, content)
		require.Greater(f.t, f.cluster.Downloads(id).Downloads, 1)
	}
}

// TestReloadToOtherRedis: two gateways move to another Redis one after the other. No request fails,
// what is cached stays, and they are a fleet there.
func TestReloadToOtherRedis(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleetOptions{gateways: 2, disk: true, storages: 1, lines: []string{"shutdown_timeout = 3s"}})
	f.formed()
	files := f.someFiles(12)
	for id, content := range files {
		f.warm(id, content)
	}
	f.forgetCounts()
	end := f.readers(6, files)
	to := redistest.Start(t)
	for _, m := range f.gateways {
		m.reloaded(f.redis.Addr(), to.Addr())
	}
	for _, m := range f.gateways {
		eventually.True(t, func() bool { return strings.Contains(m.Log(), "the fleet before the reload was left") })
		require.EqualValues(t, 1, m.metric("fdfs_gateway_redis_up"))
	}
	end()
	for id := range files {
		require.Zero(t, f.cluster.Downloads(id).Downloads, "it was cached")
	}
	f.together()
	f.redis.Kill()
	f.together()
}

// TestReloadToOtherSecret: no request fails while the secret of a fleet is changed, and the
// gateways ask each other for files afterwards.
func TestReloadToOtherSecret(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleetOptions{gateways: 2, storages: 1, cache: []string{"memory_max = 8MB"}})
	f.formed()
	end := f.readers(6, f.someFiles(12))
	for _, m := range f.gateways {
		m.reloaded(lab.Secret, "the next secret of this experiment")
	}
	f.formed()
	end()
	f.together()
}

// TestReloadRefusedKeepsFleet: a fleet that cannot be used is refused with the reason, and
// everything is as before.
func TestReloadRefusedKeepsFleet(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleetOptions{gateways: 2, storages: 1})
	f.formed()
	m := f.gateways[0]
	peers := lab.Address(m.o.Peers)
	stop := watchMember(t, f.redis.Addr(), m.name())
	for _, tt := range []struct{ before, after, want string }{
		{"addresses = " + f.redis.Addr(), "addresses = 127.0.0.1:1", "connection refused"},
		{"listen = " + peers, "listen = " + f.gateways[1].addrs[0], "address already in use"},
		{lab.Secret, "short", "secret"},
		{"[redis]", "[redis]\ntls = true\nca_file = " + filepath.Join(m.o.Dir, "none.pem"),
			"outside of the Landlock rules"},
	} {
		status, answer := m.reloads(tt.before, tt.after)
		require.Equal(t, http.StatusUnprocessableEntity, status, answer)
		require.Contains(t, answer, tt.want)
	}
	f.together()
	looks, missing := stop()
	require.Zero(t, missing, "of %d looks", looks)
}

// TestReloadFleetsOften: 20 reloads from one fleet to another one, to none and back fail no
// request, and leave neither goroutines nor descriptors.
func TestReloadFleetsOften(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleetOptions{gateways: 2, disk: true, cache: []string{"memory_max = 8MB"},
		lines: []string{"shutdown_timeout = 1s"}})
	f.formed()
	m, one, other := f.gateways[0], f.redis.Addr(), redistest.Start(t).Addr()
	goroutines, open := func() float64 { return m.metric("go_goroutines") },
		func() float64 { return m.metric("process_open_fds") }
	requests := func() float64 { return m.metric(`fdfs_gateway_lock_acquire_total{result="ok"}`) }
	before, opened := goroutines(), open()
	end := f.readers(4, f.someFiles(12))
	last := requests()
	for range 5 {
		m.reloaded("addresses = "+one, "addresses = "+other)
		m.reloaded("advertise = ", "#advertise = ")
		m.reloaded("addresses = ", "#addresses = ")
		m.reloaded("#advertise = ", "advertise = ", "#addresses = "+other, "addresses = "+one)
		require.GreaterOrEqual(t, requests(), last)
		last = requests()
	}
	end()
	f.together()
	eventually.True(t, func() bool { return goroutines() < before+20 && open() < opened+20 },
		"the last fleet that was left has ended")
	require.NotContains(t, m.Log(), "everything is dropped")
}
