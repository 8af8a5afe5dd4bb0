package ops

import (
	"bytes"
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

	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/lab"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
)

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
	u := p.Upgrades()
	idle := p.Keep()
	asked := func() e2e.Response {
		a := idle.Ask(e2e.Request(http.MethodGet, small.URL()))
		require.Equal(t, small.Content, a.Body)
		return a
	}
	require.False(t, asked().Close)
	first, firstConn := p.Download(large.URL())
	u.Upgrade()
	second, secondConn := p.Download(large.URL())
	require.NotEqual(t, "starter", commandOf(t, parentOf(t, u.Current())), "systemd does not see its end then")
	u.Upgrade()
	require.True(t, asked().Close)
	a := e2e.GetUnix(t, path, small.URL())
	require.Equal(t, http.StatusOK, a.StatusCode)
	require.Equal(t, small.Content, a.Body)
	require.NotContains(t, u.Log(), "msg=stopped", "two processes have a download to end")
	conns := []net.Conn{secondConn, firstConn}
	for n, resp := range []*http.Response{second, first} {
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.True(t, bytes.Equal(large.Content, body))
		require.NoError(t, conns[n].Close()) // else the process keeps it until idle_timeout
		u.Logged(n+1, "msg=stopped")
	}
	require.FileExists(t, path)
	u.Signal(syscall.SIGTERM)
	u.Logged(3, "msg=stopped")
	require.NoFileExists(t, path, "the last one removes it")
	p.AwaitExit()
	require.Equal(t, 0, p.Cmd.ProcessState.ExitCode())
}

// TestUpgradeKeepsHealthy: health_path responds 200 on a connection that is older than an upgrade,
// so a balancer that keeps the connection does not take the host out.
func TestUpgradeKeepsHealthy(t *testing.T) {
	t.Parallel()
	p := e2e.Serve(t, storetest.New(t), "[gateway]", "health_path = /health")
	u, check := p.Upgrades(), p.Keep()
	healthy := func() (closes bool) {
		a := check.Ask(e2e.Request(http.MethodGet, "/health"))
		require.Equal(t, http.StatusOK, a.StatusCode)
		return a.Close
	}
	require.False(t, healthy())
	u.Upgrade()
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
	u := p.Upgrades()
	p.Download(f.URL())
	u.Upgrade()
	require.NoError(t, p.Cmd.Process.Signal(syscall.SIGTERM))
	u.Logged(1, "msg=stopped")
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
	require.NoError(t, os.WriteFile(program, []byte("#!/bin/sh\necho $$ > '"+pidFile+"'\nexec sleep 600\n"), 0o755))
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
	u := p.Upgrades()
	failures := 0
	fails := func(why string) {
		t.Helper()
		u.Signal(syscall.SIGUSR2)
		failures++
		u.Logged(failures, "upgrade failed, this process goes on")
		require.Regexp(t, `msg="upgrade failed, this process goes on" err=.*`+why, u.Log())
		require.Equal(t, http.StatusOK, p.Get(f.URL()).StatusCode)
		require.Equal(t, http.StatusOK, e2e.GetUnix(t, path, f.URL()).StatusCode)
	}
	install("this is no program")
	fails("exec format error")
	install("#!/bin/sh\nexit 3\n")
	fails("has ended before it was ready: exit status 3")
	install("#!/bin/sh\nkill -SEGV $$\n")
	fails("has ended before it was ready: signal: segmentation fault")
	require.NoError(t, os.Remove(program))
	fails("no such file")

	install("#!/bin/sh\nread line < '" + filepath.Join(dir, "fifo") + "'\nexit 4\n")
	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o600))
	u.Signal(syscall.SIGUSR2)
	u.Logged(5, "upgrade: starting a new process")
	u.Signal(syscall.SIGUSR2)
	u.Logged(1, `msg="upgrade rejected" err="a new process is taking over`)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "fifo"), []byte("go on\n"), 0o600))
	failures++
	u.Logged(failures, "upgrade failed")

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
	eventually.True(t, func() bool { return len(doubled(t, u.First)) == 0 }, "copies of sockets are left")

	require.NoError(t, os.WriteFile(conf, []byte(good+"cache_control = no-cache\n"), 0o600))
	before := u.Current()
	u.Signal(syscall.SIGUSR2)
	eventually.True(t, func() bool { return u.Current() != before })
	pid := u.Current()
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGTERM) }) // fails if the process has ended
	u.Logged(1, "msg=stopped")
	require.Equal(t, "no-cache", p.Get(f.URL()).Header.Get("Cache-Control"), "the new process reads the configuration")
}

// TestUpgradeAppliesKeys: a reload applies some changed keys and names the others, each time. An
// upgrade applies them.
func TestUpgradeAppliesKeys(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	f := s.Normal("jpg", s.Bytes(100))
	p := e2e.Serve(t, s)
	u := p.Upgrades()
	text, err := os.ReadFile(p.Conf)
	require.NoError(t, err)
	address := lab.Address(lab.Port())
	changed := strings.Replace(string(text), "\nlisten = 127.0.0.1:0", "\nlisten = 127.0.0.1:0, "+address+
		"\nidle_timeout = 33s", 1)
	changed += "\n[lock]\nttl = 7s\n"
	require.NoError(t, os.WriteFile(p.Conf, []byte(changed), 0o600))
	for n := range 2 {
		status, text := p.AdminPost("/reload", "")
		require.Equal(t, http.StatusOK, status)
		require.Equal(t, "reloaded; only a restart, or an upgrade (SIGUSR2), applies: idle_timeout, [lock]\n", text)
		if n == 1 {
			u.Upgrade()
		}
		require.Equal(t, http.StatusOK, e2e.Fetch(t, http.DefaultClient, "http://"+address+f.URL()).StatusCode)
	}
	eventually.True(t, func() bool { _, text := p.AdminPost("/reload", ""); return text == "reloaded\n" })
}
