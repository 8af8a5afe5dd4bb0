package ops

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
)

// The tests of this file check failures around the gateway: descriptors, pipes, certificates,
// configurations.

// TestFewDescriptors: a gateway with more clients than the limit on open files allows rejects the
// excess, and continues to serve.
func TestFewDescriptors(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	f := s.Normal("jpg", s.Bytes(1000))
	conf := e2e.WriteConfig(t, s.Config(e2e.WithListen(nil)...))
	p := e2e.StartCommand(t, conf, exec.Command("sh", "-c", "ulimit -n 160 && exec \"$0\" -c \"$1\"", e2e.Binary, conf))
	_, page := p.AdminGet("/status")
	for _, key := range []string{"max_connections", "max_files"} {
		warning := regexp.MustCompile(`the limit on open files \(ulimit -n, LimitNOFILE=\) allows \d+ of ` + key)
		eventually.True(t, func() bool { return warning.MatchString(p.LogText()) }, key)
		require.Regexp(t, warning, page)
	}
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

// TestReloadUnderLoad: no request fails during many reloads, some of which change the store paths.
func TestReloadUnderLoad(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	f := s.Normal("jpg", s.Bytes(1000))
	p := e2e.Serve(t, s)
	var reloads sync.WaitGroup
	end := e2e.AskAlways(t, p, f, 4, false)
	for i := range 4 {
		reloads.Go(func() {
			for j := range 20 {
				if i == 0 { // the store paths change each time: another spelling of the same folders
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
	end()
}

// TestLogsAreReopenedWithABadConfiguration: a rejected reload reopens the access log, too, since
// logrotate must not depend on the configuration.
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
	p.RequireReload(422)
	p.Get(f.URL())
	e2e.ReadLines(t, path, 1)
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", p.Cmd.Process.Pid))
	require.NoError(t, err)
	for range 10 {
		p.RequireReload(422)
	}
	eventually.True(t, func() bool { // the goroutine that writes closes the old file
		after, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", p.Cmd.Process.Pid))
		return err == nil && len(after) <= len(files)+4
	}, "descriptors pile up")
}

// TestReaderOfTheLogLeaves: a gateway continues to serve after the reader of its access log, a
// pipe, has closed the pipe.
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
