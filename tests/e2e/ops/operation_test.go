package ops

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/lab"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
)

// TestStopLetsResponsesEnd: after SIGQUIT, the graceful stop of nginx, the gateway completes a
// running download, accepts no connection, closes idle ones, responds 503 to /readyz, and exits
// with code 0. All other tests stop it by SIGTERM.
func TestStopLetsResponsesEnd(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	f := s.Normal("mp4", s.Bytes(32<<20))
	p := e2e.Serve(t, s, "[gateway]", "read_timeout = 5m", "shutdown_timeout = 5m")
	idle := p.Dial()
	_, err := io.WriteString(idle, e2e.Request(http.MethodHead, f.URL()))
	require.NoError(t, err)
	_, err = idle.Read(make([]byte, 4096))
	require.NoError(t, err)
	resp, _ := p.Download(f.URL())
	require.NoError(t, p.Cmd.Process.Signal(syscall.SIGQUIT))
	eventually.True(t, func() bool {
		probe, err := net.Dial("tcp", p.Addrs[0])
		if err == nil {
			_ = probe.Close()
		}
		return err != nil
	}, "still accepting")
	status, text := p.AdminGet("/readyz")
	require.Equal(t, 503, status)
	require.Contains(t, text, "stopping")
	got, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.True(t, bytes.Equal(f.Content, got))
	_, err = idle.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF, "idle connections are closed")
	p.AwaitExit()
	require.Equal(t, 0, p.Cmd.ProcessState.ExitCode())
}

// TestStopDoesNotWaitForEver: a gateway that stops disconnects a client that never reads after
// shutdown_timeout.
func TestStopDoesNotWaitForEver(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	f := s.Normal("mp4", s.Bytes(32<<20))
	p := e2e.Serve(t, s, "[gateway]", "shutdown_timeout = 1s", "min_send_rate = 0") // the client is never too slow
	_, err := io.WriteString(p.Dial(), "GET "+f.URL()+" HTTP/1.1\r\nHost: gw.test\r\n\r\n")
	require.NoError(t, err)
	eventually.True(t, func() bool { return p.Metric("fdfs_gateway_open_files") == 1 })
	p.Shutdown()
}

// TestSecondSignal: a second SIGTERM ends the process at once, in the middle of a download.
func TestSecondSignal(t *testing.T) {
	t.Parallel()
	s, dir, addr := storetest.New(t), t.TempDir(), lab.Address(lab.Port())
	f := s.Normal("mp4", s.Bytes(32<<20))
	conf := e2e.WriteConfig(t, s.Config("[gateway]", "listen = "+addr, "admin_listen =", "shutdown_timeout = 5m"))
	p, err := lab.Start(addr, filepath.Join(dir, "log"), lab.Listens(addr), e2e.Binary, "serve", "-c", conf)
	require.NoError(t, err)
	t.Cleanup(p.Kill)
	resp, err := http.Get("http://" + addr + f.URL())
	require.NoError(t, err)
	defer resp.Body.Close()
	require.NoError(t, syscall.Kill(p.PID(), syscall.SIGTERM))
	eventually.True(t, func() bool { return strings.Contains(p.Log(), "msg=stopping") })
	require.NoError(t, syscall.Kill(p.PID(), syscall.SIGTERM))
	select {
	case <-p.Done:
	case <-time.After(e2e.Timeout):
		t.Fatal("it does not end")
	}
	require.NotContains(t, p.Log(), "msg=stopped")
}

