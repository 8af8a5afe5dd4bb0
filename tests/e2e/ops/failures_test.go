package ops

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
)

// The tests of this file make things go wrong around the gateway: descriptors, disks, pipes,
// certificates, configurations.

// TestFewDescriptors: more clients than the limit on open files allows. The gateway rejects the
// excess and keeps running.
func TestFewDescriptors(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	f := s.Normal("jpg", s.Bytes(1000))
	conf := e2e.WriteConfig(t, s.Config(e2e.WithListen(nil)...))
	p := e2e.StartCommand(t, conf, exec.Command("sh", "-c", "ulimit -n 160 && exec \"$0\" -c \"$1\"", e2e.Binary, conf))
	require.Contains(t, p.LogText(), "max_connections is more than the limit on open files allows")
	var open []net.Conn
	for range 400 {
		c, err := net.DialTimeout("tcp", p.Addrs[0], time.Second)
		if err == nil {
			open = append(open, c)
		}
	}
	for _, c := range open {
		require.NoError(t, c.Close())
	}
	eventually.True(t, func() bool { return p.Metric("fdfs_gateway_connections") == 0 })
	eventually.True(t, func() bool { return p.Sends(f.URL()) }, "clients that left may wait to be accepted")
}

// TestIdleAdminConnections: connections to the admin listener take no descriptors from the clients
// of files, and operators are served beside them.
func TestIdleAdminConnections(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	f := s.Normal("jpg", s.Bytes(1000))
	conf := e2e.WriteConfig(t, s.Config(e2e.WithListen(nil)...))
	p := e2e.StartCommand(t, conf, exec.Command("sh", "-c", "ulimit -n 300 && exec \"$0\" -c \"$1\"", e2e.Binary, conf))
	for range 600 {
		c, err := net.Dial("tcp", p.AdminAddr)
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })                                          // the gateway may have closed it
		_, _ = io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n") // from then on it may idle long
	}
	require.True(t, p.Sends(f.URL()))
	code, _ := p.AdminGet("/readyz")
	require.Equal(t, 200, code)
	require.Less(t, p.Metric("process_open_fds"), 150.)
}

// TestReloadUnderLoad: no request sees anything of many reloads, nor of one that changes the store
// paths.
func TestReloadUnderLoad(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	f := s.Normal("jpg", s.Bytes(1000))
	p := e2e.Serve(t, s)
	clients := askAlways(p.Addrs[0], map[string][]byte{f.URL(): f.Content}, 4, false)
	var reloads sync.WaitGroup
	for i := range 4 {
		reloads.Go(func() {
			for j := range 20 {
				if i == 0 { // another store each time: the same paths, written otherwise
					text := strings.ReplaceAll(s.Config(e2e.WithListen(nil)...), "/path0", strings.Repeat("/.", j%2)+
						"/path0")
					_ = os.WriteFile(p.Conf+".new", []byte(text), 0o600)
					_ = os.Rename(p.Conf+".new", p.Conf)
				}
				resp, err := http.Post("http://"+p.AdminAddr+"/reload", "", nil)
				if err != nil || resp.StatusCode != 200 {
					t.Errorf("reload: %v %v", resp, err)
					return
				}
				_ = resp.Body.Close()
			}
		})
	}
	reloads.Wait()
	clients.end(t)
}

