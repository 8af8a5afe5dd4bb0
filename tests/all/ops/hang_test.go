package ops

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/fdfstest"
	"fastdfs-gateway/tests/lab"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// hang mounts a file system on dir that responds to no call, until the result is called.
func hang(t *testing.T, dir string) (release func()) {
	t.Helper()
	needRoot(t)
	f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("skipped: no file system in user space: %v", err)
	}
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", f.Fd())
	if err := unix.Mount("hang", dir, "fuse", 0, options); err != nil {
		require.NoError(t, f.Close())
		t.Skipf("skipped: cannot mount a file system: %v", err)
	}
	release = sync.OnceFunc(func() {
		require.NoError(t, unix.Unmount(dir, unix.MNT_FORCE|unix.MNT_DETACH))
		require.NoError(t, f.Close()) // ends all calls that hang
	})
	t.Cleanup(release)
	return release
}

// TestHangingStore: while a store path hangs, a reload is rejected, unless the configuration does
// not name the path any more. After SIGTERM the gateway completes a running response, and exits.
func TestHangingStore(t *testing.T) {
	for name, leaves := range map[string]bool{"the path stays": false, "a reload leaves the path out": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := storetest.New(t)
			f := s.Normal("mp4", s.Bytes(32<<20))
			p := e2e.Serve(t, s, "[gateway]", "landlock = false")
			resp, _ := p.Download(f.URL())
			dir := s.Root(storetest.Group, 1)
			hang(t, filepath.Join(dir, "data"))
			eventually.True(t, func() bool { // a check from before the mount may be running
				code, _ := p.AdminGet("/readyz")
				return code == http.StatusServiceUnavailable
			})
			require.NoError(t, p.Cmd.Process.Signal(syscall.SIGHUP))
			p.Logged(`msg="configuration rejected, the old one stays" err="store path \"` + dir +
				`\" does not respond"`)
			if leaves {
				text, err := os.ReadFile(p.Conf)
				require.NoError(t, err)
				other := t.TempDir()
				require.NoError(t, os.Mkdir(filepath.Join(other, "data"), 0o755))
				require.NoError(t, os.WriteFile(p.Conf, []byte(strings.ReplaceAll(string(text), dir, other)), 0o600))
				p.RequireReload(http.StatusOK)
				code, body := p.AdminGet("/readyz")
				require.Equal(t, http.StatusOK, code, body)
			}
			require.NoError(t, p.Cmd.Process.Signal(syscall.SIGTERM))
			p.Logged("msg=stopping")
			content, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.True(t, bytes.Equal(f.Content, content))
			p.AwaitExit()
			require.Equal(t, 0, p.Cmd.ProcessState.ExitCode(), p.LogText())
		})
	}
}

// requireHangs waits until a thread of a process waits for the file system of hang.
func requireHangs(t *testing.T, pid int) {
	t.Helper()
	eventually.True(t, func() bool {
		names, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/wchan", pid))
		require.NoError(t, err)
		return slices.ContainsFunc(names, func(name string) bool {
			text, _ := os.ReadFile(name) // fails if the thread has ended
			return strings.Contains(string(text), "fuse")
		})
	}, "it reads no file there")
}

// TestStopDuringReload: while a reload waits for a disk, a second SIGTERM ends the gateway.
func TestStopDuringReload(t *testing.T) {
	t.Parallel()
	s, dir, addr := storetest.New(t), t.TempDir(), lab.Address(lab.Port())
	conf := e2e.WriteConfig(t, s.Config("[gateway]", "listen = "+addr, "admin_listen =", "landlock = false"))
	p, err := lab.Start(addr, filepath.Join(t.TempDir(), "log"), lab.Listens(addr), e2e.Binary, "serve", "-c", conf)
	require.NoError(t, err)
	t.Cleanup(p.Kill)
	hang(t, dir)
	include := "\n#include " + filepath.Join(dir, "http.conf") + "\n"
	text, err := os.ReadFile(conf)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(conf, append(text, include...), 0o600))
	require.NoError(t, syscall.Kill(p.PID(), syscall.SIGHUP))
	requireHangs(t, p.PID())
	eventually.True(t, func() bool {
		select {
		case <-p.Done:
			return true
		default: // the first SIGTERM waits for the reload, the second one does not
			return syscall.Kill(p.PID(), syscall.SIGTERM) != nil
		}
	}, "it does not end")
}