// TestReload: SIGHUP and POST /reload apply a changed configuration. A bad one is rejected with its
// errors, and the old one stays.
func TestReload(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	f := s.Normal("jpg", s.Bytes(100))
	lines := func(cacheControl string) string {
		return s.Config(e2e.WithListen([]string{"[gateway]", "cache_control = " + cacheControl})...)
	}
	p := e2e.ServeConfig(t, e2e.WriteConfig(t, lines("max-age=1")))
	reload := func() (int, string) { return p.AdminPost("/reload", "") }
	require.Equal(t, "max-age=1", p.Get(f.URL()).Header.Get("Cache-Control"))

	require.NoError(t, os.WriteFile(p.Conf, []byte(lines("max-age=2")), 0o600))
	status, text := reload()
	require.Equal(t, 200, status, text)
	require.Equal(t, "max-age=2", p.Get(f.URL()).Header.Get("Cache-Control"))

	require.NoError(t, os.WriteFile(p.Conf, []byte(lines("max-age=3")+"\nmax_ranges = many\n"), 0o600))
	status, text = reload()
	require.Equal(t, 422, status)
	require.Contains(t, text, "max_ranges")
	require.Equal(t, "max-age=2", p.Get(f.URL()).Header.Get("Cache-Control"), "the old one stays")

	require.NoError(t, os.WriteFile(p.Conf, []byte(lines("max-age=4")), 0o600))
	require.NoError(t, p.Cmd.Process.Signal(syscall.SIGHUP))
	eventually.True(t, func() bool { return p.Get(f.URL()).Header.Get("Cache-Control") == "max-age=4" })
}

// TestReadyFollowsTheStore: /readyz and requests for files of a store path get 503 while the path
// is missing, and 200 as soon as it is back.
func TestReadyFollowsTheStore(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	f := s.In(storetest.Group, 1, "jpg", s.Bytes(100))
	p := e2e.Serve(t, s)
	status, _ := p.AdminGet("/readyz")
	require.Equal(t, 200, status)
	root := s.Root(storetest.Group, 1)
	require.NoError(t, os.Rename(root, root+"-away"))
	var text string
	eventually.True(t, func() bool { // a check that began before may still run
		status, text = p.AdminGet("/readyz")
		return status == 503
	})
	require.Contains(t, text, "store path 1 of group group1")
	a := p.Get(f.URL())
	require.Equal(t, 503, a.StatusCode)
	require.NotEmpty(t, a.Header.Get("Retry-After"))
	status, _ = p.AdminGet("/healthz")
	require.Equal(t, 200, status)
	require.NoError(t, os.Rename(root+"-away", root))
	eventually.True(t, func() bool {
		status, _ = p.AdminGet("/readyz")
		return status == 200
	})
	require.Equal(t, 200, p.Get(f.URL()).StatusCode)
}

// TestStaleSocketIsReplaced: a gateway replaces the socket that a killed gateway has left, but
// neither the socket of a running process nor another kind of file.
func TestStaleSocketIsReplaced(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	socket := filepath.Join(t.TempDir(), "socket")
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	require.NoError(t, err)
	ln.SetUnlinkOnClose(false)
	conf := e2e.WriteConfig(t, s.Config("[gateway]", "listen = unix:"+socket, "admin_listen ="))
	out, err := exec.Command(e2e.Binary, "-c", conf).CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "another process does")
	require.NoError(t, ln.Close())
	e2e.ServeConfig(t, conf)
	require.NoError(t, os.WriteFile(socket+"x", []byte("a file"), 0o600))
	conf = e2e.WriteConfig(t, s.Config("[gateway]", "listen = unix:"+socket+"x", "admin_listen ="))
	out, err = exec.Command(e2e.Binary, "-c", conf).CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "there is a file of that name")
}

