package ops

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
)

// upgraded is a gateway that replaces its process by upgrades: the first process, and the log of
// all processes.
type upgraded struct {
	t   testing.TB
	pid int
	log func() string
}

// startedBy returns the gateway with the first process p.
func startedBy(p *e2e.Process) *upgraded { return &upgraded{p.T, p.Cmd.Process.Pid, p.LogText} }

// pids returns the ids of all processes; the last one serves.
func (u *upgraded) pids() []int {
	list := []int{u.pid}
	for _, m := range e2e.ReplacedLine.FindAllStringSubmatch(u.log(), -1) {
		pid, err := strconv.Atoi(m[1])
		require.NoError(u.t, err)
		list = append(list, pid)
	}
	return list
}

func (u *upgraded) current() int { pids := u.pids(); return pids[len(pids)-1] }

// signal sends a signal to the process that serves.
func (u *upgraded) signal(s syscall.Signal) {
	u.t.Helper()
	require.NoError(u.t, syscall.Kill(u.current(), s))
}

// upgrade replaces the process that serves, and returns when the new process serves.
func (u *upgraded) upgrade() {
	u.t.Helper()
	before, serving := u.current(), strings.Count(u.log(), "msg=serving ")
	u.signal(syscall.SIGUSR2)
	eventually.True(u.t, func() bool {
		require.NotContains(u.t, u.log(), "upgrade failed")
		return u.current() != before && strings.Count(u.log(), "msg=serving ") > serving
	}, "no new process serves")
	pid := u.current()
	u.t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGTERM) }) // fails if the process has ended
}

// logged waits until the log has n lines with a text.
func (u *upgraded) logged(n int, text string) {
	u.t.Helper()
	eventually.True(u.t, func() bool { return strings.Count(u.log(), text) >= n }, text)
}

// askAlways starts n clients that request f until end is called. Each client reuses its connection
// until the gateway announces its close; with closes, each request has a new connection.
func askAlways(t *testing.T, p *e2e.Process, f storetest.Object, n int, closes bool) (end func()) {
	request := e2e.Request(http.MethodGet, f.URL())
	if closes {
		request = e2e.Request(http.MethodGet, f.URL(), "Connection: close")
	}
	return e2e.Always(t, n, func() func() error {
		var c net.Conn
		var r *bufio.Reader
		t.Cleanup(func() {
			if c != nil {
				_ = c.Close() // no response is outstanding
			}
		})
		return func() (err error) {
			if c == nil {
				if c, err = net.DialTimeout("tcp", p.Addrs[0], e2e.Timeout); err != nil {
					return err
				}
				r = bufio.NewReader(c)
			}
			keep, err := once(c, r, request, f.Content)
			if !keep {
				_ = c.Close() // the request has ended
				c = nil
			}
			return err
		}
	})
}

// once sends a request on a connection, and reports whether the connection can be reused.
func once(c net.Conn, r *bufio.Reader, request string, content []byte) (keep bool, err error) {
	if err := c.SetDeadline(time.Now().Add(e2e.Timeout)); err != nil {
		return false, err
	}
	if _, err := io.WriteString(c, request); err != nil {
		return false, err
	}
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		return false, err
	}
	body, err := io.ReadAll(resp.Body)
	if err == nil && (resp.StatusCode != http.StatusOK || !bytes.Equal(body, content)) {
		err = fmt.Errorf("status %s, %d bytes", resp.Status, len(body))
	}
	return err == nil && !resp.Close, err
}

// TestUpgradeRejectsNoRequest: clients with and without keep-alive, and wrk, see no request fail
// while the gateway is reloaded and upgraded 20 times each.
func TestUpgradeRejectsNoRequest(t *testing.T) {
	const times = 20
	s := storetest.New(t)
	f := s.Normal("jpg", s.Bytes(20000))
	p := e2e.Serve(t, s)
	u := startedBy(p)
	kept, closed := askAlways(t, p, f, 8, false), askAlways(t, p, f, 8, true)
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
		u.upgrade()
		u.signal(syscall.SIGHUP)
		u.logged(n+1, "configuration loaded")
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
	u.logged(times, "msg=stopped")
	require.Len(t, u.pids(), times+1)
}