// TestReloadKeepsTLS: taking the certificate out of the configuration needs a restart; until then
// the old one serves.
func TestReloadKeepsTLS(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	f := s.Normal("jpg", s.Bytes(1000))
	dir := t.TempDir()
	pool := e2e.Certificate(t, dir)
	p := e2e.Serve(t, s, "[gateway]", "tls_cert = "+dir+"/cert.pem", "tls_key = "+dir+"/key.pem")
	fetch := func(pool *tls.Config) error {
		client := http.Client{Transport: &http.Transport{TLSClientConfig: pool, DisableKeepAlives: true}}
		resp, err := client.Get("https://" + p.Addrs[0] + f.URL())
		if err == nil {
			err = resp.Body.Close()
		}
		return err
	}
	old := &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	require.NoError(t, fetch(old))
	renewed := &tls.Config{RootCAs: e2e.Certificate(t, dir), MinVersion: tls.VersionTLS12}
	require.Error(t, fetch(renewed))
	requireReload(p, 200)
	require.NoError(t, fetch(renewed), "a renewed certificate is taken")
	require.NoError(t, os.WriteFile(p.Conf, []byte(s.Config(e2e.WithListen(nil)...)), 0o600))
	requireReload(p, 200)
	require.NoError(t, fetch(renewed))
	eventually.True(t, func() bool { return strings.Contains(p.LogText(), "only a restart applies it") })
}

func requireReload(p *e2e.Process, status int) {
	p.T.Helper()
	resp, err := http.Post("http://"+p.AdminAddr+"/reload", "", nil)
	require.NoError(p.T, err)
	require.NoError(p.T, resp.Body.Close())
	require.Equal(p.T, status, resp.StatusCode)
}

// TestLogsAreReopenedWithABadConfiguration: logrotate must not depend on it.
func TestLogsAreReopenedWithABadConfiguration(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	f := s.Normal("jpg", s.Bytes(10))
	path := filepath.Join(t.TempDir(), "access.log")
	p := e2e.Serve(t, s, "[gateway]", "access_log = "+path)
	p.Get(f.URL())
	e2e.ReadLines(t, path, 1)
	require.NoError(t, os.Rename(path, path+".1"))
	require.NoError(t, os.WriteFile(p.Conf, []byte("[gateway]\nnonsense = 1\n"), 0o600))
	requireReload(p, 422)
	p.Get(f.URL())
	e2e.ReadLines(t, path, 1)
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", p.Cmd.Process.Pid))
	require.NoError(t, err)
	for range 10 {
		requireReload(p, 422)
	}
	eventually.True(t, func() bool { // a file that was left is closed by the goroutine that writes
		after, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", p.Cmd.Process.Pid))
		return err == nil && len(after) <= len(files)+4
	}, "descriptors pile up")
}

// TestFullDiskUnderTheAccessLog: lines are lost and counted, downloads go on.
func TestFullDiskUnderTheAccessLog(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	f := s.Normal("jpg", s.Bytes(10))
	p := e2e.Serve(t, s, "[gateway]", "access_log = /dev/full")
	for range 3 {
		require.Equal(t, 200, p.Get(f.URL()).StatusCode)
	}
	eventually.True(t, func() bool { return p.Metric(`fdfs_gateway_log_lines_lost_total{log="access"}`) == 3 })
}

// TestReaderOfTheLogLeaves: the other end of the pipe is closed; the gateway lives and serves.
func TestReaderOfTheLogLeaves(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	f := s.Normal("jpg", s.Bytes(10))
	p := e2e.Serve(t, s, "[gateway]", "access_log = -") // standard output is a pipe that the harness does not read
	for range 3 {
		require.Equal(t, 200, p.Get(f.URL()).StatusCode)
	}
	conf := e2e.WriteConfig(t, s.Config(e2e.WithListen([]string{"[gateway]", "access_log = -"})...))
	cmd := exec.Command(e2e.Binary, "-c", conf)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, out.Close())
	p = e2e.StartCommand(t, conf, cmd)
	eventually.True(t, func() bool { // lines are written once a second
		require.Equal(t, 200, p.Get(f.URL()).StatusCode)
		return p.Metric(`fdfs_gateway_log_lines_lost_total{log="access"}`) > 0
	})
	require.Equal(t, 200, p.Get(f.URL()).StatusCode)
}

