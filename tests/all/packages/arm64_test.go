package packages

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
)

// TestARM64: the program for arm64 serves a store on an emulated processor.
func TestARM64(t *testing.T) {
	t.Parallel()
	files := untar(t, filepath.Join(dist(t, old), "fastdfs-gateway-"+old+"-linux-arm64.tar.gz"))
	program := filepath.Join(t.TempDir(), "gateway")
	require.NoError(t, os.WriteFile(program, []byte(files["gateway"]), 0o755))
	require.Contains(t, output(t, "qemu-aarch64-static", program, "version"), "v"+old)

	s := storetest.New(t)
	normal, packed := s.Normal("jpg", s.Bytes(600<<10)), s.Trunk("txt", s.Bytes(5<<10))
	dir := t.TempDir()
	conf, socket := filepath.Join(dir, "mod_fastdfs.conf"), filepath.Join(dir, "gateway.sock")
	text := s.Config("[gateway]", "listen = unix:"+socket, "admin_listen =")
	require.NoError(t, os.WriteFile(conf, []byte(text), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "mime.types"), []byte(storetest.Types), 0o600))
	cmd := exec.Command("qemu-aarch64-static", program, "-c", conf)
	require.NoError(t, cmd.Start())
	defer func() {
		require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
		require.NoError(t, cmd.Wait())
	}()
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}
	client := http.Client{Transport: &http.Transport{DialContext: dial}}
	defer client.CloseIdleConnections()
	get := func(o storetest.Object, from int) ([]byte, error) {
		req, err := http.NewRequest(http.MethodGet, "http://gateway"+o.URL(), nil)
		require.NoError(t, err)
		if from > 0 {
			req.Header.Set("Range", "bytes="+strconv.Itoa(from)+"-")
		}
		resp, err := client.Do(req)
		if err != nil {
			return nil, err
		}
		defer resp.Body.Close()
		return io.ReadAll(resp.Body)
	}
	eventually.True(t, func() bool { _, err := get(normal, 0); return err == nil }, "it does not serve")
	for _, o := range []storetest.Object{normal, packed} {
		for _, from := range []int{0, 1000} {
			body, err := get(o, from)
			require.NoError(t, err)
			require.Equal(t, o.Content[from:], body)
		}
	}
}