// TestUpgradeLetsDownloadsEnd: downloads that began before upgrades continue in their processes to
// the last byte. Idle connections get one more response, which announces the close. Unix sockets
// continue to work.
func TestUpgradeLetsDownloadsEnd(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	large, small := s.Normal("mp4", s.Bytes(32<<20)), s.Normal("jpg", s.Bytes(100))
	path := filepath.Join(t.TempDir(), "files.sock")
	p := e2e.ServeConfig(t, e2e.WriteConfig(t, s.Config("[gateway]", "listen = 127.0.0.1:0, unix:"+path,
		"admin_listen = 127.0.0.1:0", "shutdown_timeout = 1s")))
	u := startedBy(p)
	idle := p.Keep()
	asked := func() e2e.Response {
		a := idle.Ask(e2e.Request(http.MethodGet, small.URL()))
		require.Equal(t, small.Content, a.Body)
		return a
	}
	require.False(t, asked().Close)
	first, firstConn := p.Download(large.URL())
	u.upgrade()
	second, secondConn := p.Download(large.URL())
	require.NotEqual(t, "starter", commandOf(t, parentOf(t, u.current())), "systemd does not see its end then")
	u.upgrade()
	require.True(t, asked().Close)
	a := getUnix(t, path, small.URL())
	require.Equal(t, http.StatusOK, a.StatusCode)
	require.Equal(t, small.Content, a.Body)
	require.NotContains(t, u.log(), "msg=stopped", "two processes have a download to end")
	conns := []net.Conn{secondConn, firstConn}
	for n, resp := range []*http.Response{second, first} {
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.True(t, bytes.Equal(large.Content, body))
		require.NoError(t, conns[n].Close()) // else the process keeps it until idle_timeout
		u.logged(n+1, "msg=stopped")
	}
	require.FileExists(t, path)
	u.signal(syscall.SIGTERM)
	u.logged(3, "msg=stopped")
	require.NoFileExists(t, path, "the last one removes it")
	p.AwaitExit()
	require.Equal(t, 0, p.Cmd.ProcessState.ExitCode())
}

// TestUpgradeKeepsHealthy: health_path responds 200 on a connection that is older than an upgrade,
// so a balancer that keeps the connection does not take the host out.
func TestUpgradeKeepsHealthy(t *testing.T) {
	t.Parallel()
	p := e2e.Serve(t, storetest.New(t), "[gateway]", "health_path = /health")
	u, check := startedBy(p), p.Keep()
	healthy := func() (closes bool) {
		a := check.Ask(e2e.Request(http.MethodGet, "/health"))
		require.Equal(t, http.StatusOK, a.StatusCode)
		return a.Close
	}
	require.False(t, healthy())
	u.upgrade()
	eventually.True(t, healthy) // the old process announces the close a moment after the new one serves
}

// parentOf returns the id of the parent of a process.
func parentOf(t *testing.T, pid int) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	require.NoError(t, err)
	m := regexp.MustCompile(`(?m)^PPid:\t(\d+)`).FindSubmatch(status)
	require.NotNil(t, m)
	parent, err := strconv.Atoi(string(m[1]))
	require.NoError(t, err)
	return parent
}

// commandOf returns the first argument of a process, or an empty string.
func commandOf(t *testing.T, pid int) string {
	t.Helper()
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	require.NoError(t, err)
	args := strings.Split(string(line), "\x00")
	return args[min(1, len(args)-1)]
}

// TestUpgradeStopped: a process that was replaced exits within shutdown_timeout after SIGTERM.
func TestUpgradeStopped(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	f := s.Normal("mp4", s.Bytes(32<<20))
	p := e2e.Serve(t, s, "[gateway]", "shutdown_timeout = 100ms", "min_send_rate = 0") // the client is never too slow
	u := startedBy(p)
	p.Download(f.URL())
	u.upgrade()
	require.NoError(t, p.Cmd.Process.Signal(syscall.SIGTERM))
	u.logged(1, "msg=stopped")
	require.Equal(t, http.StatusOK, p.Get(s.Normal("jpg", s.Bytes(10)).URL()).StatusCode)
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
	u := startedBy(p)
	u.signal(syscall.SIGUSR2)
	u.logged(1, `msg="upgrade failed, this process goes on" err="this is process 1`)
	require.Equal(t, http.StatusOK, p.Get(s.Normal("jpg", s.Bytes(10)).URL()).StatusCode)
}

// TestStopDuringUpgrade: SIGTERM ends the gateway, and a new process that is not ready yet.
func TestStopDuringUpgrade(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	program, pidFile := filepath.Join(dir, "gateway"), filepath.Join(dir, "pid")
	require.NoError(t, os.Link(e2e.Binary, program))
	conf := e2e.WriteConfig(t, storetest.New(t).Config(e2e.WithListen(nil)...))
	p := e2e.StartCommand(t, conf, exec.Command(program, "-c", conf))
	require.NoError(t, os.Remove(program))
	require.NoError(t, os.WriteFile(program, []byte("#!/bin/sh\necho $$ > "+pidFile+"\nexec sleep 600\n"), 0o755))
	require.NoError(t, p.Cmd.Process.Signal(syscall.SIGUSR2))
	var pid int
	eventually.True(t, func() bool {
		text, _ := os.ReadFile(pidFile) // the file may not exist yet
		pid, _ = strconv.Atoi(strings.TrimSpace(string(text)))
		return pid > 0
	})
	p.Shutdown()
	eventually.True(t, func() bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }, "the new process lives")
}

// doubled returns the sockets of a process that have more than one descriptor.
func doubled(t *testing.T, pid int) (sockets []string) {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	seen := map[string]bool{}
	for _, e := range entries {
		link, _ := os.Readlink(filepath.Join(dir, e.Name())) // the descriptor may be closed by now
		if seen[link] && strings.HasPrefix(link, "socket:") {
			sockets = append(sockets, link)
		}
		seen[link] = true
	}
	return sockets
}