// TestFileBreaksWhileItIsSent: the client gets a visibly short response, and the log, the metrics
// and the access log tell.
func TestFileBreaksWhileItIsSent(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	f := s.Normal("mp4", s.Bytes(32<<20))
	p := e2e.Serve(t, s)
	c := p.Dial()
	_, err := io.WriteString(c, "GET "+f.URL()+" HTTP/1.1\r\nHost: gw.test\r\n\r\n")
	require.NoError(t, err)
	eventually.True(t, func() bool { return p.Metric("fdfs_gateway_open_files") == 1 })
	require.NoError(t, os.Truncate(f.Path, 31<<20))
	got, err := io.ReadAll(c)
	require.NoError(t, err)
	_, body, _ := bytes.Cut(got, []byte("\r\n\r\n"))
	require.True(t, bytes.Equal(f.Content[:31<<20], body), "%d bytes", len(body))
	eventually.True(t, func() bool { return p.Metric(`fdfs_gateway_aborted_total{reason="file"}`) == 1 })
	eventually.True(t, func() bool { return strings.Contains(p.LogText(), "response aborted") })
}

// TestClientsThatLeaveAreCounted: that is no error of ours.
func TestClientsThatLeaveAreCounted(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	f := s.Normal("mp4", s.Bytes(32<<20))
	p := e2e.Serve(t, s)
	c := p.Dial()
	_, err := io.WriteString(c, "GET "+f.URL()+" HTTP/1.1\r\nHost: gw.test\r\n\r\n")
	require.NoError(t, err)
	_, err = io.CopyN(io.Discard, c, 1000)
	require.NoError(t, err)
	require.NoError(t, c.Close())
	eventually.True(t, func() bool { return p.Metric(`fdfs_gateway_aborted_total{reason="client"}`) == 1 })
	require.NotContains(t, p.LogText(), "level=ERROR")
}

// TestStopWithSilentConnections: a connection that never sent anything, and one with half a head,
// are no reason to wait.
func TestStopWithSilentConnections(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	p := e2e.Serve(t, s, "[gateway]", "read_timeout = 5m", "idle_timeout = 5m", "shutdown_timeout = 5m")
	p.Dial()
	_, err := io.WriteString(p.Dial(), "GET / HT")
	require.NoError(t, err)
	eventually.True(t, func() bool { return p.Metric("fdfs_gateway_connections") == 2 })
	began := time.Now()
	require.NoError(t, p.Cmd.Process.Signal(syscall.SIGTERM))
	p.AwaitExit()
	require.Less(t, time.Since(began), e2e.Prompt)
}

// TestLateBytesDoNotCutAResponse: the last response of a connection is still on its way when the
// client sends something unexpected. A reset would take the rest of the response away (RFC
// 9112 section 9.6).
func TestLateBytesDoNotCutAResponse(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	f := s.Normal("mp4", s.Bytes(9<<20))
	p := e2e.Serve(t, s)
	for name, behind := range map[string]int{"much behind the request": 400_000, "a byte later": 0} {
		for _, request := range []string{"GET " + f.URL() + " HTTP/1.1\r\nHost: gw.test\r\nConnection: close\r\n\r\n",
			"GET " + f.URL() + " HTTP/1.0\r\n\r\n"} {
			t.Run(name, func(t *testing.T) {
				c := p.In(t).Dial()
				_, err := io.WriteString(c, request+strings.Repeat("x", behind))
				require.NoError(t, err)
				time.Sleep(300 * time.Millisecond)
				first := make([]byte, 5<<20)
				_, err = io.ReadFull(c, first)
				require.NoError(t, err)
				time.Sleep(time.Second) // the gateway has written all of it by now
				_, err = io.WriteString(c, "x")
				require.NoError(t, err)
				time.Sleep(100 * time.Millisecond)
				rest, err := io.ReadAll(c)
				require.NoError(t, err)
				_, body, _ := bytes.Cut(append(first, rest...), []byte("\r\n\r\n"))
				require.True(t, bytes.Equal(f.Content, body), "%d bytes of %d", len(body), len(f.Content))
			})
		}
	}
	eventually.True(t, func() bool { return p.Metric("fdfs_gateway_connections") == 0 }, "and then they are closed")
}
