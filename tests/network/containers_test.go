package network

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/tests/fdfstest"
	"fastdfs-gateway/tests/lab"
	"fastdfs-gateway/tests/stampede"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// shared is the configuration of all gateways of a test: redis, tracker and the file of the secret.
const shared = `store_path_count = 0
group_name = group1
url_have_group_name = true
tracker_server = %[2]s
base_path = /tmp
[gateway]
listen = :8888
admin_listen = :8889
user =
[cache]
memory_max = 64MB
[redis]
addresses = %[1]s
[peer]
listen = :8887
advertise = auto
secret_file = %[3]s
`

// TestOneConfigurationForAll: gateways that share one file know their own addresses, once Redis can
// be reached, and when an address has changed. So one download serves all of them, with a secret
// that was replaced as well.
func TestOneConfigurationForAll(t *testing.T) {
	if missing != nil {
		t.Skipf("SKIPPED: %v", missing)
	}
	t.Parallel()
	w := &world{network: newNetwork(t, 100)}
	w.here(clientHost, redisHost, trackerHost, storageHost)
	at := func(host, port int) string { return fmt.Sprint(w.address(host), ":", port) }
	dir, redisAt := t.TempDir(), at(redisHost, redisPort)
	var err error
	w.cluster, err = fdfstest.Start(fdfstest.Options{TrackerListen: []string{at(trackerHost, trackerPort)},
		Groups: []fdfstest.GroupSpec{{Name: "group1", Storages: []fdfstest.StorageSpec{{Listen: at(storageHost, 0)}}}}})
	require.NoError(t, err)
	t.Cleanup(w.cluster.Close)
	conf, secret := filepath.Join(dir, "gateway.conf"), filepath.Join(dir, "peer.secret")
	require.NoError(t, os.WriteFile(secret, []byte(lab.Secret+"\n"), 0o600))
	require.NoError(t, os.WriteFile(conf, fmt.Appendf(nil, shared, redisAt, w.cluster.Trackers()[0], secret), 0o600))

	hosts, netns := []int{gatewayHost, gatewayHost + 1, gatewayHost + 2}, map[int]string{}
	for _, host := range hosts {
		netns[host] = w.host(host)
		g, err := lab.Start(at(host, filesPort), filepath.Join(dir, fmt.Sprint("log", host)),
			lab.Responds("http://"+at(host, adminPort)+"/readyz"), "nsenter", "--net="+netns[host], binary, "serve",
			"-c", conf)
		require.NoError(t, err)
		t.Cleanup(func() {
			g.Stop()
			if t.Failed() {
				t.Logf("gateway %d:\n%s", host, g.Log())
			}
		})
	}
	id, content := w.put(300_000)
	url := "http://" + at(hosts[0], filesPort) + "/" + id.String()
	alone := stampede.Run(stampede.Options{Clients: 3, URLs: []string{url}, Want: content})
	require.Equal(t, len(alone), alone.Count(stampede.Whole), "Redis has not been there yet: %s", alone)

	server, err := lab.Start(redisAt, filepath.Join(dir, "redis.log"), lab.Listens(redisAt), "redis-server", "--bind",
		w.address(redisHost).String(), "--protected-mode", "no", "--dir", dir, "--save", "", "--daemonize", "no")
	require.NoError(t, err)
	t.Cleanup(server.Stop)
	client := redis.NewClient(&redis.Options{Addr: redisAt})
	t.Cleanup(func() { _ = client.Close() })
	w.members(client, hosts)
	w.requireOneDownload(hosts)

	// The last one gets another address.
	moved := hosts[2] + 10
	w.mu.Lock()
	w.ports[w.address(moved)] = w.ports[w.address(hosts[2])]
	w.mu.Unlock()
	device := fmt.Sprint("test", w.number)
	for _, command := range []string{"flush", "add " + w.address(moved).String() + "/24"} {
		args := append([]string{"--net=" + netns[hosts[2]], "ip", "address"}, strings.Fields(command)...)
		out, err := exec.Command("nsenter", append(args, "dev", device)...).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	hosts[2] = moved
	w.members(client, hosts)
	w.requireOneDownload(hosts)

	// The secret is replaced.
	require.NoError(t, os.WriteFile(secret, []byte(strings.ToUpper(lab.Secret)+"\n"), 0o600))
	before := client.HGetAll(t.Context(), "fdfs:{0}:members").Val()
	for _, host := range hosts {
		resp, err := http.Post("http://"+at(host, adminPort)+"/reload", "", nil)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, resp.StatusCode)
		require.NoError(t, resp.Body.Close())
	}
	eventually.True(t, func() bool {
		now := client.HGetAll(t.Context(), "fdfs:{0}:members").Val()
		for _, host := range hosts {
			if name := w.peer(host); now[name] == "" || now[name] == before[name] {
				return false
			}
		}
		return true
	}, "each gateway has a record of the new secret")
	w.requireOneDownload(hosts)
}

// peer is the URL of a gateway for the others.
func (w *world) peer(host int) string {
	return "https://" + net.JoinHostPort(w.address(host).String(), fmt.Sprint(peersPort))
}

// members waits until these are the gateways of the fleet.
func (w *world) members(client *redis.Client, hosts []int) {
	w.t.Helper()
	eventually.True(w.t, func() bool {
		list := client.ZRange(w.t.Context(), "fdfs:{0}:gateways", 0, -1).Val()
		for _, host := range hosts {
			if !strings.Contains(strings.Join(list, " ")+" ", w.peer(host)+" ") {
				return false
			}
		}
		return len(list) == len(hosts)
	}, "the fleet has these gateways alone")
}

// requireOneDownload waits until a file that all gateways are asked for costs one download: each of
// them knows the others then.
func (w *world) requireOneDownload(hosts []int) {
	w.t.Helper()
	eventually.True(w.t, func() bool {
		id, content := w.put(300_000)
		var urls []string
		for _, host := range hosts {
			urls = append(urls, fmt.Sprintf("http://%s:%d/%s", w.address(host), filesPort, id))
		}
		r := stampede.Run(stampede.Options{Clients: 30, URLs: urls, Want: content})
		require.Equal(w.t, len(r), r.Count(stampede.Whole), r.String())
		return w.cluster.Downloads(id).Downloads == 1
	}, "one download serves all gateways")
}
