package packages

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/tests/lab"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
)

// builder is a store of images below a folder of the test.
type builder struct {
	t   *testing.T
	dir string
}

// args completes a command line of buildah, whose data stays below the folder. Commands run with
// --isolation chroot, which needs no rights over namespaces.
func (b builder) args(command ...string) []string {
	options := []string{"--storage-driver", "vfs", "--root", b.dir + "/root", "--runroot", b.dir + "/run"}
	return append(options, command...)
}

func (b builder) run(command ...string) string {
	b.t.Helper()
	return strings.TrimSpace(output(b.t, "buildah", b.args(command...)...))
}

// imageConfig is the part of an image's configuration that the test checks.
type imageConfig struct {
	Docker struct {
		Config struct {
			User, StopSignal string
			Entrypoint, Cmd  []string
			Healthcheck      struct{ Test []string }
			ExposedPorts     map[string]any
		} `json:"config"`
	}
}

// TestImage: the image builds, serves a file under its account, and passes its health check.
func TestImage(t *testing.T) {
	t.Parallel()
	b := builder{t, t.TempDir()}
	b.run("bud", "--isolation", "chroot", "--format", "docker", "-f", "../../../packaging/Dockerfile",
		"--build-arg", "VERSION="+old, "-t", "gateway", dist(t, old))
	t.Cleanup(func() { b.run("rm", "--all") })
	var image imageConfig
	require.NoError(t, json.Unmarshal([]byte(b.run("inspect", "--type", "image", "gateway")), &image))
	config := image.Docker.Config
	require.Equal(t, "65532:65532", config.User)
	require.Equal(t, []string{"/gateway"}, config.Entrypoint)
	require.Equal(t, "SIGTERM", config.StopSignal)
	require.Contains(t, config.ExposedPorts, "8888/tcp")

	s := storetest.New(t)
	file := s.Normal("jpg", s.Bytes(100<<10))
	conf := t.TempDir()
	listen := lab.Address(lab.Port())
	text := s.Config("[gateway]", "listen = "+listen, "admin_listen = "+lab.Address(lab.Port()), "access_log = -")
	text = strings.ReplaceAll(text, s.Dir, "/srv/fastdfs")
	for name, text := range map[string]string{"gateway.conf": text, "mime.types": storetest.Types} {
		require.NoError(t, os.WriteFile(filepath.Join(conf, name), []byte(text), 0o644))
	}
	require.NoError(t, os.Chmod(conf, 0o755))
	container := b.run("from", "gateway")
	root := b.run("mount", container)
	files := strings.Fields(output(t, "find", root, "-type", "f", "-printf", "%P "))
	require.ElementsMatch(t, []string{"gateway", "licenses/LICENSE", "licenses/THIRD-PARTY-NOTICES",
		"etc/ssl/certs/ca-certificates.crt"}, files)
	certificates := output(t, "openssl", "storeutl", "-noout", "-certs", root+"/etc/ssl/certs/ca-certificates.crt")
	require.Regexp(t, `Total found: 1\d\d\b`, certificates)

	inContainer := func(command ...string) *exec.Cmd {
		options := []string{"run", "--isolation", "chroot", "--user", config.User,
			"-v", s.Dir + ":/srv/fastdfs:ro", "-v", conf + ":/etc/fastdfs-gateway:ro", container, "--"}
		return exec.Command("buildah", b.args(append(options, command...)...)...)
	}
	serve := inContainer(append(config.Entrypoint, config.Cmd...)...)
	var log strings.Builder
	serve.Stdout, serve.Stderr = &log, &log
	serve.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	require.NoError(t, serve.Start())
	t.Cleanup(func() {
		_ = syscall.Kill(-serve.Process.Pid, syscall.SIGTERM)
		_ = serve.Wait() // by a signal
		if t.Failed() {
			t.Log(log.String())
		}
	})
	check := config.Healthcheck.Test
	require.Equal(t, "CMD", check[0])
	eventually.True(t, func() bool { return inContainer(check[1:]...).Run() == nil }, "it does not become healthy")
	resp, err := http.Get("http://" + listen + file.URL())
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.Equal(t, file.Content, body)
}
