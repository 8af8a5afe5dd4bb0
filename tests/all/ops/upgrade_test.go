package ops

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"

	"fastdfs-gateway/tests/fdfstest"
)

// TestUpgradeRejectsNoRequest: clients with and without keep-alive, and wrk, see no request fail
// while the gateway is reloaded and upgraded 20 times each.
func TestUpgradeRejectsNoRequest(t *testing.T) {
	const times = 20
	s := storetest.New(t)
	f := s.Normal("jpg", s.Bytes(20000))
	p := e2e.Serve(t, s)
	u := p.Upgrades()
	kept, closed := e2e.AskAlways(t, p, f, 8, false), e2e.AskAlways(t, p, f, 8, true)
	var wrk *exec.Cmd
	var report bytes.Buffer
	if path, err := exec.LookPath("wrk"); err == nil {
		wrk = exec.Command(path, "-t1", "-c16", "-d4s", "http://"+p.Addrs[0]+f.URL())
		wrk.Stdout, wrk.Stderr = &report, &report
		require.NoError(t, wrk.Start())
	} else {
		t.Log("without wrk, which is missing (apt-get install wrk)")
	}
	began := time.Now()
	for n := range times {
		u.Upgrade()
		u.Signal(syscall.SIGHUP)
		u.Logged(n+1, "configuration loaded")
	}
	t.Logf("%d upgrades and reloads in %s", times, time.Since(began))
	if wrk != nil {
		require.NoError(t, wrk.Wait())
		require.NotContains(t, report.String(), "Socket errors", report.String())
		require.NotContains(t, report.String(), "Non-2xx", report.String())
		t.Log(report.String())
	}
	kept()
	closed()
	u.Logged(times, "msg=stopped")
	require.Len(t, u.PIDs(), times+1)
}

// TestUpgradeOfProcessOne: process 1, whose exit ends a container, is not replaced.
func TestUpgradeOfProcessOne(t *testing.T) {
	t.Parallel()
	needRoot(t)
	s := storetest.New(t)
	conf := e2e.WriteConfig(t, s.Config(e2e.WithListen(nil)...))
	cmd := exec.Command(e2e.Binary, "-c", conf)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	p := e2e.StartCommand(t, conf, cmd)
	u := p.Upgrades()
	u.Signal(syscall.SIGUSR2)
	u.Logged(1, `msg="upgrade failed, this process goes on" err="this is process 1`)
	require.Equal(t, http.StatusOK, p.Get(s.Normal("jpg", s.Bytes(10)).URL()).StatusCode)
}

// TestUpgradeAsUser: a gateway that has dropped the privileges of root, and is sandboxed by
// Landlock, is replaced by a process that starts with all privileges, and drops them, too. TLS
// continues to work.
func TestUpgradeAsUser(t *testing.T) {
	t.Parallel()
	needRoot(t)
	needLandlock(t)
	s := storetest.New(t)
	f := s.Normal("jpg", s.Bytes(100))
	dir := t.TempDir()
	pool := e2e.Certificate(t, dir) // only root can read the key
	for path := s.Dir; path != "/" && path != os.TempDir(); path = filepath.Dir(path) {
		require.NoError(t, os.Chmod(path, 0o755))
	}
	p := e2e.Serve(t, s, "[gateway]", "user = nobody", "tls_cert = "+dir+"/cert.pem", "tls_key = "+dir+"/key.pem")
	u := p.Upgrades()
	client := &http.Client{Timeout: e2e.Timeout, Transport: &http.Transport{DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{RootCAs: pool}}}
	for range 3 {
		require.Equal(t, f.Content, e2e.Fetch(t, client, "https://"+p.Addrs[0]+f.URL()).Body)
		require.Equal(t, "user nobody", rights(p)["account"])
		require.Regexp(t, `^on \(Landlock`, rights(p)["landlock"])
		u.Upgrade()
	}
}

// TestServesWithoutUpgrades: a gateway that cannot prepare for upgrades, here because /proc is
// missing, serves. At its start, and again after SIGUSR2, it logs that only a restart replaces it.
func TestServesWithoutUpgrades(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("skipped: only root can take /proc away")
	}
	s := storetest.New(t)
	f := s.Normal("jpg", s.Bytes(100))
	conf := e2e.WriteConfig(t, s.Config(e2e.WithListen(nil)...))
	p := e2e.StartCommand(t, conf, exec.Command("unshare", "--mount", "sh", "-c",
		`umount -l /proc && exec "$0" serve -c "$1"`, e2e.Binary, conf))
	const why = `err="cannot find the program .*/proc/self/exe: no such file or directory"`
	require.Regexp(t, `msg="SIGUSR2 cannot upgrade this process, a restart can" `+why, p.LogText())
	require.NoError(t, p.Cmd.Process.Signal(syscall.SIGUSR2))
	p.Upgrades().Logged(1, "upgrade failed, this process goes on")
	require.Regexp(t, `msg="upgrade failed, this process goes on" `+why, p.LogText())
	require.Equal(t, http.StatusOK, p.Get(f.URL()).StatusCode)
}

// TestUpgradeForgets: without a fleet, a process that was replaced frees most of its cache, and a
// later purge reaches it, too.
func TestUpgradeForgets(t *testing.T) {
	t.Parallel()
	f := e2e.StartFleet(t, e2e.FleetOptions{Gateways: 1, NoRedis: true, Storages: 1})
	m := f.Gateways[0]
	id, content := f.Put(5000)
	f.Warm(id, content)
	for range 24 {
		f.Warm(f.Put(e2e.Segment))
	}
	first := m.PID()
	memory := func() int { return e2e.MemoryOf(t, first, "VmRSS") }
	require.Greater(t, memory(), 24*e2e.Segment>>10)
	u := m.Upgrades()
	c := m.Keep()
	ask := func() e2e.Response {
		a := c.Ask(e2e.Request(http.MethodGet, e2e.Path(id)))
		require.Equal(t, content, a.Body)
		require.Equal(t, 1, f.Cluster.Downloads(id).Downloads)
		return a
	}
	ask()
	u.Upgrade()
	eventually.True(t, func() bool { return memory() < 24*e2e.Segment>>10 }, "the old process keeps little")
	u.Upgrade()
	f.ForgetCounts()
	status, _ := m.AdminPost("/purge?all=1", "")
	require.Equal(t, http.StatusOK, status)
	require.True(t, ask().Close)
}

// TestUpgradeLetsCommandsEnd: a process that was replaced serves a command that has reached it to
// the end.
func TestUpgradeLetsCommandsEnd(t *testing.T) {
	t.Parallel()
	f := e2e.StartFleet(t, e2e.FleetOptions{Gateways: 1, NoRedis: true, Storages: 1})
	m := f.Gateways[0]
	cached, content := f.Put(1000)
	f.Warm(cached, content)
	f.Settled()
	hangs, _ := f.Put(1000)
	f.Fault(fdfstest.Faults{Hang: true})
	cmd := exec.Command(e2e.Binary, "prefetch", "-admin", m.AdminAddr, cached.String(), hangs.String())
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewReader(out)
	line, err := lines.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, cached.String()+" cached 1000\n", line)
	u := m.Upgrades()
	u.Upgrade()
	require.NotContains(t, u.Log(), "msg=stopped")
	f.Fault()
	rest, err := io.ReadAll(lines)
	require.NoError(t, err)
	require.NoError(t, cmd.Wait())
	require.Equal(t, hangs.String()+" fetched 1000\ndone: 2 files, 0 failed\n", string(rest))
	u.Logged(1, "msg=stopped")
}
