package ops

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/fdfstest"
	"fastdfs-gateway/tests/lab"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
)

// finding is a line of "gateway doctor -json".
type finding struct{ area, subject, status, text, advice string }

// examine runs the command and returns the findings of some areas. Without areas, every finding
// must be ok.
func examine(t *testing.T, code int, conf string, areas ...string) (found []finding) {
	t.Helper()
	got, stdout, stderr := e2e.Run(t, "doctor", "-json", "-c", conf)
	require.Equal(t, code, got, "%s%s", stdout, stderr)
	require.Empty(t, stderr)
	for _, o := range objects(t, stdout) {
		text := func(key string) string { s, _ := o[key].(string); return s }
		f := finding{text("area"), text("subject"), text("status"), text("text"), text("advice")}
		require.Contains(t, []string{"ok", "warn", "fail"}, f.status)
		require.Equal(t, f.status == "ok", f.advice == "", "advice where it is needed: %v", f)
		require.NotContains(t, f.advice, "\n")
		if f.area == "clock" && f.subject == "this host" || strings.Contains(f.text, "started by root") {
			continue // depends on the machine that runs the tests
		}
		for _, area := range areas {
			if f.area == area {
				found = append(found, f)
			}
		}
		require.True(t, len(areas) > 0 || f.status == "ok", "%v", f)
	}
	return found
}

// only returns the one finding with a status.
func only(t *testing.T, found []finding, status string) finding {
	t.Helper()
	var with []finding
	for _, f := range found {
		if f.status == status {
			with = append(with, f)
		}
	}
	require.Len(t, with, 1, "%v", found)
	return with[0]
}

// TestDoctorAndFastDFS5: doctor finds the versions and the clock of a cluster of FastDFS 5.x, too.
func TestDoctorAndFastDFS5(t *testing.T) {
	t.Parallel()
	c := e2e.NewCluster(t, fdfstest.Options{OldLists: true,
		Groups: []fdfstest.GroupSpec{{Name: "group1", Count: 2, Version: "5.05"}}})
	conf := filepath.Join(t.TempDir(), "mod_fastdfs.conf")
	require.NoError(t, os.WriteFile(conf, []byte(e2e.EdgeConfig(c)), 0o600))
	found := examine(t, 0, conf, "storage", "clock")
	require.Len(t, found, 3)
	for _, f := range found {
		require.Equal(t, "ok", f.status)
		require.Regexp(t, "FastDFS 5.05|heartbeat of a storage was .* ago", f.text)
	}
}

// edited writes a copy of a configuration in which a text is replaced once, and returns its path.
func edited(t *testing.T, conf, from, to string) string {
	t.Helper()
	text, err := os.ReadFile(conf)
	require.NoError(t, err)
	require.Contains(t, string(text), from)
	return e2e.WriteConfig(t, strings.Replace(string(text), from, to, 1))
}