// TestStopWhileAStartHangs: SIGTERM ends a gateway whose start waits for a disk.
func TestStopWhileAStartHangs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	release := hang(t, dir)
	cmd := exec.Command(e2e.Binary, "serve", "-c", filepath.Join(dir, "mod_fastdfs.conf"))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	require.NoError(t, cmd.Start())
	ended := make(chan error, 1)
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		release()
		<-ended
	})
	go func() { ended <- cmd.Wait(); close(ended) }()
	requireHangs(t, cmd.Process.Pid)
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	eventually.True(t, func() bool { return len(ended) > 0 })
	require.Contains(t, out.String(), "a signal has ended the start")
}

// TestStartWithHangingStore: a gateway that starts while a store path hangs serves the others,
// under Landlock. When the disk responds, a new process takes over.
func TestStartWithHangingStore(t *testing.T) {
	t.Parallel()
	needLandlock(t)
	s := storetest.New(t)
	f, late := s.Normal("bin", s.Bytes(100)), s.In(storetest.Group, 1, "bin", s.Bytes(100))
	data := filepath.Join(s.Root(storetest.Group, 1), "data")
	release := hang(t, data)
	p := e2e.Serve(t, s)
	u := p.Upgrades()
	t.Cleanup(func() { _ = syscall.Kill(u.Current(), syscall.SIGTERM) })
	require.Regexp(t, `^on \(Landlock ABI \d+\)$`, rights(p)["landlock"])
	require.Contains(t, p.LogText(), "Landlock has no rule for a path that was not there, or hung")
	require.Equal(t, f.Content, p.Get(f.URL()).Body)
	require.Equal(t, http.StatusServiceUnavailable, p.Get(late.URL()).StatusCode)
	first := u.Current()
	release()
	eventually.True(t, func() bool {
		status, _, err := p.Try(late.URL())
		return err == nil && status == http.StatusOK
	})
	require.NotEqual(t, first, u.Current())
}

// TestStorePathHangs: while the disk of a store path hangs, many requests for its files get the
// bytes of a replica, or 503 if no other host has the file. Files of another store path are served,
// /readyz names the store path, and everything is served when the disk responds again.
func TestStorePathHangs(t *testing.T) {
	t.Parallel()
	c := e2e.NewCluster(t, fdfstest.Options{Groups: []fdfstest.GroupSpec{
		{Name: storetest.Group, Count: 2, StorePaths: 2}}})
	s := storetest.New(t)
	content := s.Bytes(1000)
	replicated := e2e.Put(t, c, fdfstest.FileSpec{Storage: c.Storage(0), Content: content, Ext: "bin",
		PathIndex: 1, Created: e2e.LongAgo})
	healthy := s.Normal("bin", s.Bytes(1000))
	var others []storetest.Object
	for range 100 {
		others = append(others, s.In(storetest.Group, 1, "bin", s.Bytes(100)))
	}
	data := filepath.Join(s.Root(storetest.Group, 1), "data")
	p := e2e.ServeConfig(t, e2e.WriteConfig(t, s.Config(e2e.WithListen([]string{
		"tracker_server = " + c.Trackers()[0], "[gateway]", "landlock = false"})...)))
	var releases []func()
	for _, name := range slices.Compact([]string{replicated.DiskName()[:2], "00"}) { // folders of the files
		dir := filepath.Join(data, name)
		require.NoError(t, os.MkdirAll(dir, 0o755))
		releases = append(releases, hang(t, dir))
	}
	var clients sync.WaitGroup
	for _, o := range others {
		clients.Go(func() {
			status, _, err := p.Try(o.URL())
			assert.NoError(t, err)
			assert.Equal(t, http.StatusServiceUnavailable, status)
		})
	}
	require.Equal(t, healthy.Content, p.Get(healthy.URL()).Body)
	require.Equal(t, content, p.Get(e2e.Path(replicated)).Body)
	clients.Wait()
	require.NotEmpty(t, p.Get(others[0].URL()).Header.Get("Retry-After"))
	require.Equal(t, healthy.Content, p.Get(healthy.URL()).Body)
	code, text := p.AdminGet("/readyz")
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Contains(t, text, s.Root(storetest.Group, 1))
	for _, release := range releases {
		release()
	}
	eventually.True(t, func() bool {
		code, _ := p.AdminGet("/readyz")
		return code == http.StatusOK
	})
	require.Equal(t, others[0].Content, p.Get(others[0].URL()).Body)
}
