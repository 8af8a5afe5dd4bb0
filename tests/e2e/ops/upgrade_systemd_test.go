package ops

import (
	"errors"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
)

// TestUpgradeNotifies: the new process sends its id to systemd before the old one exits, and the
// old one sends no more notifications.
func TestUpgradeNotifies(t *testing.T) {
	t.Parallel()
	sd := newSystemd(t)
	s := storetest.New(t)
	conf := e2e.WriteConfig(t, s.Config(e2e.WithListen(nil)...))
	cmd := exec.Command("/bin/sh", "-c", `WATCHDOG_PID=$$ exec "$0" -c "$1"`, e2e.Binary, conf)
	cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+sd.path, "WATCHDOG_USEC=600000000") // one ping, at the start
	u := e2e.StartCommand(t, conf, cmd).Upgrades()
	require.Equal(t, map[string]string{"READY": "1"}, sd.next())
	sd.pinged(1)
	u.Upgrade()
	u.Logged(1, "msg=stopped")
	require.Equal(t, map[string]string{"READY": "1", "MAINPID": strconv.Itoa(u.Current())}, sd.next())
	sd.pinged(2)
	u.Signal(syscall.SIGTERM)
	require.Equal(t, map[string]string{"STOPPING": "1"}, sd.next())
	require.Equal(t, 2, sd.pings, "one of each process")
}

// TestReloadDuringUpgrade: a reload during an upgrade is rejected, and systemd is notified of the
// end of the reload.
func TestReloadDuringUpgrade(t *testing.T) {
	t.Parallel()
	sd := newSystemd(t)
	program := filepath.Join(t.TempDir(), "gateway")
	require.NoError(t, os.Link(e2e.Binary, program))
	conf := e2e.WriteConfig(t, storetest.New(t).Config(e2e.WithListen(nil)...))
	cmd := exec.Command(program, "-c", conf)
	cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+sd.path)
	p := e2e.StartCommand(t, conf, cmd)
	require.Equal(t, map[string]string{"READY": "1"}, sd.next())
	require.NoError(t, os.Remove(program))
	require.NoError(t, os.WriteFile(program, []byte("#!/bin/sh\nexec sleep 600\n"), 0o755))
	u := p.Upgrades()
	u.Signal(syscall.SIGUSR2)
	u.Logged(1, "upgrade: starting a new process")
	u.Signal(syscall.SIGHUP)
	require.Equal(t, "1", sd.next()["RELOADING"])
	require.Equal(t, map[string]string{"READY": "1"}, sd.next())
	u.Logged(1, `msg="configuration rejected, the old one stays" err="a new process is taking over`)
}

// TestUpgradeWaitsForNotice: the process that systemd watches does not exit before the new process
// has notified systemd.
func TestUpgradeWaitsForNotice(t *testing.T) {
	t.Parallel()
	sd := newSystemd(t)
	conf := e2e.WriteConfig(t, storetest.New(t).Config(e2e.WithListen(nil)...))
	cmd := exec.Command(e2e.Binary, "-c", conf)
	cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+sd.path)
	u := e2e.StartCommand(t, conf, cmd).Upgrades()
	require.Equal(t, map[string]string{"READY": "1"}, sd.next())
	sd.fill()
	u.Upgrade()
	time.Sleep(300 * time.Millisecond) // the old process would exit meanwhile
	require.NotContains(t, u.Log(), "msg=stopped")
	for sd.next()["MAINPID"] != strconv.Itoa(u.Current()) {
	}
	u.Logged(1, "msg=stopped")
}

// TestUpgradeAfterActivation: an upgrade passes sockets of systemd on as such: no process removes
// their files.
func TestUpgradeAfterActivation(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	f := s.Normal("jpg", s.Bytes(100))
	path := filepath.Join(t.TempDir(), "files.sock")
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	require.NoError(t, err)
	defer ln.Close()
	file, err := ln.File()
	require.NoError(t, err)
	defer file.Close()
	conf := e2e.WriteConfig(t, s.Config("[gateway]", "listen = 127.0.0.1:1", "admin_listen = 127.0.0.1:0"))
	u := startWith(t, conf, nil, []string{"listen"}, file).Upgrades()
	for range 2 {
		require.Equal(t, http.StatusOK, e2e.GetUnix(t, path, f.URL()).StatusCode)
		u.Upgrade()
	}
	u.Signal(syscall.SIGTERM)
	u.Logged(3, "msg=stopped")
	require.FileExists(t, path, "it is systemd's")
	require.False(t, errors.Is(ln.Close(), net.ErrClosed))
}