// TestDoctor: doctor finds no problem in a fleet that runs, and reports each fault that is made
// then.
func TestDoctor(t *testing.T) {
	t.Parallel()
	f := e2e.StartFleet(t, e2e.FleetOptions{Gateways: 2, Storages: 2, Lines: []string{"max_connections = 100"}})
	f.Formed()
	conf, other := f.Gateways[0].ConfPath(), f.Gateways[1]
	examine(t, 0, conf)

	found := examine(t, 0, conf, "tracker", "storage", "redis", "peer", "port")
	require.Contains(t, found, finding{"tracker", f.Cluster.Trackers()[0], "ok", "replies, 1 group", ""})
	require.Contains(t, found, finding{"storage", f.Cluster.Storage(0).Addr() + " (group1)", "ok",
		"replies, FastDFS 6.16.1", ""})
	require.Contains(t, found, finding{"peer", other.Name(), "ok", "responds, and has the same secret", ""})
	require.Contains(t, found, finding{"redis", "maxmemory-policy", "ok", "noeviction", ""})
	require.Contains(t, found, finding{"port", f.Gateways[0].Addrs[0], "ok",
		fmt.Sprintf("taken by the running gateway, process %d", f.Gateways[0].PID()), ""})

	t.Run("eviction", func(t *testing.T) {
		rdb := f.Redis.Client()
		require.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru").Err())
		bad := only(t, examine(t, 0, conf, "redis"), "warn")
		require.Contains(t, bad.text, "allkeys-lru")
		require.Contains(t, bad.advice, "noeviction")
		require.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory-policy", "noeviction").Err())
	})
	t.Run("another secret", func(t *testing.T) {
		otherSecret := edited(t, conf, lab.Secret, "another secret of the same length")
		for _, p := range examine(t, 1, otherSecret, "peer") {
			require.Equal(t, "fail", p.status)
			require.Contains(t, p.text, "secret")
		}
		require.Contains(t, examine(t, 1, otherSecret, "port"), finding{"port", f.Gateways[0].Addrs[0], "fail",
			fmt.Sprintf("taken by a gateway with another configuration, process %d", f.Gateways[0].PID()),
			"stop it, or change listen in [gateway]"})
	})
	t.Run("limit of the shell", func(t *testing.T) {
		few := exec.Command("sh", "-c", `ulimit -n 100; exec "$0" doctor -c "$1"`, e2e.Binary, conf)
		out, _ := few.CombinedOutput() // other findings depend on the load of the host
		require.Contains(t, string(out), fmt.Sprintf("open files: enough for 100 of max_connections = 100 "+
			"(of the running gateway, process %d)", f.Gateways[0].PID()))
	})
	t.Run("peer that does not respond", func(t *testing.T) {
		other.Pause()
		defer other.Resume()
		require.Equal(t, other.Name(), only(t, examine(t, 1, conf, "peer"), "fail").subject)
	})
	t.Run("storage", func(t *testing.T) {
		f.Cluster.Storage(1).SetFaults(fdfstest.Faults{Hang: true})
		frozen := only(t, examine(t, 1, conf, "storage"), "fail")
		require.Contains(t, frozen.text, "accepts connections, but does not reply")
		require.NotContains(t, frozen.advice, "open the port")
		f.Cluster.Storage(1).Kill()
		bad := only(t, examine(t, 1, conf, "storage"), "fail")
		require.Equal(t, f.Cluster.Storage(1).Addr()+" (group1)", bad.subject)
		require.Contains(t, bad.advice, "start fdfs_storaged there")
		f.Cluster.Storage(1).SetOnline(false)
		offline := only(t, examine(t, 0, conf, "storage"), "warn")
		require.Equal(t, "the tracker lists it as OFFLINE (status 5)", offline.text)
		require.Equal(t, "start fdfs_storaged there, or let it reach the trackers", offline.advice)
	})
	t.Run("redis", func(t *testing.T) {
		f.Redis.Kill()
		require.Contains(t, only(t, examine(t, 1, conf, "redis"), "fail").advice, "redis-server runs there")
	})
}

// TestDoctorTrackers: doctor warns of one faulty tracker of two, and fails if both are faulty.
func TestDoctorTrackers(t *testing.T) {
	t.Parallel()
	c := e2e.NewCluster(t, fdfstest.Options{Trackers: 2})
	conf := e2e.WriteConfig(t, "store_path_count = 0\nurl_have_group_name = true\ntracker_server = "+
		strings.Join(c.Trackers(), "\ntracker_server = ")+"\n[gateway]\nlisten = 127.0.0.1:0\nadmin_listen =\n")
	examine(t, 0, conf)
	c.Tracker(0).SetFaults(fdfstest.Faults{Garbage: true})
	require.Equal(t, c.Trackers()[0], only(t, examine(t, 0, conf, "tracker"), "warn").subject)
	c.Tracker(1).Kill()
	require.Len(t, examine(t, 1, conf, "tracker"), 2)
}

// TestDoctorWebServers: doctor reports a storage whose web server accepts connections and sends no
// response, if files are fetched from web servers.
func TestDoctorWebServers(t *testing.T) {
	t.Parallel()
	c := e2e.NewCluster(t, fdfstest.Options{Groups: []fdfstest.GroupSpec{{Name: "group1", Count: 1}}})
	host, _, err := net.SplitHostPort(c.Storage(0).Addr())
	require.NoError(t, err)
	ln, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	require.NoError(t, err)
	defer ln.Close()
	_, port, err := net.SplitHostPort(ln.Addr().String())
	require.NoError(t, err)
	conf := e2e.WriteConfig(t, "store_path_count = 0\nurl_have_group_name = true\ntracker_server = "+c.Trackers()[0]+
		"\n[gateway]\nlisten = 127.0.0.1:0\nadmin_listen =\nupstream = http\nupstream_http_port = "+port+"\n")
	silent := only(t, examine(t, 1, conf, "storage"), "fail")
	require.Contains(t, silent.text, "accepts connections, but does not reply: its web server")
	require.Contains(t, silent.advice, "look at the web server there")
	go func() { _ = http.Serve(ln, http.NotFoundHandler()) }() // ends with the listener
	require.Len(t, examine(t, 0, conf, "storage"), 1)
}