// TestAccessLog: the access log has one line a request in both formats, and fields of a request
// cannot forge lines. SIGHUP opens a new file after the log was renamed.
func TestAccessLog(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	f := s.Normal("jpg", s.Bytes(1234))
	path := filepath.Join(t.TempDir(), "access.log")
	p := e2e.Serve(t, s, "[gateway]", "access_log = "+path)
	p.Get(f.URL(), "User-Agent: curl \"8\"", "Referer: http://page.test/")
	p.Raw("GET " + f.URL() + " HTTP/1.1\r\nHost: gw.test\r\nUser-Agent: a\\b\xff\"\r\nConnection: close\r\n\r\n")
	p.Raw("GET nonsense\r\n\r\n")
	// A line is written after its response, so the line of a later request may come first.
	lines := strings.Join(e2e.ReadLines(t, path, 3), "\n")
	require.Regexp(t, `(?m)^127\.0\.0\.1 - - \[\d\d/\w{3}/\d{4}:\d\d:\d\d:\d\d [+-]\d{4}\] "GET `+f.URL()+
		` HTTP/1\.1" 200 1234 "http://page\.test/" "curl \\x228\\x22"$`, lines)
	require.Regexp(t, `(?m)^[^\n]* 200 1234 "-" "a\\x5Cb\\xFF\\x22"$`, lines)
	require.Regexp(t, `(?m)"GET nonsense" 400 0 "-" "-"$`, lines)

	require.NoError(t, os.Rename(path, path+".1"))
	require.NoError(t, p.Cmd.Process.Signal(syscall.SIGHUP))
	eventually.True(t, func() bool { _, err := os.Stat(path); return err == nil })
	p.Do("HEAD", f.URL())
	require.Contains(t, e2e.ReadLines(t, path, 1)[0], `"HEAD `)

	p = e2e.Serve(t, s, "[gateway]", "access_log = "+path+".json", "access_log_format = json")
	p.Get(f.URL()+"?x=%0a%22", "User-Agent: \"q\"")
	var entry struct {
		Remote, Method, Target, Source string
		Status, Bytes                  int
		Seconds                        float64
		UserAgent                      string `json:"user_agent"`
	}
	require.NoError(t, json.Unmarshal([]byte(e2e.ReadLines(t, path+".json", 1)[0]), &entry))
	require.Equal(t, "127.0.0.1", entry.Remote)
	require.Equal(t, f.URL()+"?x=%0a%22", entry.Target)
	require.Equal(t, `"q"`, entry.UserAgent)
	require.Equal(t, 1234, entry.Bytes)
	require.Equal(t, "local", entry.Source)
}

// TestReady: "gateway ready" prints the result of /readyz, and returns it as the exit code.
func TestReady(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	p := e2e.Serve(t, s)
	for flag, want := range map[string]string{"-json=false": "ready\n", "-json": "{\"ready\":true}\n"} {
		code, stdout, _ := e2e.Run(t, "ready", "-admin", p.AdminAddr, flag)
		require.Equal(t, 0, code)
		require.Equal(t, want, stdout)
	}
	require.NoError(t, os.Rename(s.Root(storetest.Group, 0), s.Root(storetest.Group, 0)+".away"))
	code, stdout, stderr := e2e.Run(t, "ready", "-json", "-admin", p.AdminAddr)
	require.Equal(t, 1, code)
	require.Empty(t, stdout)
	require.Contains(t, stderr, http.StatusText(http.StatusServiceUnavailable)+": ")
	p.Shutdown()
	code, _, stderr = e2e.Run(t, "ready", "-admin", p.AdminAddr)
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "cannot reach the gateway")
}

// TestCrashIsRestarted: the unit restarts a gateway that crashed, or that the watchdog of systemd
// ended by SIGABRT. Go exits with status 2 then, like the command line for a usage error.
func TestCrashIsRestarted(t *testing.T) {
	t.Parallel()
	conf := e2e.WriteConfig(t, storetest.New(t).Config(e2e.WithListen(nil)...))
	cmd := exec.Command(e2e.Binary, "-c", conf)
	log, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	for lines := bufio.NewScanner(log); lines.Scan(); {
		if strings.Contains(lines.Text(), "msg=serving") {
			require.NoError(t, cmd.Process.Signal(syscall.SIGABRT))
		}
	}
	require.ErrorContains(t, cmd.Wait(), "exit status 2")
	unit, err := os.ReadFile("../../../packaging/systemd/fastdfs-gateway.service")
	require.NoError(t, err)
	require.Contains(t, string(unit), "\nRestart=on-failure\n")
	require.NotContains(t, string(unit), "RestartPreventExitStatus")
}
