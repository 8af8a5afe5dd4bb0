package ops

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/lab"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
)

// TestSocketActivation: the gateway serves sockets that systemd-socket-activate has opened, and the
// connection that made it start the gateway. The socket files belong to systemd: the gateway does
// not remove them.
func TestSocketActivation(t *testing.T) {
	t.Parallel()
	activate, err := exec.LookPath("systemd-socket-activate")
	require.NoError(t, err, "tests/need all installs it")
	for _, named := range []bool{false, true} {
		t.Run(fmt.Sprintf("named=%t", named), func(t *testing.T) {
			s := storetest.New(t)
			f := s.Normal("jpg", s.Bytes(1000))
			address, admin := lab.Address(lab.Port()), lab.Address(lab.Port())
			path := filepath.Join(t.TempDir(), "files.sock")
			args := []string{"-l", address, "-l", admin, "-l", path, "-E", "GOCOVERDIR", e2e.Binary, "-c"}
			lines := []string{"[gateway]", "listen = " + address + ", unix:" + path, "admin_listen = " + admin}
			if named {
				args = append([]string{"--fdname=listen:admin_listen:listen"}, args...)
				lines = []string{"[gateway]", "listen = 127.0.0.1:1", "admin_listen = 127.0.0.1:2"}
			}
			cmd := exec.Command(activate, append(args, e2e.WriteConfig(t, s.Config(lines...)))...)
			cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
			log := filepath.Join(t.TempDir(), "log")
			out, err := os.Create(log)
			require.NoError(t, err)
			defer out.Close()
			cmd.Stderr = out
			require.NoError(t, cmd.Start())
			text := func() string { b, _ := os.ReadFile(log); return string(b) } // the file exists
			defer func() {
				require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
				require.NoError(t, cmd.Wait(), text())
				require.FileExists(t, path)
			}()
			eventually.True(t, func() bool { return strings.Contains(text(), "Listening on "+path) }, path)
			a := e2e.GetUnix(t, path, f.URL())
			require.Equal(t, http.StatusOK, a.StatusCode)
			require.Equal(t, f.Content, a.Body)
			for _, url := range []string{"http://" + address + f.URL(), "http://" + admin + "/readyz"} {
				require.Equal(t, http.StatusOK, e2e.Fetch(t, http.DefaultClient, url).StatusCode)
			}
		})
	}
}