// TestUpgradeFails: an upgrade to a program or configuration that cannot serve changes nothing, the
// log has the reason, and the next upgrade can succeed. A second upgrade at the same time is
// rejected.
func TestUpgradeFails(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	f := s.Normal("jpg", s.Bytes(100))
	dir := t.TempDir()
	program, path := filepath.Join(dir, "gateway"), filepath.Join(dir, "files.sock")
	install := func(content string) {
		_ = os.Remove(program) // the file may not exist
		require.NoError(t, os.WriteFile(program, []byte(content), 0o755))
	}
	require.NoError(t, os.Link(e2e.Binary, program))
	good := s.Config("[gateway]", "listen = 127.0.0.1:0, unix:"+path, "admin_listen = 127.0.0.1:0") + "\n"
	conf := e2e.WriteConfig(t, good)
	p := e2e.StartCommand(t, conf, exec.Command(program, "-c", conf))
	u := startedBy(p)
	failures := 0
	fails := func(why string) {
		t.Helper()
		u.signal(syscall.SIGUSR2)
		failures++
		u.logged(failures, "upgrade failed, this process goes on")
		require.Regexp(t, `msg="upgrade failed, this process goes on" err=.*`+why, u.log())
		require.Equal(t, http.StatusOK, p.Get(f.URL()).StatusCode)
		require.Equal(t, http.StatusOK, getUnix(t, path, f.URL()).StatusCode)
	}
	install("this is no program")
	fails("exec format error")
	install("#!/bin/sh\nexit 3\n")
	fails("has ended before it was ready: exit status 3")
	install("#!/bin/sh\nkill -SEGV $$\n")
	fails("has ended before it was ready: signal: segmentation fault")
	require.NoError(t, os.Remove(program))
	fails("no such file")

	install("#!/bin/sh\nread line < " + filepath.Join(dir, "fifo") + "\nexit 4\n")
	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o600))
	u.signal(syscall.SIGUSR2)
	u.logged(5, "upgrade: starting a new process")
	u.signal(syscall.SIGUSR2)
	u.logged(1, `msg="upgrade rejected" err="a new process is taking over`)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "fifo"), []byte("go on\n"), 0o600))
	failures++
	u.logged(failures, "upgrade failed")

	require.NoError(t, os.Remove(program))
	require.NoError(t, os.Link(e2e.Binary, program))
	require.NoError(t, os.WriteFile(conf, []byte(good+"no_such_key = 1\n"), 0o600))
	fails("no_such_key")
	require.NoError(t, os.WriteFile(conf, []byte(good+"user = no-such-account\n"), 0o600))
	fails("no-such-account")
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	require.NoError(t, os.WriteFile(conf, []byte(strings.Replace(good, "listen = 127.0.0.1:0,",
		"listen = 127.0.0.1:0, "+taken.Addr().String()+",", 1)), 0o600))
	fails("address already in use")
	eventually.True(t, func() bool { return len(doubled(t, u.pid)) == 0 }, "copies of sockets are left")

	require.NoError(t, os.WriteFile(conf, []byte(good+"cache_control = no-cache\n"), 0o600))
	before := u.current()
	u.signal(syscall.SIGUSR2)
	eventually.True(t, func() bool { return u.current() != before })
	pid := u.current()
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGTERM) }) // fails if the process has ended
	u.logged(1, "msg=stopped")
	require.Equal(t, "no-cache", p.Get(f.URL()).Header.Get("Cache-Control"), "the new process reads the configuration")
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
	u := startedBy(p)
	client := &http.Client{Timeout: e2e.Timeout, Transport: &http.Transport{DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{RootCAs: pool}}}
	for range 3 {
		require.Equal(t, f.Content, e2e.Fetch(t, client, "https://"+p.Addrs[0]+f.URL()).Body)
		require.Equal(t, "user nobody", rights(p)["account"])
		require.Regexp(t, `^on \(Landlock`, rights(p)["landlock"])
		u.upgrade()
	}
}

// TestUpgradeAppliesKeys: a reload applies some changed keys and names the others, each time. An
// upgrade applies them.
func TestUpgradeAppliesKeys(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	f := s.Normal("jpg", s.Bytes(100))
	p := e2e.Serve(t, s)
	u := startedBy(p)
	text, err := os.ReadFile(p.Conf)
	require.NoError(t, err)
	address := freeAddress(t)
	changed := strings.Replace(string(text), "\nlisten = 127.0.0.1:0", "\nlisten = 127.0.0.1:0, "+address+
		"\nidle_timeout = 33s", 1)
	changed += "\n[lock]\nttl = 7s\n"
	require.NoError(t, os.WriteFile(p.Conf, []byte(changed), 0o600))
	for n := range 2 {
		status, text := p.AdminPost("/reload", "")
		require.Equal(t, http.StatusOK, status)
		require.Equal(t, "reloaded; only a restart, or an upgrade (SIGUSR2), applies: idle_timeout, [lock]\n", text)
		if n == 1 {
			u.upgrade()
		}
		require.Equal(t, http.StatusOK, e2e.Fetch(t, http.DefaultClient, "http://"+address+f.URL()).StatusCode)
	}
	eventually.True(t, func() bool { _, text := p.AdminPost("/reload", ""); return text == "reloaded\n" })
}
