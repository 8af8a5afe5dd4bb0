package ops

import (
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/internal/testing/redistest"
	"fastdfs-gateway/tests/e2e"

	"github.com/stretchr/testify/require"
)

// changeFleet changes sections of a configuration, requires that a reload names them as not
// applied, and applies them by an upgrade.
func changeFleet(m *e2e.Member, sections string, changes ...string) {
	m.T.Helper()
	text, err := os.ReadFile(m.ConfPath())
	require.NoError(m.T, err)
	edited := strings.NewReplacer(changes...).Replace(string(text))
	require.NoError(m.T, os.WriteFile(m.ConfPath(), []byte(edited), 0o600))
	status, response := m.AdminPost("/reload", "")
	require.Equal(m.T, http.StatusOK, status, response)
	require.Equal(m.T, "reloaded; only a restart, or an upgrade (SIGUSR2), applies: "+sections+"\n", response)
	m.Upgrades().Upgrade()
	eventually.True(m.T, func() bool { // the old process may close its connection instead of a response
		resp, err := http.Post("http://"+m.AdminAddr+"/reload", "text/plain", nil)
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		return err == nil && string(text) == "reloaded\n"
	})
}

// readers starts n clients that request files from all gateways until end is called.
func readers(t *testing.T, f *e2e.Fleet, n int, files map[fdfs.FileID][]byte) (end func()) {
	ids := slices.Collect(maps.Keys(files))
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: n}, Timeout: e2e.Timeout}
	t.Cleanup(client.CloseIdleConnections)
	i := 0
	return e2e.Always(t, n, func() func() error {
		m := f.Gateways[i%len(f.Gateways)]
		i++
		return func() error {
			id := ids[rand.IntN(len(ids))]
			return e2e.GetWhole(client, "http://"+m.Addrs[0]+e2e.Path(id), files[id])
		}
	})
}

// someFiles stores n files, one of them larger than a segment.
func someFiles(f *e2e.Fleet, n int) map[fdfs.FileID][]byte {
	files := map[fdfs.FileID][]byte{}
	for i := range n {
		size := []int{300, 70_000}[i%2] + i
		if i == 2 {
			size = 5 << 20
		}
		id, content := f.Put(size)
		files[id] = content
	}
	return files
}

// together requires that the gateways are one fleet: a file is downloaded once, as soon as no
// gateway is in back-off for another one, and a purge by each gateway reaches all.
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
		status, response := m.AdminPost("/purge?id="+id.String(), "")
		require.Equal(f.T, http.StatusOK, status, response)
		f.Warm(id, content)
		require.Greater(f.T, f.Cluster.Downloads(id).Downloads, 1)
	}
}

// TestUpgradeToOtherRedis: two gateways move to another Redis by upgrades, one after the other. No
// request fails, the disk tiers stay, and the gateways form a fleet there. Their registrations in
// the old Redis end at once.
func TestUpgradeToOtherRedis(t *testing.T) {
	t.Parallel()
	f := e2e.StartFleet(t, e2e.FleetOptions{Gateways: 2, Disk: true, Storages: 1})
	f.Formed()
	files, segments := someFiles(f, 12), 0
	for id, content := range files {
		f.Warm(id, content)
		segments += e2e.SegmentsOf(len(content))
	}
	for _, m := range f.Gateways {
		m.OnDisk(t, segments)
	}
	f.ForgetCounts()
	end := readers(t, f, 6, files)
	from, to := f.Redis.Client(), redistest.Start(t)
	for _, m := range f.Gateways {
		name := m.Name()
		changeFleet(m, "[redis]", f.Redis.Addr(), to.Addr())
		eventually.True(t, func() bool {
			names, err := from.ZRange(t.Context(), "fdfs:{0}:gateways", 0, -1).Result()
			return err == nil && !slices.Contains(names, name)
		}, "%s is still registered", name)
		require.EqualValues(t, 1, m.Metric("fdfs_gateway_redis_up"))
	}
	end()
	for id := range files {
		require.Zero(t, f.Cluster.Downloads(id).Downloads, "it was on disk")
	}
	together(f)
	f.Redis.Kill()
	together(f)
}
