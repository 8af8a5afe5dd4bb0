package ops

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
)

// startWith starts a gateway with sockets as systemd passes them: as descriptors from 3 on, with
// the id of the process in LISTEN_PID.
func startWith(t *testing.T, conf string, env []string, names []string, files ...*os.File) *e2e.Process {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", `LISTEN_PID=$$ exec "$0" serve -c "$1"`, e2e.Binary, conf)
	cmd.ExtraFiles = files
	cmd.Env = append(os.Environ(), fmt.Sprintf("LISTEN_FDS=%d", len(files)), "LISTEN_FDNAMES="+strings.Join(names, ":"))
	cmd.Env = append(cmd.Env, env...)
	return e2e.StartCommand(t, conf, cmd)
}

// tcpSockets returns n listening sockets as files for startWith, and their addresses.
func tcpSockets(t *testing.T, n int) (files []*os.File, addresses []string) {
	t.Helper()
	for range n {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, ln.Close()) })
		file, err := ln.(*net.TCPListener).File()
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, file.Close()) })
		files, addresses = append(files, file), append(addresses, ln.Addr().String())
	}
	return files, addresses
}

// TestAdminSockets: the gateway serves all sockets of systemd with the name admin_listen. After an
// upgrade only the new process does: the old one ends, and so does the new one after SIGTERM.
func TestAdminSockets(t *testing.T) {
	t.Parallel()
	const n = 8 // with two, a gateway that loses sockets passes half of the runs
	files, addresses := tcpSockets(t, 1+n)
	names := append([]string{"listen"}, slices.Repeat([]string{"admin_listen"}, n)...)
	conf := e2e.WriteConfig(t, storetest.New(t).Config())
	u := startWith(t, conf, nil, names, files...).Upgrades()
	client := &http.Client{Timeout: e2e.Timeout}
	requireReady := func() {
		for _, address := range addresses[1:] {
			require.Equal(t, http.StatusOK, e2e.Fetch(t, client, "http://"+address+"/readyz").StatusCode)
		}
	}
	requireReady()
	u.Upgrade()
	u.Logged(1, "msg=stopped")
	requireReady()
	u.Signal(syscall.SIGTERM)
	u.Logged(2, "msg=stopped")
}

// systemd receives the notifications of a service.
type systemd struct {
	t     *testing.T
	path  string
	conn  *net.UnixConn
	pings int // watchdog pings received by next and pinged
}

func newSystemd(t *testing.T) *systemd {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	return &systemd{t: t, path: path, conn: conn}
}

// fill sends messages until the socket is full: a service cannot send a notification before next
// has read one.
func (s *systemd) fill() {
	s.t.Helper()
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: s.path, Net: "unixgram"})
	require.NoError(s.t, err)
	defer conn.Close()
	for err == nil {
		require.NoError(s.t, conn.SetWriteDeadline(time.Now().Add(50*time.Millisecond)))
		_, err = conn.Write([]byte("STATUS=full"))
	}
	require.ErrorIs(s.t, err, os.ErrDeadlineExceeded)
}

// next returns the fields of the next message that is not a watchdog ping.
func (s *systemd) next() map[string]string {
	s.t.Helper()
	for {
		fields := s.read()
		if fields["WATCHDOG"] == "" {
			return fields
		}
		s.pings++
	}
}

// pinged waits until n pings have arrived in total. Any other message fails the test.
func (s *systemd) pinged(n int) {
	s.t.Helper()
	for ; s.pings < n; s.pings++ {
		require.Equal(s.t, map[string]string{"WATCHDOG": "1"}, s.read())
	}
}

// read waits for a message and returns its fields. The socket has room for ten messages.
func (s *systemd) read() map[string]string {
	s.t.Helper()
	require.NoError(s.t, s.conn.SetReadDeadline(time.Now().Add(e2e.Timeout)))
	buf := make([]byte, 4096)
	n, err := s.conn.Read(buf)
	require.NoError(s.t, err)
	fields := map[string]string{}
	for line := range strings.Lines(string(buf[:n])) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		fields[name] = value
	}
	return fields
}

// TestNotify: the gateway notifies systemd when it is ready, reloads and stops, and sends watchdog
// pings.
func TestNotify(t *testing.T) {
	t.Parallel()
	sd := newSystemd(t)
	conf := e2e.WriteConfig(t, storetest.New(t).Config(e2e.WithListen(nil)...))
	cmd := exec.Command(e2e.Binary, "-c", conf)
	cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+sd.path, "WATCHDOG_USEC=20000")
	p := e2e.StartCommand(t, conf, cmd)
	require.Equal(t, map[string]string{"READY": "1"}, sd.next())
	for range 3 {
		require.Equal(t, map[string]string{"WATCHDOG": "1"}, sd.read())
	}
	for _, bad := range []bool{false, true} {
		if bad {
			require.NoError(t, os.WriteFile(conf, []byte("[gateway]\nno_such_key = 1\n"), 0o600))
		}
		require.NoError(t, cmd.Process.Signal(syscall.SIGHUP))
		reloading := sd.next()
		require.Equal(t, "1", reloading["RELOADING"])
		usec, err := strconv.ParseInt(reloading["MONOTONIC_USEC"], 10, 64)
		require.NoError(t, err)
		require.Positive(t, usec)
		require.Equal(t, map[string]string{"READY": "1"}, sd.next())
	}
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.Equal(t, map[string]string{"STOPPING": "1"}, sd.next())
	p.AwaitExit()
}
