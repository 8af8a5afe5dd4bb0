package ops

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// hang mounts a file system on dir that responds to no call.
func hang(t *testing.T, dir string) {
	t.Helper()
	needRoot(t)
	f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("skipped: no file system in user space: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, f.Close()) }) // ends all calls that hang
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", f.Fd())
	if err := unix.Mount("hang", dir, "fuse", 0, options); err != nil {
		t.Skipf("skipped: cannot mount a file system: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, unix.Unmount(dir, unix.MNT_FORCE|unix.MNT_DETACH)) })
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
			eventually.True(t, func() bool {
				return strings.Contains(p.LogText(),
					`msg="configuration rejected, the old one stays" err="a store path does not respond"`)
			})
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
			eventually.True(t, func() bool { return strings.Contains(p.LogText(), "msg=stopping") })
			content, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.True(t, bytes.Equal(f.Content, content))
			p.AwaitExit()
			require.Equal(t, 0, p.Cmd.ProcessState.ExitCode(), p.LogText())
		})
	}
}