// TestDoctorHost: doctor checks the ports, limits, disks and store paths of this host. A gateway
// that finds its port taken names the program that has it.
func TestDoctorHost(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	taken, free, disk := ln.Addr().String(), lab.Address(lab.Port()), t.TempDir()
	conf := e2e.WriteConfig(t, s.Config("[gateway]", "listen = "+taken+", "+free, "admin_listen =",
		"allow_sources = local-networks", "max_connections = 5000",
		"[cache]", "disk_path = "+disk, "disk_max = 1000000GB"))
	found := examine(t, 1, conf, "config", "port", "limit", "disk")
	require.Contains(t, found, finding{"port", taken, "fail",
		fmt.Sprintf("taken by ops.test, process %d", os.Getpid()), "stop it, or change listen in [gateway]"})
	code, _, stderr := e2e.Run(t, "-c", conf)
	require.Equal(t, 1, code)
	require.Contains(t, stderr, fmt.Sprintf("gateway: cannot start: cannot listen on %q: listen tcp %s: bind: address "+
		"already in use; see listen in [gateway]; taken by ops.test, process %d\n", taken, taken, os.Getpid()))
	require.Contains(t, found, finding{"port", free, "ok", "free", ""})
	require.Contains(t, only(t, found, "warn").advice, "lower disk_max")
	var stores int
	for _, f := range found {
		if strings.Contains(f.text, "can be read, a store path of group") {
			stores++
		}
	}
	require.Positive(t, stores)

	few := exec.Command("sh", "-c", `ulimit -n 500; exec "$0" doctor -c "$1"`, e2e.Binary, conf)
	out, _ := few.CombinedOutput() // fails, since the port is taken
	require.Regexp(t, `warn +limit +open files: the limit on open files \(ulimit -n, LimitNOFILE=\) allows \d+ of `+
		`max_connections = 5000 \(of this shell, a service has its own\)\n +raise the limit`, string(out))

	missing := edited(t, conf, s.Root("group1", 0), "/nowhere")
	bad := only(t, examine(t, 1, missing, "config"), "fail")
	require.Contains(t, bad.text, "/nowhere")
}

// TestWrongGroup: doctor fails, and a running gateway warns in its log and on its status page,
// where no tracker has the group of the store, or has this host in it.
func TestWrongGroup(t *testing.T) {
	t.Parallel()
	c := e2e.NewCluster(t, fdfstest.Options{Groups: []fdfstest.GroupSpec{{Name: "group1", Count: 1},
		{Name: "group2", Count: 1}}})
	host, _, err := net.SplitHostPort(c.Storage(0).Addr())
	require.NoError(t, err)
	conf := e2e.WriteConfig(t, "group_name = grupo1\nstore_path0 = "+storetest.New(t).Root("group1", 0)+
		"\ntracker_server = "+c.Trackers()[0]+"\n[gateway]\nlisten = "+lab.Address(lab.Port())+
		"\nadmin_listen = "+lab.Address(lab.Port())+"\nlocal_ips = "+host+"\n")
	want := "group_name = grupo1: no tracker has this group; groups: group1, group2; this host (" + host +
		") is a storage of group1"
	require.Equal(t, want, only(t, examine(t, 1, conf, "config"), "fail").text)
	p := e2e.ServeConfig(t, conf)
	p.Logged(want)
	_, page := p.AdminGet("/status")
	require.Contains(t, page, "grupo1: no tracker has this group")
	p.Shutdown()

	other := edited(t, conf, "group_name = grupo1", "group_name = group2")
	require.Equal(t, "group_name = group2: the trackers list this host ("+host+") in group1, not in group2",
		only(t, examine(t, 1, other, "config"), "fail").text)
	right := edited(t, conf, "group_name = grupo1", "group_name = group1")
	require.Empty(t, examine(t, 0, right, "config"))
}
